"""Of any flow and any changes, what a preview says is reused does not run, and what it says runs does."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings, strategies as st

from crewlite import CheckpointConfig
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from tests.flow.previewed import did, ran, verdicts


class Life:
    number = 1


@step
def node(kind, *given):
    did()
    moving = Life.number if kind % 2 else 0
    return [(kind + moving + sum(sum(one) if isinstance(one, list) else one for one in given)) % 9, kind]


def grown(plan, inputs):
    """Steps that are given inputs, numbers, or what steps before them returned, as it is."""
    made = []
    for kind, sources in plan:
        of = [made[n % len(made)] if made and n >= 0 else inputs[n % len(inputs)] for n in sources]
        made.append(node(kind, *of))
    return made


plans = st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(-3, 8), max_size=3)), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(
    plan=plans,
    inputs=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    others=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    edited=st.sets(st.integers(0, 8), max_size=2),
    again=st.sets(st.integers(0, 8), max_size=2),
)
def test_what_it_says_is_reused_does_not_run_and_what_it_says_runs_does(plan, inputs, others, edited, again):
    places = ["step:node", *(f"step:node#{n}" for n in range(2, len(plan) + 1))]

    @flow(checkpoint=CheckpointConfig(location="x", provider=InMemoryProvider()))
    def tree(plan, inputs):
        return grown(plan, inputs)

    Life.number = 1
    tree.kickoff(plan, inputs, run_id="r")
    edits = {places[n]: [n, n] for n in edited if n < len(places)}
    rerun = [places[n] for n in again if n < len(places) and places[n] not in edits]
    forked = tree.fork("r", branch="x", edits=edits, rerun=rerun, inputs={"inputs": others})
    Life.number = 2
    ran.clear()
    seen = verdicts(forked.preview())
    assert ran == []
    forked.kickoff()
    assert list(seen) == places
    assert Counter(ran).keys() <= {at for at in places if seen[at] in ("runs", "may run")}
    assert {at for at in places if seen[at] == "runs"} <= set(ran)
