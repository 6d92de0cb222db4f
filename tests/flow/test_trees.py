"""Random trees of steps, cut at every commit: the resumed flow ends as the uninterrupted one, and does nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter

import grove
import pytest
from hypothesis import given, settings, strategies as st

from crewlite import CheckpointConfig, durable
from crewlite.errors import InDoubt
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.state.format.record import Record
from tests.cuts import RUN, cut, entries_of

values = st.integers(0, 9)
trees = st.recursive(
    st.tuples(st.sampled_from(["leaf", "blocking_leaf"]), values, st.sampled_from([0, 0, 0, 1, 2]))
    | st.tuples(st.just("mapped"), st.lists(values, min_size=1, max_size=4)),
    lambda inner: (
        st.tuples(st.sampled_from(["each", "blocking", "side"]), st.lists(inner, min_size=1, max_size=3))
        | st.tuples(st.just("tolerant"), inner | st.tuples(st.just("leaf"), values, st.just(9)))
    ),
    max_leaves=6,
)


def on_record(entries):
    """The steps that have an outcome, and how often each failed."""
    steps = [step for entry in entries for step in entry.commit.get("steps", ())]
    return {step["address"] for step in steps if "value" in step}, Counter(s["address"] for s in steps if "error" in s)


def in_memory(**fields):
    return CheckpointConfig(location="trees", provider=InMemoryProvider(), **fields)


def grown(tree, config, *, blocking):
    """What the flow returns, and how often each of its steps ran."""
    runs = Counter()
    grove.outside = lambda: runs.update([durable.scope().address])
    return grove.flow_of(config, blocking=blocking).kickoff(tree, run_id=RUN), runs


def holds(tree, blocking):
    """The promise, at every commit of this tree. Returns how often it was cut."""
    whole = in_memory()
    result, runs = grown(tree, whole, blocking=blocking)
    entries = entries_of(whole)
    ended, _ = on_record(entries)
    for at in range(1, len(entries)):
        recorded, tried = on_record(entries[:at])
        again, made = grown(tree, cut(entries, at), blocking=blocking)
        assert again == result
        assert not recorded & made.keys(), "a recorded step ran again"
        assert not Record.of(entries[:at]).failures.keys() & made.keys(), "a step that had failed ran again"
        left = ended - recorded
        assert {a: made[a] for a in left} == {a: runs[a] - tried[a] for a in left}, "tries were lost, or made twice"
    return len(entries) - 1


@given(tree=trees, blocking=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_tree_that_is_cut_after_any_commit_ends_as_if_it_had_not_been(tree, blocking):
    holds(tree, blocking)


@pytest.mark.soak
def test_thousands_of_trees():
    cuts = []

    @given(tree=trees, blocking=st.booleans())
    @settings(max_examples=3000, deadline=None, database=None)
    def hold(tree, blocking):
        cuts.append(holds(tree, blocking))

    hold()
    print({"trees": len(cuts), "cuts": sum(cuts)})


@pytest.mark.parametrize("on_events", [("step_started",), ("step_completed",)], ids=str)
@pytest.mark.parametrize("effect", ["idempotent", "once"])
def test_what_was_asked_for_and_not_yet_begun_when_it_was_cut_is_no_new_step(effect, on_events):
    async def answer(n):
        await asyncio.sleep(0.01 * n)
        return n

    first, second = step(name="first", effect=effect)(answer), step(name="second")(answer)

    def pipeline(config):
        @flow(checkpoint=config)
        def side_by_side():
            return [future.result() for future in (first.submit(2), second.submit(0))]

        return side_by_side

    whole = in_memory(on_events=on_events)
    assert pipeline(whole).kickoff(run_id=RUN) == [2, 0]
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        try:
            assert pipeline(cut(entries, at, on_events=on_events)).kickoff(run_id=RUN) == [2, 0]
        except InDoubt:
            assert effect == "once"
