"""The cycles of a flow, and the rounds in them: which turn of which cycle a method runs in.

A cycle begins again wherever its first method starts anew; or, if its branches begin side by side, whenever the method
that joins them has finished. A round is a tuple with one number for each cycle around a method, the outermost first;
outside of all cycles it is empty. Which round a method runs in follows from the graph and from what happened before it,
never from which of two methods was faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

Path = tuple[str, ...]
"""The cycles around a method, outermost first, each named after the method that begins its rounds, or ends them."""
Round = tuple[int, ...]


class Way(NamedTuple):
    """How a round changes on the way from one method to another: cycles that are left end, entered ones begin."""

    around_both: int
    """The number of cycles around both methods, whose turns stay the same."""
    again: bool
    """Whether the innermost of these cycles begins its next turn."""
    entered: Round
    """The first turns of the cycles that are entered."""

    def to(self, round_: Round) -> Round:
        """Return the round at the end of the way."""
        found = round_[: self.around_both]
        if self.again:
            found = (*found[:-1], found[-1] + 1)
        return found + self.entered


class Cycles(NamedTuple):
    """The cycles of a graph."""

    paths: dict[str, Path]
    """The cycles around each method that can be reached."""
    closing: frozenset[str]
    """The methods after which a cycle is named because they end its rounds, rather than begin them."""

    @classmethod
    def of(
        cls,
        following: Mapping[str, Sequence[str]],
        entries: Sequence[str],
        starts_without: Callable[[str, Collection[str]], bool],
    ) -> Cycles:
        """Find the cycles of the methods that can be reached from `entries`.

        `following`: the methods that may start after each method. `starts_without`: whether a method can start before
        any of some others has finished. The cycles are those of a weak topological order (Bourdoncle, Efficient chaotic
        iteration strategies with widenings, 1993): every way round passes the method that its innermost cycle is named
        after.
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
                inside = set(component)
                if name != component[0] or not starts_without(name, inside):
                    closing.add(name)
                paths[name] = (*around, name)
                waiting.append((inside - {name}, following[name], paths[name]))
        return cls(paths, frozenset(closing))

    def way(self, path: Path, to: Path, listener: str | None, by: str | None = None) -> Way:
        """Return how the round changes on the way from the cycles `path` to the cycles `to`.

        `listener`: the method that starts; None for a part of a condition, with which no round begins. `by`: the method
        whose end starts it.
        """
        both = shared(path, to)
        begins = both == len(to) and to[-1:] == (listener,) and listener not in self.closing
        ends = listener is not None and both == len(path) and path[-1:] == (by,) and by in self.closing
        return Way(both, begins or ends, (1,) * (len(to) - both))

    def ranks(self, following: Mapping[str, Sequence[str]]) -> dict[str, int]:
        """Return how far each method is from the beginning: the length of the longest way to it within a round."""
        found: dict[str, int] = {}
        before: dict[str, list[str]] = {name: [] for name in self.paths}
        for name, path in self.paths.items():
            for other in following.get(name, ()):
                way = self.way(path, self.paths[other], other, name)
                if way.again:
                    continue
                before[other].append(name)
                for cycle in self.closing.intersection(self.paths[other][way.around_both :]):
                    for one in following[cycle]:  # the next round may begin with another method, which is as far
                        if cycle in self.paths[one]:
                            before[one].append(name)

        for name in before:
            waiting = [name]
            while waiting:  # without recursion, as a way may be longer than the stack of Python is deep
                if missing := [one for one in before[waiting[-1]] if one not in found]:
                    waiting += missing
                    continue
                last = waiting.pop()
                found[last] = 1 + max((found[one] for one in before[last]), default=0)
        return found


def shared(one: Path, other: Path) -> int:
    """Return how many of the outermost cycles are the same in two paths."""
    count = 0
    for mine, its in zip(one, other, strict=False):
        if mine != its:
            break
        count += 1
    return count


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
                inner = filter(self.is_cycle, self.components(inside, inside))
                if all(self._ways_in(one) == 1 for one in inner):
                    return name
        return cycle[0]

    def _ways_in(self, cycle: Sequence[str]) -> int:
        """Return with how many of its methods a cycle can begin."""
        members = {*cycle}
        return sum(name in self._entries or not self.before[name] <= members for name in cycle)
