"""durability="async": the record follows the run, in order, and nothing is said to be saved before it is."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.errors import StoreError
from crewlite.events import CheckpointCompletedEvent, TaskCompletedEvent
from crewlite.state import InMemoryProvider
from crewlite.system import disk
from crewlite.testing import CrashInjector, EventRecorder, ScriptedLLM


@pytest.fixture(params=["store", "store.db"])
def location(request, tmp_path):
    return tmp_path / request.param


def crew_at(location, count=8, *, llm=None, tools=(), durability="async", **fields):
    agent = Agent(role="W", goal="w", llm=llm or ScriptedLLM(lambda messages: "done"), tools=tools)
    tasks = [
        Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent, context=[]) for n in range(count)
    ]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location, durability=durability, **fields))


class Slow:
    """A provider whose stores append only when they are let."""

    name = "slow"

    def __init__(self, inner):
        self._inner, self.gate, self.appended = inner, threading.Event(), []

    def open(self, location):
        return _SlowStore(self, self._inner.open(location))


class _SlowStore:
    def __init__(self, provider, inner):
        self._provider, self._inner, self.location = provider, inner, inner.location

    def append(self, commits):
        if self._provider.appended:  # the first proves that anything can be saved, and is waited for
            self._provider.gate.wait(10)
        self._inner.append(commits)
        self._provider.appended += [entry.seq for commit in commits for entry in commit.entries]

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_when_a_kickoff_returns_everything_is_saved(location):
    result = crew_at(location).kickoff(run_id="r")
    assert result.durability == "async"
    with History(location) as history:
        run = history.run("r")
        assert run.status == "finished"
        assert [checkpoint.tasks[-1] for checkpoint in run.checkpoints()] == [f"task:t{n}" for n in range(8)]


def test_the_run_does_not_wait_for_the_store():
    provider, heard = Slow(InMemoryProvider()), []

    def release(source, event):
        heard.append(event.address)
        if len(heard) == 8:  # the last task is done, and nothing but the first commit is saved
            assert provider.appended == [1]
            provider.gate.set()

    with event_bus.on(TaskCompletedEvent, release):
        result = crew_at("anywhere", provider=provider).kickoff(run_id="r")
    assert len(heard) == 8
    assert result.durability == "async"
    assert provider.appended == list(range(1, provider.appended[-1] + 1))


def test_a_checkpoint_is_announced_only_once_it_is_saved():
    provider = Slow(InMemoryProvider())
    seen: list[tuple[int, int]] = []
    with (
        event_bus.on(CheckpointCompletedEvent, lambda source, event: seen.append((event.seq, len(provider.appended)))),
        event_bus.on(TaskCompletedEvent, lambda source, event: provider.gate.set()),
    ):
        crew_at("anywhere", 2, provider=provider).kickoff(run_id="r")
    assert len(seen) == 2
    with EventRecorder() as recorder:
        crew_at("anywhere", 3, provider=provider).kickoff(run_id="again")
    checkpoints = History("anywhere", provider).run("again").checkpoints()
    assert [event.ref for event in recorder.of(CheckpointCompletedEvent)] == [
        checkpoint.ref for checkpoint in checkpoints
    ]


def test_flush_waits_until_all_is_saved_and_says_how_far(location):
    flushed = []

    def flush(source, event, state):
        flushed.append((state.seq, state.flush()))
        with History(location) as history:
            assert event.address in {step.address for step in history.run("r").steps}

    with event_bus.on(TaskCompletedEvent, flush):
        crew_at(location, 3).kickoff(run_id="r")
    assert len(flushed) == 3
    assert all(seq <= saved for seq, saved in flushed)


def test_an_async_handler_may_flush_too(location):
    flushed = []

    async def flush(source, event, state):
        flushed.append(await state.aflush() >= state.seq)

    with event_bus.on(TaskCompletedEvent, flush):
        crew_at(location, 3).kickoff(run_id="r")
    assert flushed == [True] * 3


def test_a_flush_that_nobody_waits_for_any_more_stops_nothing(location):
    given_up = []

    async def give_up(source, event, state):
        waiting = asyncio.ensure_future(state.aflush())
        await asyncio.sleep(0)
        given_up.append(waiting.cancel())

    with event_bus.on(TaskCompletedEvent, give_up), disk.watched(lambda operation: time.sleep(0.01)):
        assert crew_at(location, 3).kickoff(run_id="r").durability == "async"
    assert given_up == [True] * 3
    with History(location) as history:
        assert history.run("r").status == "finished"


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_flush_after_the_end_of_the_run_says_so(location, durability):
    kept = []
    with event_bus.on(TaskCompletedEvent, lambda source, event, state: kept.append(state)):
        crew_at(location, 1, durability=durability).kickoff(run_id="r")
    with pytest.raises(StoreError, match="the run has ended"):
        kept[0].flush()


def test_without_a_store_there_is_nothing_to_flush():
    errors = []

    def flush(source, event, state):
        with pytest.raises(StoreError, match="in memory") as caught:
            state.flush()
        errors.append(caught.value)

    agent = Agent(role="W", goal="w", llm=ScriptedLLM(["done"]))
    with event_bus.on(TaskCompletedEvent, flush):
        Crew(tasks=[Task(description="Do", expected_output="x", agent=agent)]).kickoff()
    assert len(errors) == 1


def test_what_fails_to_be_saved_is_tried_again_and_the_result_says_so(location):
    with CrashInjector() as clean:
        crew_at(location, 4).kickoff(run_id="clean")
    late = next(n for n, done in enumerate(clean.log, 1) if b"task:t1" in done.data or done.verb == "commit" and n > 8)
    with CrashInjector(at=late, error=OSError(28, "disk full")):
        result = crew_at(location, 4).kickoff(run_id="r")
    assert result.durability == "degraded"
    with History(location) as history:
        assert history.run("r").status == "finished"  # it was tried again, in order


def test_a_save_that_fails_stops_the_run_if_it_must():
    class Broken(Slow):
        def open(self, location):
            return _BrokenStore(self, self._inner.open(location))

    class _BrokenStore(_SlowStore):
        def append(self, commits):
            if self._provider.appended:
                raise OSError(28, "disk full")
            super().append(commits)

    llm = ScriptedLLM(lambda messages: "done")
    with pytest.raises(StoreError, match="disk full"):
        crew_at("anywhere", 400, llm=llm, provider=Broken(InMemoryProvider()), on_save_error="raise").kickoff()
    assert len(llm.calls) < 400


def test_a_call_that_may_happen_once_waits_for_its_intent(location):
    known = []

    @tool(effect="once")
    def pay() -> str:
        """Pay."""
        with History(location) as history:
            known.append([step.address for step in history.run("r").steps if step.status == "in_doubt"])
        return "paid"

    llm = ScriptedLLM([ToolCall("pay"), "done"])
    assert crew_at(location, 1, llm=llm, tools=[pay]).kickoff(run_id="r").durability == "async"
    assert known == [["task:t0/tool:pay"]]


def test_a_run_is_never_far_ahead_of_its_disk():
    provider, most = Slow(InMemoryProvider()), []

    def look(source, event):
        most.append(event.seq - provider.appended[-1])
        if len(most) == 250:  # two commits a task: the run would go on for ever if nobody made it wait
            threading.Timer(0.05, provider.gate.set).start()

    with event_bus.on(TaskCompletedEvent, look):
        crew_at("anywhere", 600, provider=provider).kickoff()
    assert max(most) <= 520


def test_a_killed_run_goes_on_from_what_was_saved(location):
    class Cut(Exception):
        pass

    with pytest.raises(Cut):
        crew_at(location, 3, llm=ScriptedLLM(["one", "two", Cut()])).kickoff(run_id="r")
    llm = ScriptedLLM(["three"])
    assert crew_at(location, 3, llm=llm).kickoff(run_id="r").raw == "three"
    assert len(llm.calls) == 1
    assert Path(location).exists()
