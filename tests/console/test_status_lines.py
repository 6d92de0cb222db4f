"""The status lines of a terminal: they show what runs now, are gone in the end, and spoil nothing that others print."""

import io
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
from crewlite.console.underway import Underway, elapsed, spent, still_open
from crewlite.events import (
    LLMCallCompletedEvent,
    LLMCallStartedEvent,
    LLMStreamChunkEvent,
    StepCompletedEvent,
    StepStartedEvent,
    TaskCompletedEvent,
    TaskStartedEvent,
)
from crewlite.testing import ScriptedLLM
from tests import children
from tests.children import posix

# --- a terminal small enough to read

_TOKEN = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[[\d;]*m|(\r)|(\n)|([^\x1b\r\n]+)")


class Screen(io.StringIO):
    """A stream that says it is a terminal. `shown` is what one would see, without empty lines at the end."""

    encoding = "utf-8"

    def isatty(self):
        return True

    @property
    def shown(self):
        return shown(self.getvalue())


def shown(text):
    """The lines that are on the screen."""
    lines, row, column = [""], 0, 0
    for count, command, home, below, plain in _TOKEN.findall(re.sub(r"\x1b\[[\d;]*m", "", text)):
        if command == "A":
            row -= int(count or 1)
            assert row >= 0
        elif command == "J":
            lines[row:] = [lines[row][:column]]
        elif home:
            column = 0
        elif below:
            row += 1
            column = 0  # as terminals do unless they are told otherwise
            lines += [""] * (row + 1 - len(lines))
        elif plain:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + plain + line[column + len(plain) :]
            column += len(plain)
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.rstrip() for line in lines]


# --- what is going on


def started(cls, address, **fields):
    return cls(run_id="r", address=address, **fields)


def ended(cls, start, **fields):
    return cls(run_id="r", address=start.address, started_event_id=start.event_id, **fields)


def test_what_has_begun_and_not_ended_is_open_with_its_time():
    now = [0.0]
    run = Underway(lambda: now[0])
    task = started(TaskStartedEvent, "task:a", task_name="a", agent_role="W", description="d", expected_output="e")
    call = started(LLMCallStartedEvent, "task:a/llm#1", model="m", messages=())
    run.hear(task, None)
    now[0] = 2.0
    run.hear(call, None)
    now[0] = 3.5
    assert [(one.title, one.depth, since) for one, since in still_open([run])] == [
        ("task a: W", 1, 3.5),
        ("model m", 2, 1.5),
    ]
    run.hear(ended(LLMCallCompletedEvent, call, model="m", response="x", call_type="llm_call", usage={}), None)
    assert [one.title for one, _ in still_open([run])] == ["task a: W"]


def test_an_open_step_of_a_flow_is_shown_with_its_type_until_it_ends():
    run = Underway()
    fetch = started(StepStartedEvent, "step:fetch", kind="step", name="fetch", step_type="web")
    run.hear(fetch, None)
    run.hear(started(StepStartedEvent, "step:fetch/step:look", kind="step", name="look"), None)
    assert [(one.title, one.depth) for one, _ in still_open([run])] == [("step fetch (web)", 1), ("step look", 2)]
    run.hear(ended(StepCompletedEvent, fetch, kind="step", name="fetch", step_type="web"), None)
    assert still_open([run]) == []


def test_when_a_task_ends_so_does_what_was_open_in_it():
    run = Underway()
    task = started(TaskStartedEvent, "task:a", description="d", expected_output="e")
    run.hear(task, None)
    run.hear(started(LLMCallStartedEvent, "task:a/llm#1", model="m", messages=()), None)
    run.hear(ended(TaskCompletedEvent, task, output=None), None)
    assert still_open([run]) == []


def test_what_has_streamed_is_counted_for_the_call_that_is_open():
    run = Underway()
    run.hear(started(LLMCallStartedEvent, "task:a/llm#1", model="m", messages=()), None)
    for text in ("Tides ", "rise."):
        run.hear(started(LLMStreamChunkEvent, "task:a/llm#1", model="m", chunk=text), None)
    assert still_open([run])[0][0].streamed == 11


def test_what_was_spent_is_the_sum_of_all_runs():
    usage = Usage(prompt_tokens=1000, completion_tokens=200, cost=0.5)
    runs = [Underway(lambda: 65.0), Underway(lambda: 65.0)]
    for run in runs:
        run.since = 0.0
        run.hear(started(LLMCallStartedEvent, "x", model="m", messages=()), usage)
    assert spent(runs) == "2 runs, 1 min 05 s, 2,400 tokens, $1.0000"
    assert spent([Underway(lambda: 0.0)]) == "0 s, 0 tokens"
    assert [elapsed(seconds) for seconds in (0.9, 59, 61, 3700)] == ["0 s", "59 s", "1 min 01 s", "1 h 01 min"]


# --- on a terminal


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


# --- on a real one

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
    import pty

    leader, follower = pty.openpty()
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


def test_a_retry_is_counted():
    class Again:
        type, started_event_id = "recovery_started", None

    run = Underway(lambda: 0.0)
    run.hear(Again(), None)
    assert spent([run]) == "0 s, 0 tokens, 1 retry"
    run.hear(Again(), None)
    assert spent([run]) == "0 s, 0 tokens, 2 retries"


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
