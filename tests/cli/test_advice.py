"""What a refused command advises is what helps there."""

from __future__ import annotations

import ast
import re
import shlex
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from crewlite import Agent, History
from crewlite.cli.main import checkpoint, main
from crewlite.errors import BranchConflictError
from crewlite.flow import flow, step
from crewlite.texts.resuming import without_advice
from tests import children
from tests.docs.pages import MODULES, PACKAGE, PAGES, blocks

NAMED = re.compile(r"(?<!from )crewlite (?:checkpoint )?[a-z]+(?: (?:[A-Z]+|--[a-z-]+))+")
"""A command in the middle of a text, up to the last of its options. `from crewlite import X` is none."""
HINTS = re.compile(r"""crewlite [a-z]+(?: [a-z]*)?(?:["'{]| [A-Z{]| --)|\bin_shell\(|\bline\(""")
"""What a module holds in which there may be one. All others are not parsed."""


def cli(*words):
    return CliRunner().invoke(main, ["checkpoint", *words], prog_name="crewlite")


def test_a_run_at_work_that_is_to_be_deleted_is_cancelled_first():
    begun, go = threading.Event(), threading.Event()

    @step
    def nap() -> None:
        begun.set()
        assert go.wait(children.PATIENCE)

    @flow(checkpoint=True)
    def work() -> None:
        nap()

    handle = work.submit(run_id="w")
    try:
        assert begun.wait(children.PATIENCE)
        done = cli("delete", "w", "--yes")
        assert done.exit_code == 1
        assert "is being run by this process, so the run was not deleted. Cancel it first: " in done.stderr
        assert "crewlite checkpoint cancel w/main --location " in done.stderr
        with History() as history, pytest.raises(BranchConflictError, match="Cancel it first"):
            history.delete("w")
    finally:
        go.set()
        handle.result(children.PATIENCE)
    assert cli("delete", "w", "--yes").exit_code == 0


def test_a_run_that_asks_nothing_says_how_it_goes_on_and_not_which_runs_there_are():
    Agent(role="Clerk", goal="g", llm="offline", checkpoint=True).kickoff("What?", run_id="done")
    done = cli("answer", "done", "human:ok", "yes")
    assert done.exit_code == 1
    assert "'human:ok' is not an open question of run 'done', which waits for no answer" in done.stderr
    assert "list --runs" not in done.stderr


def test_a_directory_that_is_named_like_a_database_is_to_be_renamed():
    Path("dir.db").mkdir()
    done = cli("list", "--location", "dir.db")
    assert done.exit_code == 1
    assert "is a directory, and a name that ends like this is that of a database: rename the directory" in done.stderr


def texts(tree):
    """The texts of a module that are no docstrings, with X in place of what is filled in."""
    nodes = list(ast.walk(tree))
    docs = {id(one.value) for one in nodes if isinstance(one, ast.Expr)}
    inside = {id(part) for one in nodes if isinstance(one, ast.JoinedStr) for part in one.values}
    for one in nodes:
        if isinstance(one, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and not {id(one)} & (docs | inside):
            yield one.value


def test_an_error_that_advises_a_command_names_the_store_that_it_is_about():
    lacking = [
        f"{module.relative_to(PACKAGE)}: {text}"
        for module in MODULES
        if module.relative_to(PACKAGE).parts[0] not in ("cli", "console", "tui", "coming_from")
        if "crewlite checkpoint" in (source := module.read_text(encoding="utf-8"))
        for text in texts(ast.parse(source))
        if "crewlite checkpoint" in text and "--location" not in text
    ]
    assert lacking == []


def advised():
    """Each command that a page, a text of the package or a call of `in_shell` or `line` names, and where it does so."""
    for page in PAGES:
        if page.name == "CHANGELOG.md":  # it tells of commands of earlier releases too
            continue
        text = page.read_text(encoding="utf-8")
        lines = [line[2:] for one in blocks(text) if one.language == "console" for line in one.code.splitlines()]
        spans = re.findall(r"`(crewlite [^`]+)`", re.sub(r"(?ms)^ *```.*?^ *```$", "", text))
        for line in (*lines, *spans):
            if line.startswith("crewlite "):
                yield f"{page.name}: {line}", line
    for module in MODULES:
        source, where = module.read_text(encoding="utf-8"), module.relative_to(PACKAGE)
        if module.name == "resuming.py" or not HINTS.search(source):  # the first makes these commands
            continue
        tree = ast.parse(source)
        lines = [found[0] for text in texts(tree) for found in NAMED.finditer(text)]
        for call in ast.walk(tree):
            name = getattr(call.func, "id", getattr(call.func, "attr", "")) if isinstance(call, ast.Call) else ""
            if name == "in_shell":
                lines += [f"crewlite checkpoint {text} --location X" for text in texts(call.args[0]) if text != "X"]
            elif name == "line" and getattr(next(iter(call.args), None), "value", "") in checkpoint.late:
                words = [one.value for one in call.args if isinstance(one, ast.Constant)]
                lines.append(f"crewlite checkpoint {' '.join(words)}")
        yield from ((f"{where}: {line}", line) for line in lines)


def unknown_in(line):
    """What a command line names that does not exist: a command, or options of one."""
    words = shlex.split(line.partition(" | ")[0].partition(" > ")[0], comments=True)[1:]
    command, context = main, click.Context(main)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return {words[0]}
        command, words, context = found, words[1:], click.Context(found, parent=context)
    known = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    return {word.partition("=")[0] for word in words if word.startswith("-")} - known


def test_every_command_that_is_advised_exists_with_its_options():
    found = dict(advised())
    assert len(found) > 100
    assert {where: unknown for where, line in found.items() if (unknown := unknown_in(line))} == {}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It is gone. Start the run again to go on.", "It is gone."),
        ("Raise timeout=, or start the run again to go on.", "Raise timeout=."),
        ("Raise its limit, or start the same run again to go on.", "Raise its limit."),
        ("Change the model, then start the run again.", "Change the model."),
        ("No text. Start the run again to retry.", "No text."),
        ("Start the run again for a new attempt, or relax.", "Start the run again for a new attempt, or relax."),
    ],
)
def test_the_advice_of_the_library_gives_way_to_that_of_the_command(text, left):
    assert without_advice(text) == left
