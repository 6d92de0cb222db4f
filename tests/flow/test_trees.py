"""Random trees of steps, cut at every commit: the resumed flow ends as the uninterrupted one, and does nothing twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from crewlite import CheckpointConfig, durable
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider
from crewlite.state.providers.base import Commit

RUN = "tree"


class Broken(Exception):
    """What a step of a tree raises."""


class World:
    """What the steps of a tree do outside: which leaf ran how often, and how often it still fails."""

    def __init__(self) -> None:
        self.runs = Counter()

    def touch(self, fails: int) -> None:
        address = durable.scope().address
        self.runs[address] += 1
        if self.runs[address] <= fails:
            raise Broken(address)


world = World()


@step(retries=2)
async def leaf(value, fails):
    world.touch(fails)
    await asyncio.sleep(0)
    return value


@step(retries=2)
def blocking_leaf(value, fails):
    world.touch(fails)
    return value


@step
async def each(children):
    return ["each", *[await grow(child) for child in children]]


@step
def blocking_each(children):
    return ["blocking", *[sprout(child) for child in children]]


@step(max_concurrency=2)
async def side_by_side(children):
    begun = [begin(child) for child in children]
    return ["side", *[await future for future in begun]]


@step
async def mapped(values):
    return ["mapped", *await leaf.map(values, itertools.repeat(0, len(values)))]


@step
async def tolerant(child):
    try:
        return ["well", await grow(child)]
    except Broken as error:
        return ["ill", str(error)]


FORMS = {
    "leaf": leaf,
    "blocking_leaf": blocking_leaf,
    "each": each,
    "blocking": blocking_each,
    "side": side_by_side,
    "mapped": mapped,
    "tolerant": tolerant,
}
BLOCKING = ("blocking_leaf", "blocking")


def begin(tree):
    form, *arguments = tree
    return FORMS[form].submit(*arguments)


async def grow(tree):
    form, *arguments = tree
    made = FORMS[form].submit if form in BLOCKING else FORMS[form]
    return await made(*arguments)


def sprout(tree):
    return begin(tree).result()


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


def tree_flow(provider, *, blocking):
    config = CheckpointConfig(location="trees", provider=provider)
    if blocking:
        return flow(name="tree", checkpoint=config)(lambda tree: sprout(tree))

    async def grown(tree):
        return await grow(tree)

    return flow(name="tree", checkpoint=config)(grown)


def journal(provider):
    return provider.open("trees").read(RUN, "main")


def cut(entries, at):
    """A provider that holds the run as it was after `at` commits."""
    provider = InMemoryProvider()
    provider.open("trees").append([Commit(RUN, "main", 0, "", tuple(entries[:at]))])
    return provider


def live(tree, provider, *, blocking):
    global world
    world = World()
    result = tree_flow(provider, blocking=blocking).kickoff(tree, run_id=RUN)
    return result, world.runs


def holds(tree, blocking):
    """The promise, at every commit of this tree. Returns how often it was cut."""
    global world
    whole = InMemoryProvider()
    result, runs = live(tree, whole, blocking=blocking)
    entries = journal(whole)
    for at in range(1, len(entries)):
        recorded = {s["address"] for e in entries[:at] for s in e.facts.get("steps", ()) if "value" in s}
        tried = Counter(s["address"] for e in entries[:at] for s in e.facts.get("steps", ()) if "error" in s)
        world = World()
        world.runs.update(tried)
        assert tree_flow(cut(entries, at), blocking=blocking).kickoff(run_id=RUN) == result
        made = world.runs - tried
        assert not recorded & made.keys(), "a recorded step ran again"
        assert world.runs.keys() | recorded >= runs.keys(), "a step was passed over"
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
