"""Every example in README, docs and docstrings is run, without a network; links, commands and tests named there exist."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from subprocess import PIPE, STDOUT

import click
import pytest
from click.testing import CliRunner
from pages import MODULES, PACKAGE, PAGES, ROOT, Block, blocks, docstrings, stray_code

from crewlite.cli.main import main
from crewlite.events.event_bus import event_bus
from crewlite.state.journal.writer import writers
from tests import children

COMMANDS = {  # shell lines without an effect worth a test of their own, each with who covers it
    "python -m tests.docs.catalogue",  # test_catalogue.py compares what it writes
    "pip install .",  # `make test` begins with it
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def docstrings_with(text: str) -> pytest.MarkDecorator:
    """Each docstring of the package that contains a text."""
    found = [docstring for module in MODULES for docstring in docstrings(module, text)]
    return pytest.mark.parametrize("docstring", found, ids=lambda docstring: docstring.place)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """A model that needs no network, and no network."""
    monkeypatch.setenv("CREWLITE_MODEL", "offline")
    connect = socket.socket.connect

    def refuse(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1"):
            raise AssertionError(f"an example of the documentation asked the network for {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def _log_levels():
    """A page may quieten a log for itself, not for the tests after it."""
    names = ("crewlite", "crewlite.codec", "crewlite.events", "crewlite.run", "crewlite.state")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def run(code: str, namespace: dict, where: str, line: int = 1) -> str:
    """Run a block; what it printed."""
    printed = io.StringIO()
    compiled = compile("\n" * (line - 1) + code, where, "exec", dont_inherit=True)
    with contextlib.redirect_stdout(printed):
        exec(compiled, namespace)
    return printed.getvalue()


def same(shown: str, printed: str) -> None:
    """Hold what a page shows to what was printed; trailing whitespace apart."""
    assert [line.rstrip() for line in printed.rstrip().split("\n")] == [
        line.rstrip() for line in shown.rstrip().split("\n")
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_blocks_of_a_page_run_in_order_and_print_what_they_say(page):
    namespace, printed, before = {"__name__": "page"}, "", None
    with event_bus.scoped():
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                if block.file:
                    compile(block.code, block.file, "exec")
                    Path(block.file).write_text(block.code, encoding="utf-8")
                    printed = ""
                else:
                    printed = run(block.code, namespace, str(page), block.line)
            elif block.language == "text":
                assert before and before.language == "python" and block.follows, (
                    f"{name_of(page)}:{block.line}: a ```text block shows what the ```python block right above prints"
                )
                same(block.code, printed)
            elif block.language in ("yaml", "jsonc"):
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.code, encoding="utf-8")
            elif block.language == "json":
                json.loads(block.code)
            elif block.language == "console":
                console(block)
            else:
                drawing = block.language == "" and not stray_code(block.code)
                assert drawing, f"{name_of(page)}:{block.line}: a block that nobody runs ({block.language!r})"
            before = block


def console(block: Block) -> None:
    """A console block: lines with `$` are commands, the others what they print."""
    commands: list[tuple[str, list[str]]] = []
    for line in block.code.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            assert commands, f"line {block.line}: a console block starts with a command: $ ..."
            commands[-1][1].append(line)
    for command, shown in commands:
        words = shlex.split(command)
        settings = dict(word.split("=", 1) for word in words if re.fullmatch(r"[A-Z_]+=.*", word))
        words = words[len(settings) :]
        if words[0] == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(words[1:]) <= set(targets), command
        elif words[0] == "crewlite":
            if shown:
                same(steady("\n".join(shown)), steady(terminal(words[1:], settings)))
            else:
                assert understood(words[1:]), command
        elif words[0] in ("grep", "sqlite3"):
            if shutil.which(words[0]):
                same("\n".join(shown), children.run(words, capture_output=True, text=True).stdout)
        elif words[0] == "python" and Path(words[1]).exists():
            same(steady("\n".join(shown)), steady(script(words[1:], settings)))
        else:
            assert command in COMMANDS, f"{command!r} is covered by nothing: see COMMANDS"


VARIES = [  # what is another each time: ids, moments, how long something took
    (re.compile(r"\d{8}T\d{12}_[0-9a-f]{32}|\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "WHEN"),
    (re.compile(r" *\d[\d,.]* (ms|s|min)\b"), " TIME"),
    (re.compile(r"(?<=ref {9})\S+(?=\.checkpoints)"), ""),
]


def steady(text: str) -> str:
    """A text with what varies from run to run replaced, and columns that it made wider or narrower made alike."""
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def terminal(words: list[str], settings: dict[str, str]) -> str:
    """What a crewlite command shows where the page is run: what it prints, and then what it says on stderr."""
    done = CliRunner(env={"NO_COLOR": "1", **settings}).invoke(main, words, prog_name="crewlite")
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout + done.stderr


def understood(words: list[str]) -> bool:
    """Whether crewlite knows a command of these words; it is not run."""
    command: click.Command | None = main
    ctx = click.Context(main, info_name="crewlite")
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        command, words = command.get_command(ctx, words[0]), words[1:]
        if command is None:
            return False
        ctx = click.Context(command, parent=ctx)
    known = {option for param in ctx.command.params for option in param.opts} | set(ctx.help_option_names)
    return all(word.partition("=")[0] in known for word in words if word.startswith("-"))


def script(words: list[str], settings: dict[str, str]) -> str:
    """Run a file of the page in a process of its own; what a terminal shows of it."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **settings}
    done = children.run([sys.executable, *words], stdout=PIPE, stderr=STDOUT, text=True, env=environment)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout
    return done.stdout + ("Killed\n" if done.returncode else "")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_example_of_a_page_escapes_the_tests(page):
    assert stray_code(page.read_text(encoding="utf-8")) == [], "put it into a ```python block, so that it is run"


@pytest.fixture
def _nobody_else_writes():
    """CrashInjector counts the operations of the whole process, so no run that an earlier test left may still write.

    The writers of stores that never work again stay, without a branch that they could write.
    """

    def is_quiet():
        threads = [thread for thread in threading.enumerate() if thread.name == "crewlite-writer"]
        return len(threads) == sum(not writer.queues for writer in writers.values())

    children.until(is_quiet)


@docstrings_with("```")
@pytest.mark.usefixtures("_nobody_else_writes")
def test_the_fenced_examples_of_a_docstring_run(docstring):
    namespace = {"__name__": "example"}
    for block in blocks(docstring.text):
        if block.language == "python":
            run(block.code, namespace, docstring.place, block.line)


@docstrings_with(">>>")
def test_the_doctests_of_a_docstring_pass(docstring):
    parts = docstring.path.relative_to(PACKAGE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
    test = doctest.DocTestParser().get_doctest(docstring.text, dict(vars(module)), docstring.place, None, 0)
    report = io.StringIO()
    doctest.DocTestRunner(verbose=False).run(test, out=report.write)
    assert report.getvalue() == ""


def test_no_example_of_a_docstring_escapes_the_tests():
    found = [docstring for module in MODULES for docstring in docstrings(module)]
    stray = [f"{docstring.place}: {code}" for docstring in found for code in stray_code(docstring.text)]
    assert stray == [], "put it into a ```python block, so that it is run"


@pytest.mark.parametrize(
    ("text", "stray"),
    [
        ("Says.\n\n    crew = Crew()\n    crew.kickoff()\n\nMore.", 1),
        ("Says.\n\ncrew = Crew()\n", 1),
        ("Says.\n\n```python\ncrew = Crew()\n```", 0),
        ("Says.\n\n>>> crew = Crew()\n", 0),
        ("Says.\n\nArgs:\n    inputs: Values for the placeholders.", 0),
        ("One line.", 0),
    ],
)
def test_stray_code_is_found(text, stray):
    assert len(stray_code(text)) == stray


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_on_the_map():
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    assert {page for page in PAGES if page.parent == index.parent} - {index} <= linked


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_tests_and_files_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    missing = []
    for file, _, test in re.findall(r"`((?:tests|examples|benchmarks|crewlite)/[\w/]+\.py)(::(\w+))?`", text):
        path = ROOT / file
        if not path.exists() or (test and f"def {test}(" not in path.read_text(encoding="utf-8")):
            missing.append(file + (f"::{test}" if test else ""))
    assert missing == []
