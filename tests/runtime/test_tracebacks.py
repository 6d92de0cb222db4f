"""What a user sees of an error: the own calls and the own code, and the step that failed. Bugs of crewlite stay whole."""

from __future__ import annotations

import functools
import sys
import traceback
from pathlib import Path

import pytest

import crewlite
from crewlite.errors import ConfigError
from crewlite.texts import tracebacks
from tests import children

PACKAGE = str(Path(crewlite.__file__).parent)

PROGRAM = """
import asyncio, logging, sys
from crewlite import Agent, BaseLLM, Crew, Task
from crewlite.flow import flow, step

class Broken(BaseLLM):
    model = "broken"

    def call(self, messages, **context):
        return colours({})

def colours(known):
    return known["colour"]

def crew_of(llm, *tools):
    worker = Agent(role="Worker", goal="work", llm=llm, tools=list(tools))
    return Crew(agents=[worker], tasks=[Task(name="paint", description="Do it", expected_output="x", agent=worker)])

crew = crew_of(Broken())

@step
async def painted(colour):
    try:
        return colours({colour: 1})
    except KeyError as error:
        raise ValueError("nothing was painted") from error

@step
def mixed(colour):
    return colours({colour: 1})

@flow
async def inside():
    return await crew.akickoff()

@flow
async def logging_flow():
    try:
        await painted("red")
    except ValueError:
        logging.exception("it was logged")
    return "went on"

@flow
def blocking():
    return mixed("red")

@flow
def mapped():
    return mixed.map(["red", "blue"]).result()

@flow
async def together():
    async with asyncio.TaskGroup() as group:
        group.create_task(painted("red"))
        group.create_task(painted("blue"))

async def waited():
    return await crew.akickoff()

how = {
    "kickoff": crew.kickoff,
    "akickoff": lambda: asyncio.run(waited()),
    "submit": lambda: crew.submit().result(),
    "for each": lambda: crew.kickoff_for_each([{}, {}]),
    "inside a flow": inside.kickoff,
    "logged": logging_flow.kickoff,
    "blocking step": blocking.kickoff,
    "mapped step": mapped.kickoff,
    "exception group": together.kickoff,
}
how[sys.argv[1]]()
"""


@pytest.fixture
def stderr_of(tmp_path):
    program = tmp_path / "painting.py"
    program.write_text(PROGRAM)

    def run(how: str) -> str:
        ended = children.run([sys.executable, program, how], capture_output=True, text=True)
        assert "Error" in ended.stderr, ended
        return ended.stderr

    return run


@pytest.mark.parametrize(
    ("how", "address"),
    [
        ("kickoff", "task:paint/llm#1"),
        ("akickoff", "task:paint/llm#1"),
        ("submit", "task:paint/llm#1"),
        ("for each", "task:paint/llm#1"),
        ("inside a flow", "crew:crew/task:paint/llm#1"),
        ("logged", "step:painted"),
        ("blocking step", "step:mixed"),
        ("mapped step", "step:mixed"),
        ("exception group", "step:painted"),
    ],
)
def test_a_traceback_holds_the_lines_of_the_user_and_the_step(stderr_of, how, address):
    shown = stderr_of(how)
    assert PACKAGE not in shown, shown
    assert 'return known["colour"]' in shown
    assert f"In step {address}" in shown, shown


def test_the_innermost_step_is_told_and_once(stderr_of):
    assert stderr_of("inside a flow").count("In step") == 1


def test_both_errors_of_a_chain_are_shown_with_the_step_at_the_last(stderr_of):
    shown = stderr_of("logged")
    assert "direct cause" in shown
    assert shown.index("KeyError") < shown.index("ValueError: nothing was painted") < shown.index("In step")
    assert shown.count("In step") == 1


def test_every_failure_of_a_group_names_its_step(stderr_of):
    shown = stderr_of("exception group")
    assert "In step step:painted" in shown
    assert shown.count("ValueError: nothing was painted") == 2


def _caught(*modules: str, error: str = "KeyError('colour')") -> BaseException:
    """What is raised by the last of these modules, each of which calls the next."""
    call = None
    for module in reversed(modules):
        code = f"def {module.replace('.', '_')}(call):\n    call() if call else fail()\ndef fail():\n    raise {error}"
        space = {"__name__": module, "ConfigError": ConfigError}
        exec(compile(code, f"<{module}>", "exec"), space)  # noqa: S102 - code of a module with that name
        entry = space[module.replace(".", "_")]
        call = functools.partial(entry, call)  # which leaves no frame of its own
    try:
        call()
    except Exception as raised:
        return raised
    raise AssertionError("nothing was raised")


def _files(error: BaseException) -> list[str]:
    tracebacks.shorten(error)
    files = [frame.filename.strip("<>") for frame in traceback.extract_tb(error.__traceback__)]
    return [
        file for n, file in enumerate(files) if "test_tracebacks" not in file and file != (files[n - 1 : n] or [""])[0]
    ]


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        (["mine", "crewlite.a", "crewlite.b", "theirs"], ["mine", "theirs"]),
        (["mine", "crewlite.a", "asyncio.tasks", "crewlite.b", "theirs"], ["mine", "theirs"]),
        (["mine", "asyncio.tasks", "theirs"], ["mine", "asyncio.tasks", "theirs"]),
        (["mine", "crewlite.a", "theirs", "json"], ["mine", "theirs", "json"]),
        (["mine", "crewlite.a", "crewlite.testing.scripted"], ["mine", "crewlite.testing.scripted"]),
    ],
)
def test_the_code_of_the_user_is_left(modules, shown):
    assert _files(_caught(*modules)) == shown


@pytest.mark.parametrize(
    ("modules", "shown"),
    [
        (["mine", "crewlite.a", "crewlite.b"], ["mine", "crewlite.a", "crewlite.b"]),
        (["mine", "crewlite.a", "theirs", "crewlite.b", "json"], ["mine", "theirs", "crewlite.b", "json"]),
        (["mine", "crewlite.a", "crewlite.b", "pydantic.main"], ["mine", "crewlite.a", "crewlite.b", "pydantic.main"]),
    ],
)
def test_a_mistake_of_crewlite_keeps_its_frames(modules, shown):
    assert _files(_caught(*modules)) == shown


def test_an_error_of_crewlite_shows_where_it_was_raised():
    raised = _caught("mine", "crewlite.a", "crewlite.b", "crewlite.c", error="ConfigError('no')")
    assert _files(raised) == ["mine", "crewlite.c"]


def test_an_error_that_takes_no_note_is_raised_as_it_is():
    class Frozen(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    error = Frozen("cold")
    tracebacks.name_step(error, "step:x")
    tracebacks.shorten(error)
    assert not hasattr(error, "__notes__")


def test_an_error_whose_traceback_cannot_be_formatted_is_told_all_the_same(monkeypatch):
    def refuse(error):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(traceback, "format_exception", refuse)
    said = tracebacks.text(KeyError("mine"))
    assert said == "KeyError: 'mine'\n(its traceback cannot be formatted: [Errno 24] Too many open files)\n"
