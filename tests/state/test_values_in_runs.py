"""Values that handlers keep in a run: recorded with its commits, back when it is resumed or forked."""

from __future__ import annotations

import asyncio
import copy
import threading
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, Crew, History, LLMReply, Task, event_bus
from crewlite.errors import NotCodable, StoreError
from crewlite.events import CheckpointFailedEvent, CrewKickoffCompletedEvent, LLMCallCompletedEvent, TaskCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import provider_for
from crewlite.testing import EventRecorder, ScriptedLLM
from crewlite.usage import Usage
from tests import children


def crew_of(count, llm, setting, **fields):
    agent = Agent(role="Worker", goal="work", llm=llm)
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent) for n in range(count)]
    return Crew(tasks=tasks, checkpoint=setting, **fields)


def recorded(setting, branch="main"):
    """The values at the head of a branch."""
    provider = provider_for(setting.location, setting.provider)
    store = provider.open(setting.location)
    try:
        return find_lineage(store, "r", branch).record().values
    finally:
        store.close()


def test_values_set_in_handlers_are_in_later_checkpoints_and_in_a_resumed_run(on_disk):
    seen = []

    @event_bus.on(TaskCompletedEvent)
    def note(source, event, state):
        seen.append(copy.deepcopy(dict(state)))
        state.setdefault("done", []).append(event.address)

    crew = crew_of(3, ScriptedLLM(["a", "b", RuntimeError("cut"), "c"]), on_disk())
    with pytest.raises(RuntimeError):
        crew.kickoff(run_id="r")
    crew.kickoff(run_id="r")
    assert seen == [{}, {"done": ["task:t0"]}, {"done": ["task:t0", "task:t1"]}]
    with History(on_disk().location) as history:
        checkpoints = history.run("r").checkpoints()
    assert [checkpoint.values for checkpoint in checkpoints] == [
        {},
        {"done": ["task:t0"]},
        {"done": ["task:t0", "task:t1"]},
    ]
    assert [checkpoint.versions for checkpoint in checkpoints] == [{}, {"done": 1}, {"done": 2}]
    assert [checkpoint.version for checkpoint in checkpoints] == [1, 2, 3]
    assert recorded(on_disk()) == {"done": ["task:t0", "task:t1", "task:t2"]}, (
        "what was set last is recorded when the run ends"
    )


def test_a_fork_of_a_run_has_the_values_of_its_base(stored):
    setting = stored()

    @event_bus.on(TaskCompletedEvent)
    def note(source, event, state):
        state["last"] = event.address

    crew = crew_of(3, ScriptedLLM(lambda messages: "x"), setting)
    crew.kickoff(run_id="r")
    with History(setting.location, setting.provider) as history:
        second = history.run("r").checkpoints()[1]
        history.fork(second, branch="b")
    assert recorded(setting, "b") == {"last": "task:t0"}
    crew.kickoff(from_checkpoint=CheckpointConfig(restore_from="r/b", **_where(setting)))
    with History(setting.location, setting.provider) as history:
        assert history.checkpoint("r/b").values == {"last": "task:t0"}, "handlers hear once, and that was in the first"
    assert recorded(setting, "b") == {"last": "task:t2"}


def _where(setting):
    return {"location": setting.location, "provider": setting.provider}


def test_snapshots_restores_and_rollbacks_in_a_handler(stored):
    setting, made = stored(), {}

    @event_bus.on(LLMCallCompletedEvent)
    def early(source, event, state):
        state["heard"] = state.get("heard", 0) + 1

    @event_bus.on(TaskCompletedEvent)
    async def note(source, event, state):
        if event.address == "task:t0":
            made["first"] = await state.asnapshot(label="first")
        elif event.address == "task:t1":
            with pytest.raises(ValueError), state.rollback_on_error():
                state["heard"] = "lost"
                raise ValueError
            state.restore("@label:first")
            state.add_usage(prompt_tokens=1000)
            made["usage"] = state.usage.prompt_tokens
            made["second"] = state.snapshot()
            made["listed"] = state.checkpoints()

    crew = crew_of(2, ScriptedLLM([LLMReply(text="x", usage=Usage(prompt_tokens=1, requests=1))] * 2), setting)
    crew.kickoff(run_id="r")
    first, second = made["first"], made["second"]
    assert (first.values, second.values) == ({"heard": first.values["heard"]}, first.values)
    assert second.parent_id == first.id
    assert made["listed"][-1] == second
    assert made["usage"] >= 1000
    assert second.usage.prompt_tokens >= 1000
    with History(setting.location, setting.provider) as history:
        assert history.run("r").usage.prompt_tokens == 1002


def test_a_folded_run_has_its_values_and_goes_on_with_them(on_disk):
    @event_bus.on(LLMCallCompletedEvent)
    def count(source, event, state):
        state["calls"] = state.get("calls", 0) + 1
        state["last"] = event.address

    llm = ScriptedLLM([*"abcdefgh", RuntimeError("cut"), *"ij"])
    crew = crew_of(10, llm, on_disk())
    with pytest.raises(RuntimeError):
        crew.kickoff(run_id="r")
    with History(on_disk().location) as history:
        was = history.checkpoint("r")
        assert history.prune(keep_last=1).freed > 0
        newest = history.checkpoint("r")
        assert (newest.id, newest.values, newest.version) == (was.id, was.values, 8)
        assert newest.versions == was.versions == {"calls": 8, "last": 8}
    crew.kickoff(run_id="r")
    with History(on_disk().location) as history:
        assert history.checkpoint("r").values == {"calls": 10, "last": "task:t9/llm#1"}
        assert history.checkpoint("r").version == 10


def test_a_run_without_a_store_has_values_and_snapshots():
    made = []

    @event_bus.on(TaskCompletedEvent)
    def note(source, event, state):
        state["n"] = state.get("n", 0) + 1
        made.append(state.snapshot())
        if event.address == "task:t1":
            state.restore(1)
            made.append(state.snapshot())
            made.append(state.latest)

    crew_of(2, ScriptedLLM(lambda messages: "x"), None).kickoff()
    assert [(one.version, one.values) for one in made] == [(1, {"n": 1}), (2, {"n": 2}), (3, {"n": 1}), (3, {"n": 1})]


def test_a_value_that_cannot_be_recorded_degrades_a_run_and_is_told_once(stored):
    recorder = EventRecorder()

    @event_bus.on(LLMCallCompletedEvent)
    def note(source, event, state):
        state["good"] = event.address
        state["bad"] = threading.Lock()

    with recorder:
        result = crew_of(3, ScriptedLLM(lambda messages: "x"), stored()).kickoff(run_id="r")
    assert result.durability == "degraded"
    failed = recorder.of(CheckpointFailedEvent)
    assert [event.error for event in failed] == [failed[0].error]
    assert "state['bad'] is a lock" in failed[0].error
    with History(stored().location, stored().provider) as history:
        assert history.checkpoint("r").values == {"good": "task:t2/llm#1"}


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_value_that_cannot_be_recorded_stops_a_run_that_wants_it_so(stored, durability):
    @event_bus.on(LLMCallCompletedEvent)
    def note(source, event, state):
        state["bad"] = threading.Lock()

    with pytest.raises(StoreError, match=r"a save failed: state\['bad'\] is a lock"):
        crew_of(3, ScriptedLLM(lambda messages: "x"), stored(on_save_error="raise", durability=durability)).kickoff(
            run_id="r"
        )


@dataclass
class Moving:
    """A value that another thread changes while it is looked at, the first `left` times."""

    left: int

    def __getattribute__(self, name):
        left = object.__getattribute__(self, "left")
        if name == "left" and left:
            object.__setattr__(self, "left", left - 1)
            raise RuntimeError("dictionary changed size during iteration")
        return object.__getattribute__(self, name)


def test_a_value_that_another_thread_is_changing_costs_no_outcome(stored):
    @event_bus.on(LLMCallCompletedEvent)
    def note(source, event, state):
        state["moving"] = Moving(2)

    setting = stored()
    result = crew_of(2, ScriptedLLM(lambda messages: "x"), setting).kickoff(run_id="r")
    assert result.durability == "sync"
    with History(setting.location, setting.provider) as history:
        assert history.checkpoint("r").values == {"moving": Moving(0)}
    with RuntimeState.open("bag") as state:
        state["moving"] = Moving(99)
        with pytest.raises(NotCodable, match="another thread changes it all the time"):
            state.snapshot()


def test_what_the_last_handler_sets_is_recorded(stored):
    setting = stored()

    @event_bus.on(CrewKickoffCompletedEvent)
    def note(source, event, state):
        state["ended"] = True

    crew = crew_of(1, ScriptedLLM(["x"]), setting)
    crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r").raw == "x"
    with History(setting.location, setting.provider) as history:
        assert history.run("r").status == "finished"
        assert history.run("r").values == {"ended": True}
    assert recorded(setting) == {"ended": True}


def test_a_run_without_values_has_none(stored):
    setting = stored()
    crew_of(2, ScriptedLLM(lambda messages: "x"), setting).kickoff(run_id="r")
    with History(setting.location, setting.provider) as history:
        checkpoints = history.run("r").checkpoints()
        assert [(one.values, one.versions) for one in checkpoints] == [({}, {}), ({}, {})]
    store = setting.provider.open(setting.location)
    assert not any("values" in entry.commit for entry in store.read("r", "main"))
    store.close()


def test_a_value_whose_class_waits_for_a_neighbour_as_it_is_decoded_does_not_stop_the_run():
    programs, taken, decoding, seen = threading.Lock(), threading.Event(), threading.Event(), []

    class Document(BaseModel):
        text: str

        def model_post_init(self, context):
            if seen:
                decoding.set()
                assert taken.wait(children.PATIENCE)
                with programs:
                    seen.append("decoded")

    @step
    def reads_it():
        return RuntimeState.current()["document"].text

    @step
    def holds_the_lock():
        assert decoding.wait(children.PATIENCE)
        with programs:
            taken.set()
            return RuntimeState.current()["number"]

    @flow
    async def main():
        state = RuntimeState.current()
        state["document"], state["number"] = Document(text="x"), 1
        seen.append("made")
        return await asyncio.gather(asyncio.to_thread(reads_it), asyncio.to_thread(holds_the_lock))

    assert main.kickoff() == ["x", 1]
    assert seen == ["made", "decoded"]
