"""What handlers of events change in the state, and what is recorded of it."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, durable, event_bus
from crewlite.errors import StoreError
from crewlite.events import FlowStartedEvent, StepCompletedEvent, StepFailedEvent, StepStartedEvent, TaskCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of, values_of

state = RuntimeState.current


def test_a_handler_changes_the_state_of_the_step_its_event_belongs_to(stored, ran):
    stop = [True]

    @event_bus.on(StepStartedEvent)
    def begun(source, event, state):
        state["begun"] = [*state.get("begun", []), event.address]

    @event_bus.on(StepCompletedEvent)
    def ended(source, event, state):
        state["ended"] = [*state.get("ended", []), event.address]

    @step
    def act(n):
        ran.append(n)
        return list(state().get("ended", []))

    @flow(checkpoint=stored())
    def work():
        seen = [act(n) for n in range(2)]
        after = dict(state())
        act(2)
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        return seen, after

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == (
        [[], ["step:act"]],
        {"begun": ["step:act", "step:act#2"], "ended": ["step:act", "step:act#2"]},
    )
    assert ran == [0, 1, 2]


def test_what_an_async_handler_sets_later_is_recorded_too(stored):
    @event_bus.on(TaskCompletedEvent)
    async def note(source, event, state):
        notes = state.setdefault("notes", [])
        await asyncio.sleep(0.01)
        notes.append(event.address)
        state["last"] = event.address

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "x"))
    Crew(tasks=[Task(description="Do it", expected_output="x", agent=agent)], checkpoint=stored()).kickoff(run_id=RUN)
    assert values_of(stored()) == {"notes": ["task#1"], "last": "task#1"}


def test_a_run_that_never_asks_for_the_state_records_nothing_of_it(stored):
    @step
    def act(n):
        return n

    @flow(checkpoint=stored())
    def work():
        return [act(n) for n in range(3)]

    work.kickoff(run_id=RUN)
    for entry in entries_of(stored()):
        assert not {"values", "late"} & entry.commit.keys()
        assert not any("state" in one or "order" in one for one in entry.commit.get("steps", ()))


def test_what_a_handler_sets_at_the_start_of_the_run_is_there_for_its_steps_and_for_every_later_life(stored):
    @event_bus.on(FlowStartedEvent)
    def begun(source, event, state):
        state["lives"] = state.get("lives", 0) + 1

    stop = [True]

    @step
    def look():
        return state()["lives"]

    @flow(checkpoint=stored())
    def work():
        seen = look()
        state()["seen"] = state()["lives"]
        if stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the flow
        return seen, dict(state())

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == (1, {"lives": 1, "seen": 1}), "as in a run that nothing has cut"
    assert values_of(stored()) == {"lives": 1, "seen": 1}


def test_what_a_handler_sets_at_the_start_of_a_step_holds_for_all_its_attempts(stored):
    @event_bus.on(StepStartedEvent)
    def begun(source, event, state):
        state["begun"] = state.get("begun", 0) + 1

    @step(retries=2)
    def act():
        state()["tries"] = len(durable.scope().past)
        if len(durable.scope().past) < 2:
            raise ValueError
        return dict(state())

    @flow(checkpoint=stored())
    def work():
        return act(), dict(state())

    assert work.kickoff(run_id=RUN) == ({"begun": 1, "tries": 2}, {"begun": 1, "tries": 2})


def test_what_a_handler_hears_of_a_failure_is_kept_until_the_step_is_answered(stored):
    @event_bus.on(StepFailedEvent)
    def failed(source, event, state):
        state["failures"] = state.get("failures", 0) + 1

    stop = [True]

    @step
    def act():
        if stop:
            raise ValueError("once")

    @flow(checkpoint=stored())
    def work():
        act()
        return dict(state())

    with pytest.raises(ValueError):
        work.kickoff(run_id=RUN)
    assert values_of(stored()) == {"failures": 1}
    stop.clear()
    assert work.kickoff(run_id=RUN) == {"failures": 1}
    assert values_of(stored()) == {"failures": 1}


def test_checkpoints_show_what_the_code_of_the_run_saw_then_in_whatever_life_they_were_made(stored):
    @step
    def put(n):
        state().setdefault("log", []).append(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            for n in range(3):
                state()["own"] = n
                state().setdefault("body", []).append(n)
                put(n)

        return work

    def shown(setting):
        with History(setting.location, setting.provider) as history:
            return [checkpoint.values for checkpoint in history.run(RUN).checkpoints()]

    setting = stored(on_events=["step_completed"])
    whole(setting).kickoff(run_id=RUN)
    expected = [{"own": n, "body": [*range(n + 1)], "log": [*range(n + 1)]} for n in range(3)]
    assert shown(setting) == expected
    for at in range(1, len(entries_of(setting))):
        again = cut(entries_of(setting), at).model_copy(update={"on_events": ("step_completed",)})
        whole(again).kickoff(run_id=RUN)
        assert shown(again) == expected, f"cut after commit {at}"


def test_handlers_of_steps_side_by_side_each_see_what_the_others_have_set(stored):
    @event_bus.on(StepCompletedEvent)
    def count(source, event, state):
        state["finished"] = state.get("finished", 0) + 1

    @step
    def act(n):
        return n

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            act.map(range(5)).result()
            return state()["finished"]

        return work

    assert whole(stored()).kickoff(run_id=RUN) == 5
    assert whole(stored()).kickoff(run_id=RUN) == 5


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=lambda order: "".join(map(str, order)))
def test_handlers_count_the_steps_in_whatever_order_they_end(order):
    """The results are handed over in the order of the requests, so that some are behind others that ended later."""

    @event_bus.on(StepCompletedEvent)
    def count(source, event, state):
        saw.append(state.get("finished", 0))
        state["finished"] = saw[-1] + 1
        state.setdefault("log", []).append(event.address)
        if following := gates.get(event.address):
            following.set()

    @step
    async def act(n):
        before = order.index(n) - 1
        if before >= 0 and (gate := gates.get(at[order[before]])):
            await gate.wait()
        return n

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            for each in list(map(act.submit, range(4))):
                await each
            return state()["finished"], list(state()["log"])

        return work

    at = ["step:act", "step:act#2", "step:act#3", "step:act#4"]
    gates = {address: asyncio.Event() for address in at}
    saw, setting = [], CheckpointConfig(location="here", provider=InMemoryProvider())
    log = [at[n] for n in order]
    assert whole(setting).kickoff(run_id=RUN) == (4, log)
    assert saw == [0, 1, 2, 3]
    assert values_of(setting) == {"finished": 4, "log": log}
    gates, entries = {}, entries_of(setting)
    for commit in range(1, len(entries)):
        again = cut(entries, commit)
        finished, log = whole(again).kickoff(run_id=RUN)
        assert finished == len({*log}) >= 3, (
            f"cut after commit {commit}: of one step the handler's change is not recorded yet"
        )
        assert values_of(again) == {"finished": finished, "log": log}, f"cut after commit {commit}"
