"""The status lines of a terminal: they show what runs now, are gone in the end, and spoil nothing that others print."""

import logging
import os
import re
import select
import sys
import threading
from pathlib import Path

import pytest

from crewlite import Agent, Crew, LLMReply, Task, ToolCall, Usage, tool
from crewlite.console import status_lines
from crewlite.testing import ScriptedLLM
from tests import children
from tests.children import posix
from tests.console.screen import Screen, shown


@pytest.fixture
def opened(monkeypatch):
    """Called in a test, makes standard output a terminal (pytest has the stream for itself before)."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "24")

    def terminal():
        screen = Screen()
        monkeypatch.setattr(sys, "stdout", screen)
        return screen

    return terminal


def crew(act, *, tasks=("read",), **fields):
    """A verbose crew whose model calls `act` before each reply."""

    def reply(messages):
        act()
        return LLMReply(text="done", usage=Usage(prompt_tokens=1, completion_tokens=1, requests=1, cost=0.25))

    reader = Agent(role="Reader", goal="Know", llm=ScriptedLLM(reply))
    made = [Task(name=name, description="Read", expected_output="Words", agent=reader) for name in tasks]
    return Crew(name="library", tasks=made, verbose=True, **fields)


LINES = [
    "▸ crew library begins (run ID)",
    "  ▸ task read: Reader begins",
    "    ✓ model scripted: 2 tokens, so far 2 tokens",
    "  ✓ task read: Reader has finished",
    "✓ crew library has finished: 2 tokens",
]


def named(lines):
    """The lines without what differs from run to run: its id, and seconds on a machine that is busy."""
    return [re.sub(r"\b[1-9]\d* s\b", "0 s", re.sub(r"run \w+", "run ID", line)) for line in lines]


def foot(terminal):
    """The lines of what runs now, below an empty one."""
    lines = terminal.shown
    return lines[lines.index("") + 1 :] if "" in lines else []


def test_the_foot_shows_what_runs_right_now_and_is_gone_in_the_end(opened):
    terminal = opened()
    seen = []

    def act():
        children.until(lambda: "    ▸ model scripted  0 s" in named(foot(terminal)))
        seen.extend(terminal.shown)

    crew(act).kickoff()
    assert named(seen) == [
        *LINES[:2],
        "",
        "  ▸ task read: Reader  0 s",
        "    ▸ model scripted  0 s",
        "  0 s, 0 tokens",
    ]
    assert named(terminal.shown) == LINES
    assert sys.stdout is terminal


def test_what_the_program_prints_comes_out_above_as_it_was_written(opened):
    terminal = opened()
    long = "x" * 200

    def act():
        print("a line")
        print("two\nlines")
        print(long, end="")
        print("|")

    crew(act).kickoff()
    assert named(terminal.shown) == [*LINES[:2], "a line", "two", "lines", f"{long}|", *LINES[2:]]


def test_the_foot_stands_back_while_the_program_leaves_a_line_open(opened):
    terminal = opened()
    seen = []

    def act():
        print("Name? ", end="", flush=True)
        threading.Event().wait(0.5)
        seen.extend(terminal.shown)
        print("Ann")
        sys.stdout.write("\rno end")

    crew(act).kickoff()
    assert named(seen) == [*LINES[:2], "Name?"]
    assert named(terminal.shown)[:3] == [*LINES[:2], "Name? Ann"]
    assert any("no end" in line for line in terminal.shown)


ASKING = """
from crewlite.flow import ask, flow, step

@step
async def asks(name):
    return await ask(f"{name}?", name=name)

@flow(verbose=True)
async def both():
    return await asks.map(["a", "b"])

print(both.kickoff())
"""


@posix
def test_a_question_stays_the_last_line_whatever_happens_beside_it(tmp_path):
    (tmp_path / "asking.py").write_text(ASKING)
    main, side = os.openpty()
    size = {"TERM": "xterm", "COLUMNS": "60", "LINES": "24"}
    child = children.Child(
        [sys.executable, "asking.py"], cwd=tmp_path, stdin=side, stdout=side, stderr=side, env={**os.environ, **size}
    )
    os.close(side)
    text = ""

    def until(*ends):
        nonlocal text
        while not (lines := shown(text)) or lines[-1] not in ends:
            assert select.select([main], [], [], children.PATIENCE)[0], shown(text)
            text += os.read(main, 10_000).decode()
        return lines[-1]

    first = until("a?", "b?")
    os.write(main, b"one\n")
    second = until(*{"a?", "b?"} - {first})
    while "✓ step asks" not in "".join(shown(text)):
        text += os.read(main, 10_000).decode()
    assert until(second) == second
    os.write(main, b"two\n")
    answers = {first: "one", second: "two"}
    until(str([answers["a?"], answers["b?"]]))
    child.wait()
    os.close(main)
    asked = [re.sub(r"#2|human:[ab]", "", line) for line in shown(text)[3:]]
    done = ["    ✓ step:asks/ is answered: {}", "  ✓ step asks"]
    assert asked[:6] == [
        f"{first} one",
        done[0].format("one"),
        done[1],
        f"{second} two",
        done[0].format("two"),
        done[1],
    ]


def test_whoever_writes_past_it_lands_on_an_empty_line_and_stays(opened):
    terminal = opened()
    logger, handler = logging.getLogger("a-library"), logging.StreamHandler(terminal)
    logger.addHandler(handler)

    def act():
        logger.warning("from a log that took hold of the stream early")
        threading.Event().wait(0.3)

    try:
        crew(act).kickoff()
    finally:
        logger.removeHandler(handler)
    assert named(terminal.shown) == [*LINES[:2], "from a log that took hold of the stream early", *LINES[2:]]


def test_runs_at_once_share_one_foot(opened):
    terminal = opened()
    gate, seen = threading.Barrier(2, timeout=children.PATIENCE), []

    @tool
    def look() -> str:
        """Look."""
        children.until(lambda: sum("▸ tool look" in line for line in foot(terminal)) == 2)
        seen.append(foot(terminal))
        gate.wait()
        return "seen"

    reader = Agent(role="R", goal="g", tools=[look])

    def reply(messages):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("look", {})

    task = Task(name="read", description="Read", expected_output="Words", agent=reader)
    Crew(name="library", tasks=[task], llm=ScriptedLLM(reply), verbose=True).kickoff_for_each([{}, {}])
    *lines, total = seen[0]
    assert sorted(line.rpartition("  ")[0].strip() for line in lines) == ["▸ task read: R"] * 2 + ["▸ tool look"] * 2
    assert total.startswith("  2 runs, ")
    assert "" not in terminal.shown
    assert sum("has finished" in line for line in terminal.shown) == 4


def test_an_error_in_the_middle_leaves_the_terminal_as_it_was(opened):
    terminal = opened()

    def act():
        raise ValueError("no paper")

    with pytest.raises(ValueError, match="no paper"):
        crew(act).kickoff()
    assert "" not in terminal.shown
    assert terminal.shown[-1].startswith("✗ crew library stopped: ValueError: no paper")
    assert sys.stdout is terminal


@pytest.mark.parametrize(("name", "value"), [("COLUMNS", "12"), ("LINES", "3")])
def test_where_there_is_no_room_there_is_no_foot(opened, monkeypatch, name, value):
    terminal = opened()
    monkeypatch.setenv(name, value)
    crew(lambda: threading.Event().wait(0.3)).kickoff()
    assert "\x1b[J" not in terminal.getvalue()


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(opened, monkeypatch):
    terminal = opened()
    monkeypatch.setenv("TERM", "dumb")
    crew(lambda: threading.Event().wait(0.3)).kickoff()
    assert "\x1b" not in terminal.getvalue()
    assert named(terminal.getvalue().splitlines()) == LINES


def test_a_pipe_that_is_forced_to_have_colours_has_no_foot(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    crew(lambda: threading.Event().wait(0.3)).kickoff()
    assert "\x1b[J" not in capsys.readouterr().out


def test_without_colours_there_are_none(opened, monkeypatch):
    terminal = opened()
    monkeypatch.setenv("NO_COLOR", "1")
    crew(lambda: threading.Event().wait(0.3)).kickoff()
    assert not re.search(r"\x1b\[[\d;]*3\dm", terminal.getvalue())


@posix
def test_a_forked_child_prints_as_ever(opened):
    terminal = opened()

    def act():
        def prints():
            print("from the child", flush=True)
            return sys.stdout is terminal

        assert children.in_a_fork(prints)

    crew(act).kickoff()
    assert named(terminal.shown) == LINES


SCRIPT = """
import os, time
from crewlite import Agent, Crew, Task
from crewlite.testing import ScriptedLLM
def reply(messages):
    print("printed")
    while not os.path.exists("go"):
        time.sleep(0.01)
    name = input("Name? ")
    print("hello", name)
    return "done"
reader = Agent(role="Reader", goal="Know", llm=ScriptedLLM(reply))
Crew(name="library", tasks=[Task(name="read", description="R", expected_output="W", agent=reader)], verbose=True).kickoff()
"""


@posix
def test_on_a_pseudo_terminal_a_question_can_be_answered():
    leader, follower = os.openpty()
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "60", "LINES": "24"}
    process = children.Child([sys.executable, "-c", SCRIPT], stdin=follower, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    told = b""
    while b"model scripted" not in told:
        told += os.read(leader, 10_000)
    Path("go").touch()
    while b"Name? " not in told:
        told += os.read(leader, 10_000)
    assert shown(told.decode())[-2:] == ["printed", "Name?"]
    os.write(leader, b"Ann\n")
    told += children.rest_of(leader)
    assert process.wait() == 0
    lines = shown(told.decode())
    assert "Name? Ann" in lines
    assert lines[lines.index("Name? Ann") + 1] == "hello Ann"
    assert "" not in lines


def test_the_thread_of_the_foot_ends_with_it_and_not_when_it_would_look_again(opened, monkeypatch):
    monkeypatch.setattr(status_lines, "_PERIOD", 3600)
    terminal = opened()
    for _ in range(5):
        crew(lambda: None).kickoff()
        threads = [one for one in threading.enumerate() if one.name == "crewlite-status-lines"]
        for one in threads:
            one.join(children.PATIENCE)
        assert not any(one.is_alive() for one in threads)
    assert sys.stdout is terminal
