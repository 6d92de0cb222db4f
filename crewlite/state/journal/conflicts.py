"""Conflicts: changes of concurrent steps to the same part of the state, where one did not see the other's change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from crewlite.encoding.codec import Json
from crewlite.state.format.operations import Operation, Path, beginnings


class Start(NamedTuple):
    """The state with which a step starts."""

    values: Mapping[str, Json]
    delivered: int = 0
    """The number of sibling steps whose changes were handed over before this start, and are in these values."""
    known: frozenset[str] = frozenset()
    """The sibling steps whose changes are in these values before being handed over."""


@dataclass(slots=True)
class _Mark:
    delivered: list[tuple[int, str]] = field(default_factory=list)
    """(number of the handover, address) of the steps that changed this path and whose changes were handed over."""
    waiting: set[str] = field(default_factory=set)
    """The steps that changed this path and whose changes have not been handed over."""

    def is_unseen(self, start: Start) -> bool:
        """Return whether a step that began with `start` could not see some of the changes to this path."""
        later = takewhile(lambda step: step[0] > start.delivered, reversed(self.delivered))
        return not start.known.issuperset(address for _, address in later) or bool(self.waiting - start.known)


class Touched:
    """The paths in the state that the steps inside one step have changed."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, Path], _Mark] = {}
        self._of: dict[str, list[_Mark]] = {}

    def note(self, address: str, operations: Iterable[Operation]) -> None:
        """Record that a step has committed these operations."""
        for verb, path, *_ in operations:
            place = tuple(path)
            keys = [("append" if verb == "append" else "write", place), *(("inside", at) for at in beginnings(place))]
            for key in keys:
                if (mark := self._marks.get(key)) is None:
                    mark = self._marks[key] = _Mark()
                if address not in mark.waiting:
                    mark.waiting.add(address)
                    self._of.setdefault(address, []).append(mark)

    def deliver(self, address: str, number: int) -> None:
        """Record that the changes of a step were handed over, under this number."""
        for mark in self._of.pop(address, ()):
            mark.waiting.discard(address)
            mark.delivered.append((number, address))

    def conflicts(self, operations: Iterable[Operation], start: Start) -> list[str]:
        """Return the names in which changes of a step conflict with others that it could not see at its `start`.

        Two steps that append to the same list, or set different keys of a mapping, do not conflict.
        """
        found = dict.fromkeys(
            path[0]
            for verb, path, *_ in operations
            for key in _meeting(verb, tuple(path))
            if (mark := self._marks.get(key)) and mark.is_unseen(start)
        )
        return list(found)


def _meeting(verb: str, place: Path) -> Iterator[tuple[str, Path]]:
    """Yield (kind of change, path) for each change by another step that would conflict with an operation."""
    yield "write", place
    yield "inside", place
    yield from (("write", at) for at in beginnings(place))
    if verb != "append":
        yield "append", place
