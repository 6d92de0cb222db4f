"""The cycles of a flow, and the rounds in them: which turn of which cycle a method runs in.

The rounds of a cycle begin with the method by which the cycle is entered; or, if several branches enter it, they end
with the method that joins the branches. A round is a tuple with one number for each cycle around a method, the
outermost first; outside of all cycles it is empty. Which round a method runs in follows from the graph and from what
happened before it, never from which of two methods was faster, nor from the order in which a class defines its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import groupby
from typing import NamedTuple

from crewlite.texts.wording import common_start

Path = tuple[str, ...]
"""The cycles around a method, outermost first, each named after a method that begins its rounds, or ends them."""
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
    beginning: frozenset[str]
    """The methods that begin a round of their innermost cycle whenever another method in it starts them."""
    ending: frozenset[str]
    """The methods that end a round of their innermost cycle: what they start in it is in the next round."""

    @classmethod
    def of(
        cls,
        following: Mapping[str, Sequence[str]],
        entries: Sequence[str],
        routers: Collection[str],
        starts_without: Callable[[str, Collection[str]], bool],
    ) -> Cycles:
        """Find the cycles of the methods that can be reached from `entries`.

        `following`: the methods that may start after each method. `starts_without`: whether a method can start before
        any of some others has finished. The strongly connected components of the graph are its outer cycles. What is
        left of a cycle without the methods that begin or end its rounds has inner cycles.
        """
        graph = _Graph(following, entries, routers)
        paths, beginning, ending = dict[str, Path](), set[str](), set[str]()
        waiting: list[tuple[Collection[str], Path]] = [(graph.before, ())]
        while waiting:
            members, around = waiting.pop()
            for component in graph.components(members):
                if not graph.is_cycle(component):
                    paths[component[0]] = around
                    continue
                inside = {*component}
                begins = {name for name in inside if starts_without(name, inside)}
                ends = graph.joins(inside, begins) if len(begins) > 1 else set()
                turning = ends or begins
                (ending if ends else beginning).update(turning)
                path = (*around, min(turning))
                paths.update(dict.fromkeys(turning, path))
                waiting.append((inside - turning, path))
        return cls(paths, frozenset(beginning), frozenset(ending))

    def way(self, path: Path, to: Path, listener: str | None, by: str | None = None) -> Way:
        """Return how the round changes on the way from the cycles `path` to the cycles `to`.

        `listener`: the method that starts; None for a part of a condition, which begins no round. `by`: the method
        whose end starts it.
        """
        both = common_start(path, to)
        begins = 0 < both == len(to) and listener in self.beginning
        ends = 0 < both == len(path) and listener is not None and by in self.ending
        return Way(both, begins or ends, (1,) * (len(to) - both))

    def ranks(self, following: Mapping[str, Sequence[str]]) -> dict[str, int]:
        """Return each method's distance from the beginning: the length of the longest way to it within a round."""
        before: dict[str, list[str]] = {name: [] for name in self.paths}
        entering = dict[str, list[str]]()  # by cycle: the methods outside that may start it
        begun = dict[str, list[str]]()  # by cycle: the methods with which its later rounds begin
        for name, path in self.paths.items():
            for other in following.get(name, ()):
                to = self.paths[other]
                way = self.way(path, to, other, name)
                if way.again:
                    begun.setdefault(to[way.around_both - 1], []).append(other)
                    continue
                before[other].append(name)
                for cycle in to[way.around_both :]:
                    entering.setdefault(cycle, []).append(name)
        for cycle, others in begun.items():  # a later round begins as far from the beginning as the first one
            for other in others:
                before[other] += entering.get(cycle, ())

        found: dict[str, int] = {}
        for name in TopologicalSorter(before).static_order():
            found[name] = 1 + max((found[one] for one in before[name]), default=0)
        return found


class _Graph:
    """The methods that can be reached from `entries`, and which may start after which."""

    def __init__(
        self, following: Mapping[str, Sequence[str]], entries: Sequence[str], routers: Collection[str]
    ) -> None:
        self._following = following
        self._entries = frozenset(entries)
        self._routers = routers
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

    def components(self, members: Collection[str]) -> list[list[str]]:
        """Return the strongly connected components of `members` (Kosaraju, in Sharir 1981)."""
        ends, seen = list[str](), set[str]()
        for name in members:
            ends += _visited(name, self._following, members, seen)
        seen = set()
        return [found for name in reversed(ends) if (found := _visited(name, self.before, members, seen))]

    def is_cycle(self, component: Sequence[str]) -> bool:
        return len(component) > 1 or component[0] in self._following.get(component[0], ())

    def joins(self, cycle: Collection[str], begins: Collection[str]) -> set[str]:
        """Return the method that ends the rounds of a cycle in which several may begin; several if they are alike.

        All branches come to such a method: without it, each cycle that is left can be entered at one method only. Of
        several such methods it is the last one before the next round, and a router if one of them is, as labels lead to
        the next round. There may be none.
        """
        steps = self._steps(cycle, begins)

        def order(name: str) -> tuple[bool, int]:
            return name not in self._routers, steps[name]

        for _, alike in groupby(sorted(cycle, key=order), order):
            if found := {name for name in alike if self._joins_all(name, cycle)}:
                return found
        return set()

    def _joins_all(self, method: str, cycle: Collection[str]) -> bool:
        left = filter(self.is_cycle, self.components({*cycle} - {method}))
        return all(self._ways_in(one) == 1 for one in left)

    def _ways_in(self, cycle: Collection[str]) -> int:
        """Return at how many of its methods a cycle can be entered."""
        members = {*cycle}
        return sum(name in self._entries or not self.before[name] <= members for name in cycle)

    def _steps(self, cycle: Collection[str], to: Collection[str]) -> dict[str, int]:
        """Return, for each method of a cycle, how many steps within the cycle lead to the nearest method of `to`."""
        members, steps, count = {*cycle}, dict[str, int](), 0
        while to:
            count += 1
            to = {name for one in to for name in self.before[one] & members if name not in steps}
            steps.update(dict.fromkeys(to, count))
        return steps


def _visited(start: str, edges: Mapping[str, Collection[str]], members: Collection[str], seen: set[str]) -> list[str]:
    """Return the members not in `seen` that edges lead to from `start`, each after those that it leads to.

    Without recursion, as a way may be longer than Python's stack.
    """
    found = list[str]()
    visits = [] if start in seen else [(start, iter(edges.get(start, ())))]
    seen.add(start)
    while visits:
        name, others = visits[-1]
        for other in others:
            if other in members and other not in seen:
                seen.add(other)
                visits.append((other, iter(edges.get(other, ()))))
                break
        else:
            visits.pop()
            found.append(name)
    return found
