"""Steps side by side that change the state: what is merged, and what is a conflict."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import Agent, Crew, Task, ToolCall, bound, durable, tool
from crewlite.errors import ConfigError, StateConflict, StoreError
from crewlite.events import StepStateConflictEvent
from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from crewlite.testing import EventRecorder, ScriptedLLM
from tests.cuts import RUN, cut, cut_anywhere, entries_of, values_of

state = RuntimeState.current


def side_by_side(setting, finish, *, name=lambda n: "same", retries=0):
    """Two steps at once that change one name, the one with the number `finish[0]` ending first."""
    begun, first = asyncio.Event(), asyncio.Event()

    @step(retries=retries)
    async def change(n):
        before = state().get(name(n), 0)
        if n == finish[0]:
            await begun.wait()
            first.set()
        elif not durable.scope().past:
            begun.set()
            await first.wait()
            await asyncio.sleep(0.02)
        state()[name(n)] = before + n + 1

    @flow(checkpoint=setting)
    async def both():
        state()["before"] = 0
        for future in [change.submit(n) for n in range(2)]:
            await future
        return dict(state())

    return both


def replayed(whole, setting, expected):
    """The flow, cut just before its own outcome is recorded, comes to the same: all its steps answer from the record."""
    entries = entries_of(setting)
    again = cut(entries, len(entries) - 1)
    assert whole(again).kickoff(run_id=RUN) == expected
    assert values_of(again) == values_of(setting)


def test_steps_side_by_side_merge_by_field(stored):
    whole = side_by_side(stored(), (0, 1), name=lambda n: f"n{n}").kickoff(run_id=RUN)
    assert whole == values_of(stored()) == {"before": 0, "n0": 1, "n1": 2}


@pytest.mark.parametrize("finish", [(0, 1), (1, 0)])
def test_of_a_field_that_two_steps_changed_the_later_commit_counts_and_an_event_says_so(stored, finish):
    with EventRecorder() as heard:
        result = side_by_side(stored(), finish).kickoff(run_id=RUN)
    assert result == {"before": 0, "same": finish[1] + 1}
    [event] = heard.of(StepStateConflictEvent)
    assert (event.names, event.run_id) == (("same",), RUN)
    entries = entries_of(stored())
    last = max(e.seq for e in entries if any(s["kind"] == "step" for s in e.commit.get("steps", ())))
    assert side_by_side(cut(entries, last), finish).kickoff(run_id=RUN) == result, "in whatever order it is replayed"


def test_a_conflict_is_an_error_if_that_is_wanted_and_a_retry_begins_with_what_the_other_left(stored):
    with pytest.raises(StateConflict, match="has changed 'same' of the state"):
        side_by_side(stored(on_conflict="error"), (0, 1)).kickoff(run_id="once")
    again = side_by_side(stored(on_conflict="error"), (0, 1), retries=1)
    assert again.kickoff(run_id=RUN)["same"] == 3


def test_equal_results_side_by_side_are_a_conflict(stored):
    async def add():
        n = state().get("n", 0)
        await asyncio.sleep(0.01)
        state()["n"] = n + 1

    count, retried = step(name="count")(add), step(name="retried", retries=5)(add)

    def whole(setting, count):
        @flow(name="whole", checkpoint=setting)
        async def work():
            await asyncio.gather(count(), count(), count())
            return state()["n"]

        return work

    with EventRecorder() as heard:
        assert whole(stored(), count).kickoff(run_id=RUN) == 1
    assert [event.names for event in heard.of(StepStateConflictEvent)] == [("n",), ("n",)]
    cut_anywhere(lambda setting: whole(setting, count), stored(), 1)
    with pytest.raises(StateConflict):
        whole(stored(on_conflict="error"), count).kickoff(run_id="other")
    assert whole(stored(on_conflict="error"), retried).kickoff(run_id="third") == 3


def test_a_conflict_with_a_step_that_an_earlier_life_recorded_is_one_too(stored):
    stop = [True]

    @step(retries=3)
    async def count(wait):
        n = state().get("n", 0)
        await asyncio.sleep(wait)
        if wait and stop:
            stop.clear()
            raise StoreError("here", "cut")  # which is no failure of the step
        state()["n"] = n + 1

    @flow(checkpoint=stored(on_conflict="error"))
    async def work():
        await asyncio.gather(count(0.05), count(0))
        return state()["n"]

    with pytest.raises(StoreError):
        work.kickoff(run_id=RUN)
    assert work.kickoff(run_id=RUN) == 2


def test_what_is_left_running_cannot_change_the_state_of_a_step_that_has_ended(stored):
    kept, told = [], []

    @step
    def leave():
        kept.append(state())
        state()["x"] = 1

    @flow(checkpoint=stored())
    def work():
        leave()
        try:
            kept[0]["x"] = 2
        except ConfigError as error:
            told.append(str(error))
        return dict(kept[0]), dict(state())

    assert work.kickoff(run_id=RUN) == ({"x": 1}, {"x": 1})
    assert "The state of step:leave was changed after step:leave had ended" in told[0]


def test_appends_and_keys_side_by_side_are_put_together_without_a_conflict(stored):
    @step
    async def add(n):
        await asyncio.sleep(0.01)
        state()["list"].append(n)
        state()["keys"][f"k{n}"] = n
        state()["keys"]["deep"][f"d{n}"] = n
        state().setdefault("begun", []).append(n)
        state().setdefault("mapping", {})[f"{n}"] = n

    @flow(checkpoint=stored())
    async def work():
        state().update(list=[], keys={"deep": {}})
        await asyncio.gather(*map(add, range(3)))
        return dict(state())

    with EventRecorder() as heard:
        found = work.kickoff(run_id=RUN)
    assert not heard.of(StepStateConflictEvent)
    assert sorted(found["list"]) == sorted(found["begun"]) == [0, 1, 2]
    assert found["keys"].keys() == {"deep", "k0", "k1", "k2"}
    assert found["keys"]["deep"].keys() == {"d0", "d1", "d2"}
    assert found["mapping"] == {"0": 0, "1": 1, "2": 2}
    assert values_of(stored()) == found


def test_tasks_side_by_side_hand_their_changes_to_those_that_wait_for_them(stored):
    @tool
    def note(what: str) -> str:
        """Note something."""
        state().setdefault("notes", []).append(what)
        return ", ".join(state()["notes"])

    def whole(setting):
        def reply(messages):
            return (
                "done" if messages[-1]["role"] == "tool" else ToolCall("note", {"what": messages[-1]["content"][3:4]})
            )

        agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(reply), tools=[note])
        first, second = (
            Task(name=n, description=f"Do {n}", expected_output="x", agent=agent, async_execution=True) for n in "ab"
        )
        last = Task(name="c", description="Do c", expected_output="x", agent=agent, context=[first, second])
        return Crew(tasks=[first, second, last], checkpoint=setting)

    whole(stored()).kickoff(run_id=RUN)
    found = values_of(stored())["notes"]
    assert sorted(found[:2]) == ["a", "b"] and found[2:] == ["c"]
    entries = entries_of(stored())
    for at in range(1, len(entries)):
        again = cut(entries, at)
        whole(again).kickoff(run_id=RUN)
        notes = values_of(again)["notes"]
        assert sorted(notes[:2]) == ["a", "b"] and notes[2:] == ["c"], f"cut after commit {at}"


def test_coroutines_side_by_side_write_in_the_order_in_which_their_steps_were_committed(stored):
    @step
    async def put(name, wait):
        await asyncio.sleep(wait)
        state().setdefault("log", []).append(name)
        state()[name] = name

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            async def one(names, wait):
                for name in names:
                    await put(name, wait)
                    state()["last"] = name
                    state().setdefault("bodies", []).append(name)

            await asyncio.gather(one("ab", 0.05), one("cdef", 0.02), one("g", 0.01))
            return dict(state()), list(state())

        return work

    expected = whole(stored()).kickoff(run_id=RUN)
    replayed(whole, stored(), expected)


def test_threads_side_by_side_leave_the_names_in_the_order_of_the_commits(stored):
    @step
    def put(name, wait):
        time.sleep(wait)
        state()[name] = name

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(bound(lambda n: put(f"{n}", 0.06 - 0.02 * n)), range(4)))
            return list(state())

        return work

    expected = whole(stored()).kickoff(run_id=RUN)
    for _ in range(5):
        replayed(whole, stored(), expected)


def test_a_retry_after_a_conflict_is_in_conflict_with_no_step_whose_change_it_began_with(stored):
    retried, handed = asyncio.Event(), asyncio.Event()

    @step
    async def early():
        state()["n"] = 1

    @step(retries=1)
    async def late():
        n = state().get("n", 0)
        if durable.scope().past:
            retried.set()
            await handed.wait()
        else:
            await asyncio.sleep(0.05)
        state()["n"] = n + 1

    @flow(checkpoint=stored(on_conflict="error"))
    async def work():
        first, second = early.submit(), late.submit()
        await retried.wait()
        await first
        handed.set()
        await second
        return state()["n"]

    assert work.kickoff(run_id=RUN) == 2
