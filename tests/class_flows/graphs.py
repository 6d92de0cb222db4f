"""Random flows: their methods as data, classes made of these, and what the methods kick off."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from crewlite import Agent, CheckpointConfig, Crew, Task, durable, kinds
from crewlite.encoding.codec import decode
from crewlite.errors import ConfigError, Suspended
from crewlite.flow import Flow, and_, flow, human_feedback, listen, or_, router, start, step
from crewlite.flow.classes.conditions import address_name
from crewlite.flow.classes.machine import Firing, Machine
from crewlite.state.format.numbering import Numbering
from crewlite.state.format.record import Record
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN

LABELS = ("x", "y")
INSIDE = ("crew", "two tasks", "agent", "function", "class")
"""What a method may kick off: a crew of one task or of two, an agent, a flow that is a function, or one of methods."""
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
    inside: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """What methods kick off; of a coroutine, side by side."""
    order: tuple[int, ...] = ()
    """The order in which the class writes its methods; () for that of their numbers."""

    def label(self, address: str) -> str | None:
        """The label of the router's turn that has this address."""
        method = address.split("/")[0].removeprefix("method:")
        turns, count = self.turns[int(method.split("@")[0].split("#")[0][1:])], int(method.partition("#")[2] or 1)
        return turns[count - 1] if count <= len(turns) else None


@dataclass
class World:
    """What a life of the process has done, and what is to fail in it."""

    done: Counter[str] = field(default_factory=Counter)
    given: dict[str, Any] = field(default_factory=dict)
    """What each start of a method was given."""
    saw: dict[str, frozenset[str]] = field(default_factory=dict)
    """Which methods each one saw in the state when it began."""
    failing: frozenset[str] = frozenset()
    asked: set[str] = field(default_factory=set)
    """What a person was asked."""

    def note(self) -> str:
        """Note that the step at work has done something. Returns its address, whichever attempts it is inside of."""
        address = re.sub(r"!\d+", "", durable.scope().address)
        if address in self.failing:
            raise ValueError(f"{address} is down")
        self.done[address] += 1
        return address


@st.composite
def conditions(draw: Any, names: list[str], depth: int = 2) -> Any:
    if depth and draw(st.integers(0, 2)) == 0:
        how = draw(st.sampled_from(["or", "and"]))
        parts = draw(st.lists(conditions(names, depth - 1), min_size=2, max_size=3))
        return (how, *parts)
    return draw(st.sampled_from(names))


@st.composite
def plans(draw: Any, most: int = 6, *, nested: bool = False) -> Plan:
    """Random plans; of some, no class can be made. With `nested`, methods kick off crews, agents and flows."""
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
    sync = frozenset(draw(st.sets(st.integers(0, count - 1), max_size=2)))
    asking = frozenset(draw(st.sets(st.sampled_from(sorted(turns)), max_size=1))) if turns else frozenset()
    kinds = st.lists(st.sampled_from(INSIDE), min_size=1, max_size=2).map(tuple)
    inside = draw(st.dictionaries(st.integers(0, count - 1), kinds, min_size=1, max_size=2)) if nested else {}
    return Plan(tuple(found), turns, sync, asking, inside)


def condition(given: Any) -> Any:
    if isinstance(given, str):
        return given
    how, *parts = given
    return (or_ if how == "or" else and_)(*map(condition, parts))


def flow_of(plan: Plan, world: World, **settings: Any) -> type[Flow[Any]] | None:
    """The class of a plan; None if it cannot work."""
    methods = {}
    for at in plan.order or range(len(plan.conditions)):
        given, work = plan.conditions[at], _method(f"m{at}", plan, world)
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


def _method(name: str, plan: Plan, world: World) -> Any:
    at = int(name[1:])
    inside = [_runnable(kind, name, world) for kind in plan.inside.get(at, ())]

    def begun(self: Flow[Any], given: Any) -> str:
        address = world.note()
        world.given[address] = given
        world.saw[address] = frozenset(name for name in self.state if name.startswith("method:"))
        self.state[address] = True
        return address

    def ended(self: Flow[Any], address: str, found: list[Any]) -> Any:
        self.state.setdefault("by", {})[address] = [name, *map(_text, found)]
        return plan.label(address) if at in plan.turns and at not in plan.asking else address

    def act(self: Flow[Any], given: Any = None) -> Any:
        address = begun(self, given)
        return ended(self, address, [one.kickoff(*asked) for one, asked in inside])

    async def act_async(self: Flow[Any], given: Any = None) -> Any:
        address = begun(self, given)
        return ended(self, address, await asyncio.gather(*(one.akickoff(*asked) for one, asked in inside)))

    made = act if at in plan.sync else act_async
    made.__name__ = name
    return made


def _runnable(kind: str, name: str, world: World) -> tuple[Any, tuple[str, ...]]:
    """Something that a method kicks off, and the arguments of the kickoff."""
    if kind == "function":

        @step(name="part")
        def part(word: str) -> str:
            return f"{world.note()} {word}"

        @flow(name="whole")
        def whole() -> str:
            return " ".join(part(word) for word in ("one", "two"))

        return whole, ()
    if kind == "class":

        class Inner(Flow[Any]):
            @start()
            def begin(self) -> str:
                self.state["begun"] = world.note()
                return "begun"

            @listen(begin)
            async def end(self) -> str:
                return f"{self.state['begun']} {world.note()}"

        return Inner(), ()

    def reply(messages: list[Any]) -> str:
        world.note()
        return hashlib.sha256(str(messages).encode()).hexdigest()[:8]

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply))
    if kind == "agent":
        return agent, (f"What is {name}?",)
    count = 2 if kind == "two tasks" else 1
    tasks = [
        Task(name=f"t{at}", description=f"Say {at} of {name}", expected_output="text", agent=agent)
        for at in range(count)
    ]
    return Crew(tasks=tasks), ()


def _text(found: Any) -> str:
    return str(getattr(found, "raw", found))


def lived(plan: Plan, world: World, setting: CheckpointConfig) -> tuple[Any, dict[str, Any], list[Any]]:
    """What the flow comes to: its result, its state and what a person has said, who is asked each question once."""
    made = flow_of(plan, world)
    assert made
    flow, answers = made(checkpoint=setting), dict[str, str]()
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


def causes(made: type[Flow[Any]], record: Record) -> dict[str, tuple[str | None, Any]]:
    """By the order of the commits alone: what has started each recorded method, and what it was given."""
    graph, addresses = made.graph, Numbering("")
    machine, given = Machine(graph), dict[Firing, Any]()
    open_, found = dict[str, Firing](), dict[str, tuple[str | None, Any]]()

    def begin(firings: list[Firing], result: Any) -> None:
        for one in firings:
            passed_on = one.cause and one.label and one.cause.cause and not graph.methods[one.cause.method].feedback
            given[one] = given[one.cause] if one.cause and passed_on else result
            at = addresses.next("method", address_name(one.method, graph.conditions[one.method] if one.cause else None))
            open_[at] = one
            found[at] = ((one.label or one.cause.method) if one.cause else None, given[one])

    begin(machine.begin(), None)
    outcomes = sorted(record.outcomes.values(), key=lambda outcome: outcome.order)
    for at in (
        outcome.address
        for outcome in outcomes
        if kinds.at(outcome.address) is kinds.METHOD and "/" not in outcome.address
    ):
        result = decode(record.value(at))
        ended = open_.pop(at)
        begin(machine.ended(ended, graph.label(ended.method, result)), result)
    return {at: cause for at, cause in found.items() if at in record.outcomes}
