"""What ends a script is printed within 15 lines: the user's own frames, the step, what is recorded, and how to go on."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Literal

import pytest

import crewlite
from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.cli.uncaught import brief, install
from crewlite.errors import (
    ConfigError,
    GuardrailFailed,
    LLMAuthError,
    LLMUnavailable,
    MaxIterations,
    MissingInput,
    Suspended,
)
from crewlite.flow import ask, flow, step
from crewlite.testing import ScriptedLLM
from tests import children

PROGRAM = """
import sys
from crewlite.flow import ask, flow, step

@step
def fetch(page):
    return f"page {page}"

@step
def parse(text):
    return inner(text, 20)

def inner(text, depth):
    if depth:
        return inner(text, depth - 1)
    try:
        return int(text)
    except ValueError as error:
        raise RuntimeError("no number\\n" * 9) from error

@flow(checkpoint=True)
def book(what):
    if what == "ask":
        return ask("Print it?", bool)
    return [parse(fetch(n)) for n in range(3)]

book.kickoff(sys.argv[1], run_id="book")
"""


@pytest.mark.parametrize("what", ["fail", "ask"])
def test_a_script_that_ends_with_an_error_of_its_run_says_so_in_fifteen_lines(tmp_path, what):
    program = tmp_path / "book.py"
    program.write_text(PROGRAM)
    ended = children.run([sys.executable, program, what], capture_output=True, text=True, stdin=children.DEVNULL)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert len(lines) <= 15
    if what == "ask":
        assert lines == [
            "Run 'book' waits for a person, and is no longer at work.",
            "human#1: Print it?",
            "  wanted: yes or no",
            "  crewlite checkpoint answer book 'human#1' VALUE",
            "To go on then: kickoff(run_id='book')",
            "Or answer and go on at once: kickoff(run_id='book', answers={'human#1': ...})",
        ]
        return
    assert 'book.kickoff(sys.argv[1], run_id="book")' in lines[2]
    assert lines[6].strip().startswith("raise RuntimeError(")  # the innermost frame
    assert "RuntimeError: no number" in lines
    assert "  after ValueError: invalid literal for int() with base 10: 'page 0'" in lines
    assert lines[-4:] == [
        "In step step:parse",
        f"Recorded: 1 finished step of run 'book' in {tmp_path / '.checkpoints'}. It is not run again.",
        "To go on: run the same script again, or flow.kickoff(run_id='book')",
        "(CREWLITE_TRACEBACK=full shows everything.)",
    ]


def test_the_note_is_on_the_error_itself_once_and_only_where_something_is_kept(on_disk, memory, monkeypatch):
    def crew_of(**fields):
        agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(["one", OSError("down"), OSError("down")]))
        tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent) for n in range(2)]
        return Crew(tasks=tasks, **fields)

    @flow(checkpoint=on_disk())
    def outer():
        crew_of().kickoff()

    for kickoff, steps in ((lambda: crew_of(checkpoint=on_disk()).kickoff(), 2), (outer.kickoff, 2)):
        with pytest.raises(OSError, match="down") as raised:
            kickoff()
        notes = [note for note in raised.value.__notes__ if note.startswith("Recorded: ")]
        assert len(notes) == 1
        assert notes[0].startswith(f"Recorded: {steps} finished steps of run ")
        with History(on_disk().location) as history:
            assert f"kickoff(run_id={history.run('latest').run_id!r})" in notes[0]
    for fields in ({}, {"checkpoint": memory()}):
        with pytest.raises(OSError, match="down") as raised:
            crew_of(**fields).kickoff()
        assert raised.value.__notes__ == ["In step task:t1/llm#1"]
    with pytest.raises(MissingInput) as missing:
        Crew(
            tasks=[Task(description="{x}", expected_output="x", agent=Agent(role="r", goal="g", llm="offline"))]
        ).kickoff()
    assert brief(missing.value) == []  # which Python prints: it says all in one line


def test_frames_of_libraries_are_left_out_and_the_one_that_raised_is_named(on_disk):
    @step
    def read():
        return json.loads("{")

    @flow(checkpoint=on_disk())
    def reading():
        return read()

    with pytest.raises(json.JSONDecodeError) as raised:
        reading.kickoff(run_id="r")
    lines = brief(raised.value)
    assert len(lines) <= 15
    assert [line.rpartition("in ")[2] for line in lines if line.startswith("  File")][-2:] == ["read", "raw_decode"]
    assert sum("json" in line and line.startswith("  File") for line in lines) == 1
    group = ExceptionGroup("two", [raised.value])
    group.add_note("In step step:x")
    assert brief(group) == brief(ConfigError("x")) == brief(KeyError("x")) == []


ERRORS = {
    LLMUnavailable: {"llm": [LLMUnavailable("503: overloaded")] * 9},
    LLMAuthError: {"llm": [LLMAuthError("gpt", 401, "no such key")] * 9},
    MaxIterations: {"llm": lambda messages: ToolCall("look"), "max_iter": 1},
    GuardrailFailed: {"llm": lambda messages: "no"},
}


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_errors_of_models_and_tools_are_told_as_those_of_own_code(cls, on_disk):
    @tool
    def look() -> str:
        """Look."""
        raise TimeoutError("nobody answers")

    fields = {"goal": "work", "max_retry_limit": 0, "tools": [look], **ERRORS[cls]}
    made = dict(fields, llm=ScriptedLLM(fields["llm"]))
    task = Task(name="one", description="Do", expected_output="x", agent=Agent(role="Worker", **made))
    task.guardrail, task.guardrail_max_retries = (lambda output: (False, "too short")), 0
    with pytest.raises(cls) as raised:
        Crew(tasks=[task], checkpoint=on_disk()).kickoff(run_id="r")
    lines = brief(raised.value)
    assert len(lines) <= 15
    assert not any(str(Path(crewlite.__file__).parent) in line for line in lines if line.startswith("  File"))
    assert any('kickoff(run_id="r")' in line for line in lines)
    assert any(line.startswith("In step task:one") for line in lines)
    assert any(line.startswith("Recorded: ") and "run 'r' in " in line for line in lines)
    assert any(line.endswith(": run the same script again, or crew.kickoff(run_id='r')") for line in lines)


def test_what_a_run_asks_is_told_with_its_choices_and_the_lines_that_answer(on_disk):
    @flow(checkpoint=on_disk())
    def asking():
        return ask("Where?\nSay it.", Literal["web", "print"], name="where")

    with pytest.raises(Suspended) as raised:
        asking.kickoff(run_id="r")
    lines = brief(raised.value)
    assert lines[1:4] == ["human:where: Where?", "  Say it.", "  wanted: one of web, print"]
    assert lines[4].startswith("  crewlite checkpoint answer r human:where VALUE --location ")
    with History(raised.value.location) as history:
        history.answer("r", "human:where", "web")
    assert brief(raised.value) == ["Run 'r' has its answers, and is not at work.", "To go on: kickoff(run_id='r')"]


def test_a_program_that_prints_its_errors_itself_goes_on_doing_so(monkeypatch):
    def own(*error):
        traceback.print_exception(*error)

    monkeypatch.setattr(sys, "excepthook", own)
    install()
    assert sys.excepthook is own
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    install()
    assert sys.excepthook is not sys.__excepthook__


def test_everything_is_shown_if_the_environment_says_so(tmp_path):
    program = tmp_path / "book.py"
    program.write_text(PROGRAM)
    said = children.run(
        [sys.executable, program, "fail"], capture_output=True, text=True, env={"CREWLITE_TRACEBACK": "full"}
    ).stderr
    assert "crewlite/runtime/kickoffs/engine.py" in said
    assert said.count("\n") > 60
    assert "Recorded: 1 finished step of run 'book'" in said
