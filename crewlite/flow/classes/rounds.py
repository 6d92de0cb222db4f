"""The cycles of a flow, and the rounds in them: which turn of which cycle a method runs in.

A cycle begins again wherever its first method starts anew; or, if its branches begin side by side, whenever the method
that joins them has finished. A round is a tuple with one number for each cycle around a method, the outermost first;
outside of all cycles it is empty. Which round a method runs in follows from the graph and from what happened before it,
never from which of two methods was faster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

Path = tuple[str, ...]
"""The cycles around a method, outermost first, each named after the method that begins its rounds, or ends them."""
Round = tuple[int, ...]


class Cycles(NamedTuple):
    """The cycles of a graph."""

    paths: dict[str, Path]
    """The cycles around each method that can be reached."""
    closing: frozenset[str]
    """The methods after which a cycle is named because they end its rounds, rather than begin them."""


def cycles(following: Mapping[str, Sequence[str]], entries: Sequence[str]) -> Cycles:
    """Return the cycles of the methods that can be reached from `entries`.

    `following`: the methods that may start after each method. The cycles are those of a weak topological order
    (Bourdoncle, Efficient chaotic iteration strategies with widenings, 1993): every way round passes the method that
    its innermost cycle is named after.
    """
    graph = _Graph(following, entries)
    paths, closing = dict[str, Path](), set[str]()
    waiting: list[tuple[Collection[str], Sequence[str], Path]] = [(graph.before, entries, ())]
    while waiting:
        members, starts, around = waiting.pop()
        for component in graph.components(members, starts):
            if not graph.is_cycle(component):
                paths[component[0]] = around
                continue
            name = graph.first_or_last(component)
            if name != component[0]:
                closing.add(name)
            paths[name] = (*around, name)
            waiting.append((set(component) - {name}, following[name], paths[name]))
    return Cycles(paths, frozenset(closing))


def shared(one: Path, other: Path) -> int:
    """Return how many of the outermost cycles are the same in two paths."""
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count


class Way(NamedTuple):
    """How a round changes on the way from one method to another: cycles that are left end, entered ones begin."""

    around_both: int
    """The number of cycles around both methods, whose turns stay the same."""
    again: bool
    """Whether the innermost of these cycles begins its next turn."""
    entered: Round
    """The first turns of the cycles that are entered."""

    @classmethod
    def between(cls, path: Path, to: Path, by: str | None = None, listener: str | None = None) -> Way:
        """Build the way from `path` to `to`.

        `listener`: the method that starts, if a cycle begins again with it. `by`: the method whose end starts it, if
        a cycle ends with that one.
        """
        both = shared(path, to)
        ends = both > 0 and both == len(path) and path[-1] == by
        return cls(both, ends or (both == len(to) and both > 0 and to[-1] == listener), (1,) * (len(to) - both))

    def to(self, round_: Round) -> Round:
        """Return the round at the end of the way."""
        found = round_[: self.around_both]
        if self.again:
            found = (*found[:-1], found[-1] + 1)
        return found + self.entered


def ranks(following: Mapping[str, Sequence[str]], cycles: Cycles) -> dict[str, int]:
    """Return how far each method is from the beginning: the length of the longest way to it within a round."""
    paths, closing = cycles
    found: dict[str, int] = {}
    before: dict[str, list[str]] = {}
    for name, others in following.items():
        for other in others if name in paths else ():
            begins = other in paths[name] and other not in closing
            ends = name in closing and name in paths[other]
            if not begins and not ends:  # else it is in the next round
                before.setdefault(other, []).append(name)

    for name in paths:
        waiting = [name]
        while waiting:  # without recursion, as a way may be longer than the stack of Python is deep
            if missing := [one for one in before.get(waiting[-1], ()) if one not in found]:
                waiting += missing
                continue
            last = waiting.pop()
            found[last] = 1 + max((found[one] for one in before.get(last, ())), default=0)
    return {name: found[name] for name in paths}


class _Graph:
    """The methods that can be reached from `entries`, and which may start after which."""

    def __init__(self, following: Mapping[str, Sequence[str]], entries: Sequence[str]) -> None:
        self._following = following
        self._entries = frozenset(entries)
        self.before: dict[str, set[str]] = {name: set() for name in entries}
        """The methods that may start each method."""
        waiting = [*self.before]
        while waiting:
            name = waiting.pop()
            for other in following.get(name, ()):
                if other not in self.before:
                    self.before[other] = set()
                    waiting.append(other)
                self.before[other].add(name)

    def components(self, members: Collection[str], starts: Iterable[str]) -> list[list[str]]:
        """Return the strongly connected components of `members` that a depth-first search from `starts` finds.

        The methods of each are in the order in which the search comes to them (Tarjan 1972). Without recursion, as a
        way may be longer than the stack of Python is deep.
        """
        number, lowest = dict[str, int](), dict[str, int]()
        open_, found = list[str](), list[list[str]]()
        closed = set[str]()
        for start in starts:
            if start in number or start not in members:
                continue
            visits = [(start, iter(self._following.get(start, ())))]
            number[start] = lowest[start] = len(number)
            open_.append(start)
            while visits:
                name, others = visits[-1]
                for other in others:
                    if other not in members or other in closed:
                        continue
                    if other not in number:
                        number[other] = lowest[other] = len(number)
                        open_.append(other)
                        visits.append((other, iter(self._following.get(other, ()))))
                        break
                    lowest[name] = min(lowest[name], number[other])
                else:
                    visits.pop()
                    if visits:
                        lowest[visits[-1][0]] = min(lowest[visits[-1][0]], lowest[name])
                    if lowest[name] == number[name]:
                        component = [open_.pop()]
                        while component[-1] != name:
                            component.append(open_.pop())
                        found.append(component[::-1])
                        closed.update(component)
        return found

    def is_cycle(self, component: Sequence[str]) -> bool:
        return len(component) > 1 or component[0] in self._following.get(component[0], ())

    def first_or_last(self, cycle: Sequence[str]) -> str:
        """Return the method that begins the rounds of a cycle, which is its first one; or another one that ends them.

        Branches that begin side by side may both be in the cycle. No branch begins the rounds then: the other branches
        would be in cycles inside of its cycle. The method that joins them ends the rounds.
        """
        if self._ways_in(cycle) > 1:
            for name in (cycle[0], *reversed(cycle[1:])):
                inside = set(cycle) - {name}
                inner = filter(self.is_cycle, self.components(inside, [one for one in cycle if one != name]))
                if all(self._ways_in(one) == 1 for one in inner):
                    return name
        return cycle[0]

    def _ways_in(self, cycle: Sequence[str]) -> int:
        """Return with how many of its methods a cycle can begin."""
        members = {*cycle}
        return sum(name in self._entries or not self.before[name] <= members for name in cycle)
