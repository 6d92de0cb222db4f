"""The signals that on_events names are heard while a run is at work, on the main thread, by the outermost run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, event_bus, tool
from crewlite.events import BaseEvent, SigTermEvent, TaskCompletedEvent
from crewlite.testing import EventRecorder, ScriptedLLM, ToolCall
from tests.children import posix

pytestmark = posix
KICKOFFS = {
    "kickoff": lambda made: made.kickoff({"more": "a"}),
    "for each": lambda made: made.kickoff_for_each([{"more": "a"}, {"more": "b"}]),
    "akickoff": lambda made: asyncio.run(made.akickoff({"more": "a"})),
}


@pytest.fixture
def own_handler():
    def own(number, frame):
        raise AssertionError("nobody sent it")

    before = signal.signal(signal.SIGTERM, own)
    yield own
    signal.signal(signal.SIGTERM, before)


def crew(reply, *events):
    agent = Agent(role="W", goal="g", llm=ScriptedLLM(reply))
    task = Task(name="t", description="Do {more}", expected_output="x", agent=agent)
    return Crew(tasks=[task], checkpoint=CheckpointConfig(on_events=events))


@pytest.mark.parametrize("kickoff", KICKOFFS.values(), ids=KICKOFFS)
@pytest.mark.parametrize("fails", [False, True])
def test_handlers_are_installed_while_a_run_is_at_work_and_no_longer(kickoff, fails, own_handler):
    installed = []

    def reply(messages):
        installed.append(signal.getsignal(signal.SIGTERM) is not own_handler)
        if fails:
            raise ValueError("no")
        return "done"

    made = crew(reply, "SIGTERM")
    with pytest.raises(ValueError, match="no") if fails else contextlib.nullcontext():
        kickoff(made)
    assert installed
    assert all(installed)
    assert signal.getsignal(signal.SIGTERM) is own_handler


def test_what_a_program_installs_meanwhile_is_not_lost(own_handler):
    async def kickoff():
        made = crew(lambda messages: "done", "SIGTERM")
        async with asyncio.TaskGroup() as group:
            group.create_task(made.akickoff({"more": "a"}))
            await asyncio.sleep(0)
            signal.signal(signal.SIGTERM, mine)

    def mine(number, frame):
        raise AssertionError("nobody sent it")

    asyncio.run(kickoff())
    assert signal.getsignal(signal.SIGTERM) is mine


@pytest.mark.parametrize("events", [["*"], ["task_completed"]])
def test_without_a_name_no_handler_is_touched(events, own_handler):
    installed = []
    crew(lambda messages: installed.append(signal.getsignal(signal.SIGTERM)) or "done", *events).kickoff({"more": ""})
    assert installed == [own_handler]


@pytest.mark.parametrize("kickoff", KICKOFFS.values(), ids=KICKOFFS)
def test_off_the_main_thread_one_warning_names_what_will_not_be_heard(kickoff, caplog, own_handler):
    made = crew(lambda messages: "done", "SIGTERM", "SIGHUP", "task_completed")
    with caplog.at_level(logging.WARNING), EventRecorder() as events:
        thread = threading.Thread(target=kickoff, args=[made])
        thread.start()
        thread.join()
    assert [record.message for record in caplog.records] == [
        "on_events: SIGTERM, SIGHUP will not be heard: only a kickoff on the main thread can listen"
    ]
    assert events.types[-1] == "crew_kickoff_completed"
    assert not events.of(SigTermEvent)


def test_a_platform_without_a_signal_is_told_so(caplog, monkeypatch, own_handler):
    monkeypatch.delattr(signal, "SIGHUP")
    with caplog.at_level(logging.WARNING):
        crew(lambda messages: "done", "SIGTERM", "SIGHUP").kickoff({"more": ""})
    [record] = caplog.records
    assert record.message == "on_events: SIGHUP will not be heard: this platform does not have it"


def test_a_run_that_has_its_result_listens_to_nothing(own_handler):
    made = crew(lambda messages: "done", "SIGTERM")
    made.kickoff({"more": ""}, run_id="r")
    seen = []
    with EventRecorder() as events, event_bus.on(BaseEvent, lambda *_: seen.append(signal.getsignal(signal.SIGTERM))):
        made.kickoff({"more": ""}, run_id="r")
    assert "step_replayed" in events.types
    assert set(seen) == {own_handler}


def test_a_crew_inside_a_run_says_that_it_does_not_listen(caplog, own_handler):
    inner = crew(lambda messages: "done", "SIGTERM")

    @tool
    async def ask_others() -> str:
        """Ask another crew."""
        return (await inner.akickoff({"more": ""})).raw

    llm = ScriptedLLM([ToolCall("ask_others", {}), "done"])
    agent = Agent(role="W", goal="g", llm=llm, tools=[ask_others], checkpoint=True)
    with caplog.at_level(logging.WARNING):
        agent.kickoff("Well?")
    [record] = caplog.records
    assert record.message == "on_events: only the outermost run listens to SIGTERM; 'crew' does not"


@pytest.mark.skipif(not hasattr(signal, "SIGTSTP"), reason="Windows has no Ctrl-Z")
def test_a_ctrl_z_that_comes_as_a_run_ends_makes_the_process_stand_still():
    stood, before = [], signal.getsignal(signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, lambda number, frame: stood.append(number))
    try:
        for attempt in range(60):
            stops = threading.Timer(attempt % 20 / 5_000, os.kill, (os.getpid(), signal.SIGTSTP))
            with event_bus.scoped():
                event_bus.on(TaskCompletedEvent, lambda source, event, stops=stops: stops.start())
                crew(lambda messages: "done", "SIGTSTP").kickoff({"more": "a"})
            stops.join()
            assert len(stood) == attempt + 1
    finally:
        signal.signal(signal.SIGTSTP, before)
