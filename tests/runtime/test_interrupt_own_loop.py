"""Ctrl-C on an event loop of the program ends the program, and leaves a run that can go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Literal

import pytest

from crewlite import Agent, ToolCall, around, event_bus, tool
from crewlite.events import StepCompletedEvent
from crewlite.flow import Flow, flow, listen, router, start, step
from crewlite.runtime.kickoffs import left_behind
from crewlite.testing import ScriptedLLM
from tests import children

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no POSIX signals")


@pytest.mark.parametrize("where", ["step", "tool", "handler", "hook before", "hook after", "router"])
def test_ctrl_c_in_code_on_a_loop_of_the_program_ends_the_program_and_not_one_call(memory, where):
    left = [where]

    def press(*args):
        if left:
            left.clear()
            signal.raise_signal(signal.SIGINT)

    async def pressing(*args):
        press()

    @tool
    async def busy():
        """Be busy."""
        press()

    @contextlib.contextmanager
    def after(attempt):
        yield
        press()

    agent = Agent(role="A", goal="g", llm=ScriptedLLM([ToolCall("busy", {}), "told"]), tools=[busy])
    probe = step(name="probe")(pressing if where == "step" else asyncio.sleep)

    @flow(name="f", checkpoint=memory())
    async def careless():
        with contextlib.suppress(Exception):
            await (agent.akickoff("Well?") if where == "tool" else probe(0))
            await asyncio.sleep(0)  # the handler's turn
        return "went on"

    read = []

    class Label(str):
        def __str__(self):
            read.append(self)
            if len(read) == 2:  # after its method has ended, where the flow goes on
                press()
            return "left"

    class Routed(Flow):
        @start()
        def begin(self):
            return None

        @router(begin)
        def turn(self) -> Literal["left"]:
            return Label("left")

        @listen("left")
        def end(self):
            return "went on"

    if where == "router":
        careless = Routed(checkpoint=memory())
    loop, before = asyncio.new_event_loop(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.ExitStack() as around_it, pytest.raises(KeyboardInterrupt):
            if where == "handler":
                around_it.enter_context(event_bus.on(StepCompletedEvent, pressing))
            elif where.startswith("hook"):
                around_it.enter_context(around(after if where == "hook after" else press))
            loop.run_until_complete(careless.akickoff(run_id="r"))
    finally:
        signal.signal(signal.SIGINT, before)
        loop.set_exception_handler(lambda loop, about: None)  # nobody awaits the tasks that Ctrl-C has ended
        while tasks := [task for task in asyncio.all_tasks(loop) if task.cancel()]:
            with contextlib.suppress(KeyboardInterrupt):  # which tasks that await the interrupted one raise too
                loop.run_until_complete(asyncio.wait(tasks))
            for task in tasks:  # else asyncio complains of their errors, in the output of another test
                if task.done() and not task.cancelled():
                    task.exception()
        loop.close()
    assert not left
    assert careless.kickoff(run_id="r") == "went on"


def test_a_second_ctrl_c_ends_a_program_in_asyncio_run_whose_step_ignores_the_first(memory):
    @step
    async def stubborn():
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            signal.raise_signal(signal.SIGINT)

    @flow(name="f", checkpoint=memory())
    async def careless():
        with contextlib.suppress(Exception):
            await stubborn()
        return "went on"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(careless.akickoff(run_id="r"))
    finally:
        signal.signal(signal.SIGINT, before)


ON_A_LOOP = """
import asyncio, os, signal, sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM
class Slow(ScriptedLLM):
    async def acall(self, messages, **context):
        global begun
        begun += 1
        if begun == (2 if what == "run of a group" else 1):
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()  # for ever
async def read():
    async with crew.stream(run_id="r") as stream:
        async for event in stream:
            pass
begun, what, events = 0, *sys.argv[2:4]
who = Agent(role="W", goal="g", llm=Slow([]))
store = CheckpointConfig(location=sys.argv[1], on_events=events.split())
crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)], checkpoint=store)
async def beside():
    async with asyncio.TaskGroup() as group:
        for name in ("r", "s"):
            group.create_task(crew.akickoff(run_id=name))
async def in_a_task():
    task = asyncio.create_task(crew.akickoff(run_id="r"))
    await asyncio.Event().wait()
match what:
    case "run of a group":
        asyncio.run(beside())
    case "run of a task":
        asyncio.run(in_a_task())
    case "run":
        asyncio.run(crew.akickoff(run_id="r"))
    case "run of several":
        asyncio.run(crew.akickoff_for_each([{}, {}], run_id="r"))
    case "run that reads a stream":
        asyncio.run(read())
    case "run_until_complete":
        asyncio.new_event_loop().run_until_complete(crew.akickoff(run_id="r"))
"""
ONE, ALL = "run the same script again, or crew.kickoff(run_id='r')", "call kickoff_for_each again with run_id='r'"


@pytest.mark.parametrize(
    ("what", "events", "way_on"),
    [
        ("run", "task_completed", ONE),
        ("run", "SIGINT", "crew.kickoff(run_id='r')"),  # which the run itself prints
        ("run that reads a stream", "task_completed", ONE),
        ("run of several", "task_completed", ALL),
    ],
)
def test_ctrl_c_on_a_loop_of_the_program_says_once_how_to_go_on(tmp_path, what, events, way_on):
    script = [sys.executable, "-c", ON_A_LOOP, str(tmp_path / "store"), what, events]
    ended = children.run(script, capture_output=True, text=True)
    assert ended.returncode in (130, -signal.SIGINT)
    assert ended.stderr.startswith(f"\nInterrupted. To go on: {way_on}\n")
    assert ended.stderr.endswith("\nKeyboardInterrupt\n")
    assert ended.stderr.count("To go on") == 1
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("what", "names"), [("run of a group", "rs"), ("run of a task", "r")])
def test_ctrl_c_names_each_run_that_asyncio_run_has_cancelled(tmp_path, what, names):
    script = [sys.executable, "-c", ON_A_LOOP, str(tmp_path / "store"), what, "task_completed"]
    ended = children.run(script, capture_output=True, text=True)
    lines = [
        f"Run {name!r} of crew 'crew': To go on: run the same script again, or crew.kickoff(run_id={name!r})"
        for name in names
    ]
    assert ended.stderr.splitlines()[1] == "Interrupted."
    assert sorted(ended.stderr.splitlines()[2:-1]) == lines
    assert ended.stderr.endswith("\nKeyboardInterrupt\n")


def test_ctrl_c_in_a_loop_that_cancels_nothing_says_how_to_go_on_at_the_end_of_the_program(tmp_path):
    script = [sys.executable, "-c", ON_A_LOOP, str(tmp_path / "store"), "run_until_complete", "task_completed"]
    ended = children.run(script, capture_output=True, text=True)
    assert ended.returncode in (130, -signal.SIGINT)
    assert "\nKeyboardInterrupt\n" in ended.stderr
    said = f"This program ends before 1 run that it awaits. Run 'r' of crew 'crew': To go on: {ONE}\n"
    assert ended.stderr.count("This program ends") == ended.stderr.count(said) == 1


@pytest.mark.parametrize(("seconds", "named"), [(60, 1), (0, 0)])
def test_ctrl_c_does_not_name_a_run_that_the_program_gave_up_long_before(memory, monkeypatch, seconds, named):
    @flow(name="f", checkpoint=memory())
    async def endless():
        await asyncio.Event().wait()

    async def program():
        run = asyncio.ensure_future(endless.akickoff(run_id="r"))
        await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait({run})
        await asyncio.sleep(0.01)
        return left_behind.cancelled()

    monkeypatch.setattr(left_behind, "_ENDING", seconds)
    assert len(asyncio.run(program())) == named
