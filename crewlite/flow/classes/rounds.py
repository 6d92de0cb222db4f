"""The cycles of a flow, and the rounds in them: which turn of which cycle a method runs in.

A cycle begins again wherever its first method starts anew. A round is a tuple with one number for each cycle around a
method, the outermost first; outside of all cycles it is empty. Which round a method runs in follows from the graph and
from what happened before it, never from which of two methods was faster.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

Path = tuple[str, ...]
"""The cycles around a method, outermost first, each named by its first method."""
Round = tuple[int, ...]


def cycles(following: Mapping[str, Sequence[str]], entries: Sequence[str]) -> dict[str, Path]:
    """Return the cycles around each method that can be reached from `entries`.

    `following`: the methods that may start after each method. The cycles are those of a weak topological order
    (Bourdoncle, Efficient chaotic iteration strategies with widenings, 1993): every way round passes the first method
    of its innermost cycle.
    """
    return _Search(following).of(entries)


def shared(one: Path, other: Path) -> int:
    """Return the number of cycles that both are in."""
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
    """Whether the innermost of them begins its next turn."""
    entered: Round
    """The first turns of the cycles that are entered."""

    @classmethod
    def between(cls, path: Path, to: Path, listener: str | None = None) -> Way:
        """Build the way from `path` to `to`. `listener`: the method that starts; a cycle may begin again with it."""
        both = shared(path, to)
        return cls(both, both == len(to) and both > 0 and to[-1] == listener, (1,) * (len(to) - both))

    def to(self, round_: Round) -> Round:
        """Return the round at the end of the way."""
        found = round_[: self.around_both]
        if self.again:
            return (*found[:-1], found[-1] + 1)
        return found + self.entered


def ranks(following: Mapping[str, Sequence[str]], paths: Mapping[str, Path]) -> dict[str, int]:
    """Return how far each method is from the beginning: the length of the longest way to it within a round."""
    found: dict[str, int] = {}
    before: dict[str, list[str]] = {}
    for name, others in following.items():
        for other in others if name in paths else ():
            if other not in paths[name]:  # else it begins the next round
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


_Visit = Generator["_Visit", float, float]


class _Search:
    def __init__(self, following: Mapping[str, Sequence[str]]) -> None:
        self._following = following
        self._number: dict[str, float] = {}
        self._stack: list[str] = []
        self._count = 0
        self._found: dict[str, Path] = {}

    def of(self, entries: Sequence[str]) -> dict[str, Path]:
        for entry in entries:
            if not self._number.get(entry):
                self._run(self._visit(entry, ()))
        return self._found

    @staticmethod
    def _run(visit: _Visit) -> None:
        """Run a visit with those inside it, without recursion: a way may be longer than the stack of Python is deep."""
        stack: list[_Visit] = [visit]
        result: float | None = None
        while stack:
            try:
                inner = next(stack[-1]) if result is None else stack[-1].send(result)
            except StopIteration as ended:
                stack.pop()
                result = ended.value
            else:
                stack.append(inner)
                result = None

    def _visit(self, name: str, around: Path) -> _Visit:
        """Search from one method on. Returns the number of the earliest method that leads to it and follows it.

        Yields the visits inside it, and is sent what they return.
        """
        self._stack.append(name)
        self._count += 1
        first = self._number[name] = float(self._count)
        again = False
        for other in self._following.get(name, ()):
            found = self._number.get(other) or (yield self._visit(other, around))
            if found <= first:
                first, again = found, True
        if first == self._number[name]:
            self._number[name] = float("inf")
            while (element := self._stack.pop()) != name:
                self._number[element] = 0  # searched again, inside the cycle that begins here
            self._found[name] = (*around, name) if again else around
            if again:
                for other in self._following.get(name, ()):
                    if not self._number.get(other):
                        yield self._visit(other, (*around, name))
        return first
