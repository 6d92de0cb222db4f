"""Random trees of steps, cut at every commit: the resumed flow ends as the uninterrupted one, and does nothing twice."""

from __future__ import annotations

from collections import Counter

import grove
import pytest
from hypothesis import given, settings, strategies as st

from crewlite import CheckpointConfig, durable
from crewlite.state import InMemoryProvider
from crewlite.state.providers.base import Commit
from crewlite.state.record import Record

RUN = "tree"

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


def journal(provider):
    return provider.open("trees").read(RUN, "main")


def cut(entries, at):
    """A provider that holds the run as it was after `at` commits."""
    provider = InMemoryProvider()
    provider.open("trees").append([Commit(RUN, "main", 0, "", tuple(entries[:at]))])
    return provider


def on_record(entries):
    """The steps that have an outcome, and how often each failed."""
    steps = [step for entry in entries for step in entry.facts.get("steps", ())]
    return {step["address"] for step in steps if "value" in step}, Counter(s["address"] for s in steps if "error" in s)


def grown(tree, provider, *, blocking):
    """What the flow returns, and how often each of its steps ran."""
    runs = Counter()
    grove.outside = lambda: runs.update([durable.scope().address])
    config = CheckpointConfig(location="trees", provider=provider)
    return grove.flow_of(config, blocking=blocking).kickoff(tree, run_id=RUN), runs


def holds(tree, blocking):
    """The promise, at every commit of this tree. Returns how often it was cut."""
    whole = InMemoryProvider()
    result, runs = grown(tree, whole, blocking=blocking)
    entries = journal(whole)
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
@settings(max_examples=60, deadline=None)
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
