"""Random flows come to the same end wherever they are cut, and repeat nothing that is recorded."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from crewlite import CheckpointConfig, History
from crewlite.errors import Suspended, TooManyCalls
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.machine import Machine
from crewlite.state import InMemoryProvider
from tests.class_flows.graphs import NONE, World, flow_of, plans
from tests.cuts import RUN, cut, entries_of

_QUICK = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]


def _fired(graph: Graph, plan, pick) -> Counter | None:
    """How often each method starts in each round; `pick` chooses which of those at work ends next."""
    machine, counts = Machine(graph), Counter()
    at_work = machine.begin()
    fired = Counter((one.method, one.round) for one in at_work)
    while at_work:
        one = at_work.pop(pick(len(at_work)))
        counts[one.method] += 1
        if sum(counts.values()) > 60:
            return None
        turns = plan.turns.get(int(one.method[1:]))
        label = None
        if turns is not None:  # what it returns follows from the round, not from the order
            turn = sum(one.round)
            label = turns[turn % len(turns)] if turn < 4 else None
        more = machine.ended(one, label)
        fired.update((each.method, each.round) for each in more)
        at_work += more
    return fired


@settings(max_examples=80, deadline=None, suppress_health_check=_QUICK)
@given(plans(most=8), st.integers(0, 2**32))
def test_how_often_a_method_starts_does_not_depend_on_which_is_faster(plan, seed):
    made = flow_of(plan, World())
    assume(made is not None)
    expected = _fired(made.graph, plan, lambda count: 0)
    assume(expected is not None)
    chance = random.Random(seed)
    for _ in range(3):
        assert _fired(made.graph, plan, chance.randrange) == expected


def _run(plan, world: World, setting: CheckpointConfig):
    """What the flow comes to; a person answers whatever it asks, and only once."""
    flow, answers = flow_of(plan, world)(checkpoint=setting), {}
    while True:
        try:
            result = flow.kickoff(run_id=RUN, answers=answers)
        except Suspended as waits:
            assert not world.asked & waits.waiting.keys()
            world.asked |= waits.waiting.keys()
            answers = {at: plan.label(at) or NONE for at in waits.waiting}
            continue
        said = [(one.method_name, one.outcome) for one in flow.human_feedback_history]
        return result, dict(flow.state), sorted(said)


def _setting() -> CheckpointConfig:
    return CheckpointConfig(location="here", provider=InMemoryProvider())


def _recorded(setting: CheckpointConfig) -> set[str]:
    with History(setting.location, setting.provider) as history:
        return {step.address for step in history.run(RUN).steps if step.status == "finished"}


@settings(max_examples=15, deadline=None, suppress_health_check=_QUICK)
@given(plans())
def test_a_flow_cut_at_any_commit_comes_to_the_end_that_it_would_have_had(plan):
    world, whole = World(), _setting()
    assume(flow_of(plan, world) is not None)
    try:
        expected = _run(plan, world, whole)
    except TooManyCalls:
        assume(False)
    assert set(world.done.values()) <= {1}
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        again, later = cut(entries, at), World()
        before = _recorded(again)
        assert _run(plan, later, again) == expected
        assert later.done.keys() == world.done.keys() - before
        assert not later.asked & before
        assert set(later.done.values()) <= {1}


@settings(max_examples=15, deadline=None, suppress_health_check=_QUICK)
@given(plans(), st.randoms(use_true_random=False))
def test_a_flow_whose_methods_fail_goes_on_with_them_alone(plan, chance):
    world = World()
    assume(flow_of(plan, world) is not None)
    try:
        expected = _run(plan, world, _setting())
    except TooManyCalls:
        assume(False)
    failing = frozenset(chance.sample(sorted(world.done), min(2, len(world.done))))
    setting, first, second = _setting(), World(failing=failing), World()
    with pytest.raises(ConnectionError) as failure:
        _run(plan, first, setting)
    assert any(address in str(failure.value) for address in failing)
    assert not _recorded(setting) & failing
    assert _run(plan, second, setting) == expected
    assert first.done + second.done == world.done
