"""When the changes of a submitted step come in: where its result is taken, in the order of the commits."""

from __future__ import annotations

import asyncio

from crewlite.flow import flow, step
from crewlite.state import RuntimeState
from tests.cuts import RUN, cut_anywhere, values_of

state = RuntimeState.current


def test_what_a_submitted_step_changed_comes_in_where_its_result_is_taken(stored):
    @step
    def change():
        state()["x"] = "step"

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            handle = change.submit()
            state()["x"] = "flow"
            before = await asyncio.sleep(0.01) or state()["x"]
            await handle
            return before, state()["x"]

        return work

    assert whole(stored()).kickoff(run_id=RUN) == ("flow", "step")
    assert values_of(stored()) == {"x": "step"}
    cut_anywhere(whole, stored(), ("flow", "step"))


def test_in_a_thread_a_submitted_step_begins_with_what_held_when_it_was_submitted(stored):
    @step
    def look():
        return dict(state())

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            seen = []
            for n in range(20):
                state()["n"] = n
                handle = look.submit()
                state()["n"] = -1
                seen.append(handle.result()["n"])
            return seen

        return work

    assert whole(stored()).kickoff(run_id=RUN) == list(range(20))


def test_a_handle_that_nobody_awaits_hands_over_its_changes_at_the_end_of_the_step_around_it(stored):
    @step
    async def put(name):
        state()[name] = True

    @step
    async def outer():
        for name in "ab":
            put.submit(name)
        return list(state())

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            return await outer(), list(state())

        return work

    assert whole(stored()).kickoff(run_id=RUN) == ([], ["a", "b"])
    cut_anywhere(whole, stored(), ([], ["a", "b"]))


def test_a_handle_that_another_step_awaits_hands_its_changes_to_the_code_that_began_it(stored):
    kept = {}

    @step
    def put(n):
        state()["x"] = n

    @step
    def waits():
        kept["handle"].result()
        return dict(state())

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        def work():
            kept["handle"] = put.submit(1)
            state()["x"] = "own"
            seen = waits(), dict(state())
            kept["handle"].result()
            return *seen, dict(state())

        return work

    expected = ({"x": "own"}, {"x": "own"}, {"x": 1})
    assert whole(stored()).kickoff(run_id=RUN) == expected
    cut_anywhere(whole, stored(), expected)


def test_the_later_commit_counts_in_whatever_order_results_are_taken(stored):
    @step
    async def put(n, wait):
        await asyncio.sleep(wait)
        state()["x"] = n
        state().setdefault("log", []).append(n)

    def whole(setting):
        @flow(name="whole", checkpoint=setting)
        async def work():
            state()["log"] = []
            late, early = put.submit("late", 0.05), put.submit("early", 0)
            await late
            between = dict(state())
            await early
            return between, dict(state())

        return work

    expected = {"log": ["late"], "x": "late"}, {"log": ["early", "late"], "x": "late"}
    assert whole(stored()).kickoff(run_id=RUN) == expected
    assert values_of(stored()) == {"log": ["early", "late"], "x": "late"}
    cut_anywhere(whole, stored(), expected, after=4)
