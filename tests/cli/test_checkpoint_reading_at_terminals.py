"""What list, info, tree and show print acts on no terminal, and fits terminals, pipes and streams."""

import os
import re
import sys

import pytest
from click.testing import CliRunner

from crewlite import History
from crewlite.cli.main import main
from crewlite.testing import ScriptedLLM
from tests import children
from tests.cli.recorded_runs import CREWLITE, HOSTILE, ask, crew_of, fill


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("terminal") / "runs")


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "--runs"],
        ["tree"],
        ["info", "hostile"],
        ["show", "hostile"],
        ["show", "hostile", "--step", "task:facts"],
        ["show", "hostile", "--step", "task:style/llm#1"],
        ["show", "hostile", "--events"],
        ["show", "hostile", "--json"],
        ["info", "hostile", "--json"],
        ["info", HOSTILE],
        ["show", "hostile", "--step", HOSTILE],
    ],
)
def test_nothing_that_was_recorded_or_typed_acts_on_the_terminal(location, words):
    done = CliRunner().invoke(main, ["checkpoint", "--location", location, *words])
    for text in (done.stdout, done.stderr):
        assert [c for c in text if not c.isprintable() and c != "\n"] == []
    shown = done.stdout + done.stderr
    if "hostile" in words and words[-1] in ("hostile", "task:facts", "task:style/llm#1"):
        assert "[bold]b[/bold]" in shown or "[bold]b" in shown, "markup is shown, not obeyed"
        assert "\\u202eevil" in shown or "info" in words


def run(*words, stdout=children.PIPE, **environment):
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    done = children.run([*CREWLITE, "checkpoint", *words], stdout=stdout, stderr=children.PIPE, env=env)
    return done


@pytest.mark.parametrize("words", [["tree"], ["show", "hostile"], ["show", "report"]])
def test_a_stream_that_takes_ascii_only_gets_it(directory, words):
    done = run(*words, "--location", directory, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "\\U0001f600" in text or "hostile" not in words
    assert ("`- + main" in text) == (words == ["tree"])


def test_a_pipe_that_is_closed_early_ends_it_quietly(directory):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = run("tree", "--all", "--location", directory, stdout=pipe)
    assert done.stderr == b""
    assert done.returncode in (0, 1)


def on_terminal(directory, *words, columns=80, **environment):
    """What a command prints on a terminal of so many columns."""
    pty = pytest.importorskip("pty")
    main_end, own_end = pty.openpty()
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    command = [*CREWLITE, "checkpoint", "--location", directory, *words]
    with children.Child(command, stdin=own_end, stdout=own_end, stderr=own_end, env=env) as child:
        os.close(own_end)
        text = children.rest_of(main_end)
    return child.returncode, text.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
@pytest.mark.parametrize("words", [["list"], ["list", "--runs"], ["tree"], ["show", "hostile"], ["show", "report"]])
def test_a_terminal_of_eighty_columns_holds_every_line(directory, words):
    code, text = on_terminal(directory, *words)
    assert code == 0
    assert "\x1b[3" in text, "in colour"
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n")
    long = [line for line in lines if len(line) > 80]
    whole = ("    RuntimeError", "to go on  crewlite")
    assert [line for line in long if not line.startswith(whole)] == [], "but for what is quoted whole"
    assert "ago" in text or "just now" in text or "show" in words


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_no_color_is_honoured_and_a_narrow_terminal_leaves_columns_out(directory):
    code, text = on_terminal(directory, "list", "--runs", columns=50, NO_COLOR="1")
    assert code == 0
    assert re.findall(r"\x1b\[[0-9;]*3[1-7]", text) == []
    head = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n")[0].split()
    assert head == ["run", "branch", "status", "tasks", "tokens"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_deep_forks_and_long_names_do_not_break_the_tree(tmp_path):
    location = str(tmp_path / "runs")
    crew_of(ScriptedLLM(["x"] * 3), location).kickoff({"topic": ""}, run_id="r" * 100)
    with History(location) as history:
        branch = "main"
        for n in range(40):
            history.fork(f"{'r' * 100}/{branch}", branch=f"b{n}")
            branch = f"b{n}"
    _, text = on_terminal(location, "tree")
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).split("\r\n"))) <= 80
    assert "b39" in ask("tree", location)
