"""Manual checkpoints: the run as it was at the event of their handler, labelled or not, and never silently missing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from crewlite import CheckpointConfig, event_bus
from crewlite.errors import StoreError
from crewlite.events import LLMCallCompletedEvent, TaskCompletedEvent
from crewlite.state import InMemoryProvider
from tests.crew.listed import checkpoints


def test_a_manual_checkpoint_needs_no_configuration(make_crew):
    paths = []

    @event_bus.on(LLMCallCompletedEvent)
    def on_llm_done(source, event, state):
        paths.append(state.checkpoint("./my_checkpoints"))

    make_crew(["a", "b", "c"]).kickoff()
    assert len(paths) == 3
    assert all(Path(path).parent == Path("my_checkpoints").absolute() for path in paths)
    assert [checkpoint.ref for checkpoint in checkpoints(CheckpointConfig(location="./my_checkpoints"))] == paths


def test_an_async_manual_checkpoint_is_bound_to_its_event_however_late(make_crew, on_disk):
    refs = []

    @event_bus.on(LLMCallCompletedEvent)
    async def later(source, event, state):
        await asyncio.sleep(0.02)
        refs.append((event.seq, await state.acheckpoint()))

    make_crew(["a", "b", "c"], checkpoint=on_disk(on_events=["crew_kickoff_completed"])).kickoff()
    found = {checkpoint.ref: checkpoint for checkpoint in checkpoints(on_disk())}
    assert [found[ref].seq for _, ref in refs] == [seq for seq, _ in refs]
    assert [len(found[ref].tasks) for _, ref in refs] == [0, 1, 2]


class HeldUp:
    """Keeps commits in a dict, and holds up the one that says that task t0 is done until `go` is set."""

    name = "held up"

    def __init__(self):
        self.inner, self.held, self.go = InMemoryProvider(), threading.Event(), threading.Event()

    def open(self, location):
        provider, store = self, self.inner.open(location)

        class Store:
            def append(self, commits):
                entries = [entry for commit in commits for entry in commit.entries]
                if any(step["address"] == "task:t0" for entry in entries for step in entry.commit.get("steps", ())):
                    provider.held.set()
                    assert provider.go.wait(30)
                store.append(commits)

            def __getattr__(self, name):
                return getattr(store, name)

        return Store()


def test_a_handler_is_given_the_run_as_it_was_at_its_event_though_a_handler_before_it_commits_meanwhile(make_crew):
    provider, moments = HeldUp(), {}

    @event_bus.on(LLMCallCompletedEvent)
    async def late(source, event, state):
        if event.address == "task:t0/llm#1":
            await asyncio.to_thread(provider.held.wait, 30)
            naming = asyncio.ensure_future(state.acheckpoint())
            await asyncio.sleep(0.05)
            provider.go.set()
            await naming

    @event_bus.on(TaskCompletedEvent)
    def done(source, event, state):
        moments[event.address] = (event.seq, state.seq, state.checkpoint())

    config = CheckpointConfig(location="anywhere", provider=provider, on_events=["crew_kickoff_completed"])
    make_crew(["a", "b"], count=2, checkpoint=config).kickoff()
    found = {checkpoint.ref: checkpoint.seq for checkpoint in checkpoints(config)}
    assert len(moments) == 2
    assert all(of_event == of_state == found[ref] for of_event, of_state, ref in moments.values())


def test_a_manual_checkpoint_can_be_labelled_and_resumed_by_its_label(make_crew, on_disk):
    class Stop(Exception):
        pass

    @event_bus.on(TaskCompletedEvent)
    def mark(source, event, state):
        if event.task_name == "t0":
            state.checkpoint(label="good", metadata={"score": 7})

    crew = make_crew(["a", Stop(), "b", "c"], checkpoint=on_disk(on_events=["crew_kickoff_completed"]))
    with pytest.raises(Stop):
        crew.kickoff()
    assert [(checkpoint.label, checkpoint.metadata) for checkpoint in checkpoints(on_disk())] == [
        ("good", {"score": 7})
    ]
    assert crew.kickoff(from_checkpoint="main@label:good").raw == "c"


def test_a_manual_checkpoint_raises_when_it_cannot_be_saved(make_crew, tmp_path):
    errors = []

    @event_bus.on(LLMCallCompletedEvent)
    def on_llm_done(source, event, state):
        try:
            state.checkpoint(tmp_path / "file")
        except StoreError as error:
            errors.append(str(error))
        with pytest.raises(StoreError, match="say where"):
            state.checkpoint()

    (tmp_path / "file").write_text("x")
    make_crew(["a"], count=1).kickoff()
    assert "wants a directory" in errors[0]


def test_one_run_has_one_store_also_by_hand(make_crew):
    problems = []

    @event_bus.on(TaskCompletedEvent)
    def elsewhere(source, event, state):
        try:
            state.checkpoint("./other")
        except StoreError as error:
            problems.append(str(error))

    make_crew(["a"], count=1, checkpoint=True).kickoff()
    assert "a run has one store" in problems[0]
