"""Random flows: their methods as data, and classes made of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crewlite import durable
from crewlite.errors import ConfigError
from crewlite.flow import Flow, and_, human_feedback, listen, or_, router, start

LABELS = ("x", "y")
NONE = "none"
"""What a person says in place of a label."""


@dataclass(frozen=True)
class Plan:
    """A random flow: for each method its condition (None for a start) and, of a router, its labels for each turn."""

    conditions: tuple[Any, ...]
    turns: dict[int, tuple[str | None, ...]]
    sync: frozenset[int]
    asking: frozenset[int] = frozenset()
    """The routers whose labels a person gives."""

    def label(self, address: str) -> str | None:
        """The label of the router's turn that has this address."""
        method = address.split("/")[0].removeprefix("method:")
        turns, count = self.turns[int(method.split("@")[0].split("#")[0][1:])], int(method.partition("#")[2] or 1)
        return turns[count - 1] if count <= len(turns) else None


@dataclass
class World:
    """What a life of the process has done, and what is to fail in it."""

    done: Counter[str] = field(default_factory=Counter)
    failing: frozenset[str] = frozenset()
    asked: set[str] = field(default_factory=set)
    """What a person was asked."""
    inside: Callable[[str], Any] | None = None


@st.composite
def conditions(draw: Any, names: list[str], depth: int = 2) -> Any:
    if depth and draw(st.integers(0, 2)) == 0:
        how = draw(st.sampled_from(["or", "and"]))
        parts = draw(st.lists(conditions(names, depth - 1), min_size=2, max_size=3))
        return (how, *parts)
    return draw(st.sampled_from(names))


@st.composite
def plans(draw: Any, most: int = 6) -> Plan:
    """Plans whose classes can be made: what cannot is left out."""
    count = draw(st.integers(2, most))
    routers = draw(st.sets(st.integers(0, count - 1), max_size=2))
    names = [f"m{at}" for at in range(count)] + (list(LABELS) if routers else [])
    found: list[Any] = [None]
    for at in range(1, count):
        alone = draw(st.integers(0, 4)) == 0
        earlier = names if draw(st.booleans()) else [*names[:at], *names[count:]]
        found.append(None if alone else draw(conditions(earlier)))
    turn = st.lists(st.sampled_from([*LABELS, None]), min_size=1, max_size=3).map(tuple)
    turns = {at: draw(turn) for at in sorted(routers)}
    sync = frozenset(draw(st.sets(st.integers(0, count - 1), max_size=1)))
    asking = frozenset(draw(st.sets(st.sampled_from(sorted(turns)), max_size=1))) if turns else frozenset()
    return Plan(tuple(found), turns, sync, asking)


def condition(given: Any) -> Any:
    if isinstance(given, str):
        return given
    how, *parts = given
    return (or_ if how == "or" else and_)(*map(condition, parts))


def flow_of(plan: Plan, world: World, **settings: Any) -> type[Flow[Any]] | None:
    """The class of a plan; None if it cannot work."""
    methods = {}
    for at, given in enumerate(plan.conditions):
        routes = at in plan.turns and at not in plan.asking
        work = _method(f"m{at}", plan if routes else None, world, sync=at in plan.sync)
        if given is None:
            work = start()(work)
        else:
            work = listen(condition(given))(work)
        if at in plan.asking:
            work = human_feedback("Which?", emit=(*LABELS, NONE))(work)
        elif at in plan.turns:
            work = router(emit=LABELS)(work)
        methods[f"m{at}"] = work
    try:
        return type("Random", (Flow,), {"max_method_calls": 12, **settings, **methods})
    except ConfigError:
        return None


def _method(name: str, plan: Plan | None, world: World, *, sync: bool) -> Any:
    def act(self: Flow[Any]) -> Any:
        address = durable.scope().address
        if address in world.failing:
            raise ConnectionError(f"{address} is down")
        world.done[address] += 1
        self.state[address] = True
        self.state.setdefault("by", {})[address] = name
        return plan.label(address) if plan else address

    async def act_async(self: Flow[Any]) -> Any:
        return act(self)

    made = act if sync else act_async
    made.__name__ = name
    return made
