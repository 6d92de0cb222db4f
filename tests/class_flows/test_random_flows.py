"""Random flows come to the same end wherever they are cut, and repeat nothing that is recorded."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from crewlite import CheckpointConfig, History
from crewlite.errors import TooManyCalls
from crewlite.flow import Flow
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.machine import Machine
from crewlite.state import InMemoryProvider
from crewlite.state.format.record import Record
from tests.class_flows.graphs import World, causes, flow_of, lived, plans
from tests.cuts import RUN, cut, entries_of
from tests.soak import in_time

_QUICK = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
_EITHER = st.booleans().flatmap(lambda nested: plans(nested=nested))


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


@settings(max_examples=50, deadline=None, suppress_health_check=_QUICK)
@given(plans(most=8), st.integers(0, 2**32))
def test_how_often_a_method_starts_does_not_depend_on_which_is_faster(plan, seed):
    made = flow_of(plan, World())
    assume(made is not None)
    expected = _fired(made.graph, plan, lambda count: 0)
    assume(expected is not None)
    chance = random.Random(seed)
    for _ in range(3):
        assert _fired(made.graph, plan, chance.randrange) == expected


def _trace(graph: Graph, plan) -> list | None:
    """What starts which method in which round, and why, if methods end in the order of their names."""
    machine, ended = Machine(graph), Counter()
    at_work = machine.begin()
    found = [sorted((one.method, one.round) for one in at_work)]
    while at_work:
        one = min(at_work, key=lambda each: (each.method, each.round))
        at_work.remove(one)
        turns, turn = plan.turns.get(int(one.method[1:]), ()), ended[one.method]
        ended[one.method] += 1
        more = machine.ended(one, turns[turn] if turn < len(turns) else None)
        behind = {each: sorted((by.method, by.round) for by in each.behind) for each in more}
        found.append((one.method, sorted((each.method, each.round, each.label, behind[each]) for each in more)))
        if len(found) > 60:
            return None
        at_work += more
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=_QUICK)
@given(plans(most=8), st.randoms(use_true_random=False))
def test_what_starts_which_method_does_not_depend_on_the_order_of_the_class(plan, chance):
    assume(made := flow_of(plan, World()))
    expected = _trace(made.graph, plan)
    for _ in range(3):
        again = flow_of(_reordered(plan, chance), World())
        assert again.graph.cycles == made.graph.cycles
        assert _trace(again.graph, plan) == expected


def _reordered(plan, chance: random.Random):
    count = len(plan.conditions)
    return replace(plan, order=tuple(chance.sample(range(count), count)))


def _setting() -> CheckpointConfig:
    return CheckpointConfig(location="here", provider=InMemoryProvider())


def _recorded(setting: CheckpointConfig) -> set[str]:
    with History(setting.location, setting.provider) as history:
        return {step.address for step in history.run(RUN).steps if step.status == "finished"}


def _races(plan) -> bool:
    """Whether the end may depend on how fast a thread is: what a router says follows from how often it was called."""
    return bool(plan.sync and plan.turns)


def _order(setting: CheckpointConfig) -> list[str]:
    outcomes = Record.of(entries_of(setting)).outcomes.values()
    return [outcome.address for outcome in sorted(outcomes, key=lambda outcome: outcome.order)]


def _cut_anywhere(plan) -> int:
    """The promise at every commit of a flow. Returns how often it was cut."""
    world, whole = World(), _setting()
    assume(made := flow_of(plan, world))
    try:
        expected = lived(plan, world, whole)
    except TooManyCalls:
        assume(False)
    assert set(world.done.values()) <= {1}
    _has_its_causes(made, world, whole)
    entries = entries_of(whole)
    for at in range(1, len(entries)):
        again, later = cut(entries, at), World()
        before = _recorded(again)
        found = lived(plan, later, again)
        assert not later.done.keys() & before
        in_order = _order(again) == _order(whole)
        if in_order or not _races(plan):
            assert found == expected
            assert later.done.keys() == world.done.keys() - before
        if in_order:
            assert later.saw.items() <= world.saw.items()
        assert not later.asked & before
        assert set(later.done.values()) <= {1}
        _has_its_causes(made, later, again)
    return len(entries) - 1


def _has_its_causes(made: type[Flow], world: World, setting: CheckpointConfig) -> None:
    """Every start of a method was caused by what the order of the commits says, and was given that one's result."""
    record = Record.of(entries_of(setting))
    for address, (cause, argument) in causes(made, record).items():
        assert record.outcomes[address].provenance.get("by") == cause
        assert world.given.get(address, argument) == argument


def _fails_and_goes_on(plan, chance: random.Random) -> None:
    """Two steps of a flow fail, if it has as many; kicked off again it does these, and what is behind them."""
    world = World()
    assume(flow_of(plan, world))
    try:
        expected = lived(plan, world, _setting())
    except TooManyCalls:
        assume(False)
    failing = frozenset(chance.sample(sorted(world.done), min(2, len(world.done))))
    setting, first, second = _setting(), World(failing=failing), World()
    with pytest.raises(ValueError) as failure:
        lived(plan, first, setting)
    assert any(address in str(failure.value) for address in failing)
    before = _recorded(setting)
    assert not before & failing
    found = lived(plan, second, setting)
    assert not second.done.keys() & before
    if not _races(plan):
        assert found == expected
        assert second.done.keys() == world.done.keys() - before
    assert set(second.done.values()) <= {1}


def _survives_another_order(plan, chance: random.Random) -> None:
    """A flow whose class is written in another order does the same, also if it is cut and goes on in a third order."""
    assume(not _races(plan))
    world, other, later = World(), World(), World()
    assume(made := flow_of(plan, world))
    try:
        expected, whole = lived(plan, world, _setting()), _setting()
    except TooManyCalls:
        assume(False)
    found = lived(_reordered(plan, chance), other, whole)
    _is_the_same(made, found, expected)
    assert other.done == world.done
    again = cut(entries := entries_of(whole), chance.randrange(1, len(entries)))
    before = _recorded(again)
    _is_the_same(made, lived(_reordered(plan, chance), later, again), expected)
    assert later.done.keys() == world.done.keys() - before


def _is_the_same(made: type[Flow], found, expected) -> None:
    """Two ends are the same, but for the result of one of two last methods, which the order of the class decides."""
    assert found[1:] == expected[1:]
    far = [steps for steps, _ in made.graph.places.values()]
    assert found[0] == expected[0] or len({*far}) < len(far)


@settings(max_examples=12, deadline=None, suppress_health_check=_QUICK)
@given(plans(), st.randoms(use_true_random=False))
def test_a_flow_does_the_same_in_whichever_order_its_class_is_written_also_between_two_lives(plan, chance):
    _survives_another_order(plan, chance)


@settings(max_examples=12, deadline=None, suppress_health_check=_QUICK)
@given(plans())
def test_a_flow_cut_at_any_commit_comes_to_the_end_that_it_would_have_had(plan):
    _cut_anywhere(plan)


@settings(max_examples=8, deadline=None, suppress_health_check=_QUICK)
@given(plans(most=4, nested=True))
def test_so_does_one_whose_methods_kick_off_crews_agents_and_flows(plan):
    _cut_anywhere(plan)


@settings(max_examples=15, deadline=None, suppress_health_check=_QUICK)
@given(_EITHER, st.randoms(use_true_random=False))
def test_a_flow_in_which_steps_fail_goes_on_with_them_alone(plan, chance):
    _fails_and_goes_on(plan, chance)


@pytest.mark.soak
def test_thousands_of_flows():
    cuts = []

    @settings(max_examples=in_time(2000), deadline=None, database=None, suppress_health_check=_QUICK)
    @given(_EITHER, st.randoms(use_true_random=False))
    def hold(plan, chance):
        cuts.append(_cut_anywhere(plan))
        _fails_and_goes_on(plan, chance)

    hold()
    print({"flows": len(cuts), "cuts": sum(cuts)})
