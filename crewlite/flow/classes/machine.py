"""Decide which methods of a flow start when others have finished. Pure: no clock, no tasks.

A round is one pass through a cycle of the graph (rounds.py). The machine counts how often each method and each label
has occurred in each round. A method starts as often as its condition has come true: a name each time it occurs; `or_`
once a round, however many of its parts occur in it; `and_` when all of its parts have occurred. These counts only
grow, so how often a method starts does not depend on the order in which methods finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from crewlite.flow.classes.conditions import Condition
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.rounds import Path, Round, Way, shared


@dataclass(slots=True, eq=False)
class Firing:
    """One start of a method. It equals no other.

    Treat it as immutable; it is not frozen because creating a frozen dataclass for each start is slow.
    """

    method: str
    round: Round
    cause: Firing | None = None
    """The method whose end has started it; None at the beginning of the flow."""
    label: str | None = None
    """The label by which the cause has started it; None if it was the end itself."""
    behind: Sequence[Firing] = ()
    """The firings whose ends made the condition true, including the cause; for `or_`, only the first."""


class _Listener(NamedTuple):
    """A method with a condition."""

    place: int
    """The place of the method in the order of the class, among the methods that have a condition."""
    method: str
    gate: _Gate
    fired: dict[Round, int]
    """How often the method was started in each round."""


class Machine:
    """The state of one run of a flow: which methods and labels have occurred, and which methods they have started."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._listeners: dict[str, list[_Listener]] = {}
        """The methods whose conditions hold a name, by that name."""
        for place, (name, condition) in enumerate(graph.conditions.items()):
            if name in graph.paths:  # else nothing can start it
                listener = _Listener(place, name, _gate(condition, graph, graph.paths[name], name), {})
                for heard in listener.gate.names:
                    self._listeners.setdefault(heard, []).append(listener)

    def begin(self) -> list[Firing]:
        """Return the methods with which the flow begins."""
        return [Firing(name, (1,) * len(self._graph.paths[name])) for name in self._graph.entries]

    def ended(self, firing: Firing, label: str | None = None) -> list[Firing]:
        """Note that a method has finished; return the methods that this starts. `label`: the result of a router."""
        names = [firing.method] if label is None or label == firing.method else [firing.method, label]
        found = []
        for listener in self._hearing(names):
            gate, fired = listener.gate, listener.fired
            by = label if label in gate.names else None
            changed = {round_ for name in names if name in gate.names for round_ in gate.occurred(name, firing)}
            for round_ in sorted(changed):
                before, fired[round_] = fired.get(round_, 0), gate.count(round_)
                times = range(before + 1, fired[round_] + 1)
                found += [Firing(listener.method, round_, firing, by, gate.behind(round_, time)) for time in times]
        return found

    def _hearing(self, names: Sequence[str]) -> Sequence[_Listener]:
        """Return the methods whose conditions hold any of the names, in the order of the class."""
        found: Sequence[_Listener] = ()
        for name in names:
            more = self._listeners.get(name, ())
            if found and more:
                by_place = {one.place: one for one in (*found, *more)}
                found = [by_place[place] for place in sorted(by_place)]
            else:
                found = found or more
        return found


class _Gate(Protocol):
    """A condition, or a part of one, that counts how often it has come true in each round."""

    names: frozenset[str]

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        """Note that one of `names` has occurred. Returns the rounds in which the count may have changed."""

    def count(self, round_: Round) -> int:
        """Return how often the condition has come true in a round."""

    def behind(self, round_: Round, time: int) -> list[Firing]:
        """Return the firings that have made the condition come true for the first, second, ... time in a round."""


def _gate(condition: Condition, graph: Graph, path: Path, listener: str | None) -> _Gate:
    """Build the gate of a condition, which counts in the rounds of `path`."""
    names = frozenset(condition.names())
    if condition.how == "name":
        return _Name(names, graph, path, listener)
    inside = [graph.paths[at] for name in names for at in graph.emitters(name) if at in graph.paths]
    if condition.how == "or" and inside:
        common = inside[0][: min(shared(inside[0], other) for other in inside)]
        if len(common) > shared(common, path):  # all of them are in a cycle that the listener is not in
            parts = [_gate(part, graph, common, None) for part in condition.parts]
            return _OfOtherCycle(names, _Or(names, parts), graph.cycles.way(common, path, listener))
    parts = [_gate(part, graph, path, listener) for part in condition.parts]
    if condition.how == "or":
        return _Or(names, parts)
    return _And(names, parts, [_depth(part, graph, path) for part in parts])


def _depth(gate: _Gate, graph: Graph, path: Path) -> int:
    """Return how many of the cycles in `path` contain a method that can make the condition come true."""
    around = (graph.paths[at] for name in gate.names for at in graph.emitters(name) if at in graph.paths)
    return max((shared(one, path) for one in around), default=0)


@dataclass(slots=True)
class _Name:
    names: frozenset[str]
    graph: Graph
    path: Path
    listener: str | None
    ways: dict[str, Way] = field(default_factory=dict)
    """The way from each method that has made the name occur."""
    ends: dict[Round, list[Firing]] = field(default_factory=dict)

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        if (way := self.ways.get(firing.method)) is None:
            path = self.graph.paths[firing.method]
            way = self.ways[firing.method] = self.graph.cycles.way(path, self.path, self.listener, firing.method)
        round_ = way.to(firing.round)
        self.ends.setdefault(round_, []).append(firing)
        return [round_]

    def count(self, round_: Round) -> int:
        return len(self.ends.get(round_, ()))

    def behind(self, round_: Round, time: int) -> list[Firing]:
        return [self.ends[round_][time - 1]]


@dataclass(slots=True)
class _Or:
    names: frozenset[str]
    parts: Sequence[_Gate]
    firsts: dict[Round, list[_Gate]] = field(default_factory=dict)
    """By round: the part that came true first, the part that came true a second time first, and so on."""

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        found = []
        for part in self.parts:
            for round_ in part.occurred(name, firing) if name in part.names else ():
                firsts = self.firsts.setdefault(round_, [])
                firsts += [part] * (part.count(round_) - len(firsts))
                found.append(round_)
        return found

    def count(self, round_: Round) -> int:
        return len(self.firsts.get(round_, ()))

    def behind(self, round_: Round, time: int) -> list[Firing]:
        return self.firsts[round_][time - 1].behind(round_, time)


@dataclass(slots=True)
class _OfOtherCycle:
    """An `or_` of methods in a cycle that the listening method is outside of: it comes true once in each round."""

    names: frozenset[str]
    inner: _Gate
    way: Way
    times: dict[Round, list[tuple[Round, int]]] = field(default_factory=dict)
    """By round, one item for each time it came true: (the round of the other cycle, the how many-th time there)."""
    seen: Counter[Round] = field(default_factory=Counter)

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        found = []
        for round_ in self.inner.occurred(name, firing):
            found.append(self.way.to(round_))
            while self.seen[round_] < self.inner.count(round_):
                self.seen[round_] += 1
                self.times.setdefault(found[-1], []).append((round_, self.seen[round_]))
        return found

    def count(self, round_: Round) -> int:
        return len(self.times.get(round_, ()))

    def behind(self, round_: Round, time: int) -> list[Firing]:
        return self.inner.behind(*self.times[round_][time - 1])


@dataclass(slots=True)
class _And:
    """An `and_`: parts in the cycles of the listening method must occur in one round, parts outside of them before."""

    names: frozenset[str]
    parts: Sequence[_Gate]
    depths: Sequence[int]
    """How many of the listener's cycles each part is in."""
    innermost: int = field(init=False)
    """The depth of the parts that must occur in one round."""
    rounds: set[Round] = field(default_factory=set)
    outside: dict[int, dict[Round, Round]] = field(default_factory=dict)
    """For each part in an outer cycle, by its number: {round of that cycle: round of the part when it came true}."""

    def __post_init__(self) -> None:
        self.innermost = max(self.depths)

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        found: list[Round] = []
        for number, (part, depth) in enumerate(zip(self.parts, self.depths, strict=True)):
            changed = part.occurred(name, firing) if name in part.names else []
            if depth == self.innermost:
                self.rounds.update(changed)
                found += changed
                continue
            before = {round_[:depth]: round_ for round_ in changed if part.count(round_)}
            outside = self.outside.setdefault(number, {})
            for beginning, round_ in before.items():
                outside.setdefault(beginning, round_)
            if before:
                found += [round_ for round_ in self.rounds if round_[:depth] in before]
        return found

    def count(self, round_: Round) -> int:
        found: int | None = None
        for number, (part, depth) in enumerate(zip(self.parts, self.depths, strict=True)):
            if depth < self.innermost:
                if round_[:depth] not in self.outside.get(number, ()):
                    return 0
            else:
                count = part.count(round_)
                found = count if found is None else min(found, count)
        return found or 0

    def behind(self, round_: Round, time: int) -> list[Firing]:
        found = list[Firing]()
        for number, (part, depth) in enumerate(zip(self.parts, self.depths, strict=True)):
            inside = depth == self.innermost
            found += part.behind(round_, time) if inside else part.behind(self.outside[number][round_[:depth]], 1)
        return found
