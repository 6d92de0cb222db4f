"""Decide which methods of a flow start when others have finished. Pure: no clock, no tasks.

A round is one pass through a cycle of the graph (rounds.py). The machine counts how often each method has ended, and
each label was returned, in each round. A method starts as often as its condition comes true: a single name each time it
occurs; `or_` once a round, however many of its parts occur in it; `and_` when all of its parts have occurred. These
counts only grow, so how often a method starts does not depend on the order in which methods finish.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from crewlite.flow.classes.conditions import Condition
from crewlite.flow.classes.graph import Graph
from crewlite.flow.classes.rounds import Path, Round, Way
from crewlite.texts.wording import common_start


@dataclass(slots=True, eq=False)
class Firing:
    """One start of a method. It equals no other start.

    Treat it as immutable; it is not frozen because creating a frozen dataclass for each start is slow.
    """

    method: str
    round: Round
    cause: Firing | None = None
    """The start of the method whose end led to this one; None at the beginning of the flow."""
    label: str | None = None
    """The label that the cause returned to start it; None if the end of the cause started it."""
    behind: Sequence[Firing] = ()
    """The starts of the methods whose ends made the condition true, including the cause; for `or_`, only the first."""


class _Listener(NamedTuple):
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
            if name in graph.cycles.paths:  # else nothing can start it
                listener = _Listener(place, name, _gate(condition, graph, graph.cycles.paths[name], name), {})
                for heard in listener.gate.names:
                    self._listeners.setdefault(heard, []).append(listener)

    def begin(self) -> list[Firing]:
        """Return the starts of the methods with which the flow begins."""
        return [Firing(name, (1,) * len(self._graph.cycles.paths[name])) for name in self._graph.entries]

    def ended(self, firing: Firing, label: str | None = None) -> list[Firing]:
        """Note that a method has finished; return the starts to which this leads. `label`: what a router returned."""
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
        """Return the methods whose conditions contain any of the names, in the order of the class."""
        if len(names) == 1:  # they are in order already
            return self._listeners.get(names[0], ())
        by_place = {one.place: one for name in names for one in self._listeners.get(name, ())}
        return [by_place[place] for place in sorted(by_place)]


class _Gate(Protocol):
    """A condition, or a part of one, with a count of how often it has come true in each round."""

    names: frozenset[str]

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        """Note that the end of `firing` made one of `names` occur. Returns the rounds whose count may have changed."""

    def count(self, round_: Round) -> int:
        """Return how often the condition has come true in a round."""

    def behind(self, round_: Round, time: int) -> list[Firing]:
        """Return the firings whose ends made the condition come true for the `time`-th time in a round (from 1)."""


def _gate(condition: Condition, graph: Graph, path: Path, listener: str | None) -> _Gate:
    """Build the gate of a condition, which counts in the rounds of `path`. `listener`: the method that it starts."""
    names = frozenset(condition.names())
    if condition.how == "name":
        return _Name(names, graph, path, listener)
    if condition.how == "or":
        around = _around(names, graph)
        common = around[0][: min(common_start(around[0], other) for other in around)] if around else ()
        if len(common) > common_start(common, path):  # all methods of the `or_` share a cycle, without the listener
            parts = [_gate(part, graph, common, None) for part in condition.parts]
            return _Or(names, parts, graph.cycles.way(common, path, listener))
        return _Or(names, [_gate(part, graph, path, listener) for part in condition.parts], Way(len(path), False, ()))
    parts = [_gate(part, graph, path, listener) for part in condition.parts]
    depths = [max((common_start(one, path) for one in _around(part.names, graph)), default=0) for part in parts]
    inner = max(depths)
    pairs = zip(parts, depths, strict=True)
    return _And(names, [part if depth == inner else _Before(part.names, part, depth) for part, depth in pairs], path)


def _around(names: Iterable[str], graph: Graph) -> Sequence[Path]:
    """For each method that can make one of the names occur, return the cycles that it is in."""
    return [graph.cycles.paths[at] for name in names for at in graph.emitters(name) if at in graph.cycles.paths]


@dataclass(slots=True)
class _Name:
    names: frozenset[str]
    graph: Graph
    path: Path
    listener: str | None
    ways: dict[str, Way] = field(default_factory=dict)
    """By method that made the name occur: the way from its rounds to those of `path`."""
    ends: dict[Round, list[Firing]] = field(default_factory=dict)

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        if (way := self.ways.get(firing.method)) is None:
            path = self.graph.cycles.paths[firing.method]
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
    """An `or_`: it comes true once a round; if its methods share a cycle without the listener, a round of that one."""

    names: frozenset[str]
    parts: Sequence[_Gate]
    way: Way
    """The way from the rounds in which the parts count to those of the listening method."""
    counts: Counter[Round] = field(default_factory=Counter)
    """How often it came true, by round of its parts."""
    times: dict[Round, list[tuple[_Gate, Round, int]]] = field(default_factory=dict)
    """By round of the listener, for each time it came true: the part that came true, its round, and its count there."""

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        found = []
        for part in self.parts:
            for inner in part.occurred(name, firing) if name in part.names else ():
                round_ = self.way.to(inner)
                found.append(round_)
                while self.counts[inner] < part.count(inner):
                    self.counts[inner] += 1
                    self.times.setdefault(round_, []).append((part, inner, self.counts[inner]))
        return found

    def count(self, round_: Round) -> int:
        return len(self.times.get(round_, ()))

    def behind(self, round_: Round, time: int) -> list[Firing]:
        part, inner, its_time = self.times[round_][time - 1]
        return part.behind(inner, its_time)


@dataclass(slots=True)
class _And:
    """An `and_`: in a round it comes true as often as the part that came true least often there."""

    names: frozenset[str]
    parts: Sequence[_Gate]
    path: Path
    rounds: set[Round] = field(default_factory=set)
    """The rounds in which a part has occurred."""

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        found: list[Round] = []
        for part in self.parts:
            for changed in part.occurred(name, firing) if name in part.names else ():
                if len(changed) == len(self.path):
                    self.rounds.add(changed)
                    found.append(changed)
                else:  # a round of an outer cycle, which the part counts in
                    found += [round_ for round_ in self.rounds if round_[: len(changed)] == changed]
        return found

    def count(self, round_: Round) -> int:
        return min([part.count(round_) for part in self.parts])  # a list is faster than a generator

    def behind(self, round_: Round, time: int) -> list[Firing]:
        return [firing for part in self.parts for firing in part.behind(round_, time)]


@dataclass(slots=True)
class _Before:
    """A part of an `and_` that is in fewer cycles than other parts. Once true in a round, it is true in inner ones."""

    names: frozenset[str]
    part: _Gate
    depth: int
    """How many of the cycles around the listener the part is in, too."""
    first: dict[Round, Round] = field(default_factory=dict)
    """By round of these cycles: the round in which the part came true first."""

    def occurred(self, name: str, firing: Firing) -> list[Round]:
        changed = [round_ for round_ in self.part.occurred(name, firing) if self.part.count(round_)]
        for round_ in changed:
            self.first.setdefault(round_[: self.depth], round_)
        return [round_[: self.depth] for round_ in changed]

    def count(self, round_: Round) -> int:
        return sys.maxsize if round_[: self.depth] in self.first else 0

    def behind(self, round_: Round, time: int) -> list[Firing]:
        return self.part.behind(self.first[round_[: self.depth]], 1)
