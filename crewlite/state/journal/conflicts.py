"""Which changes of steps side by side meet at one place of the state: decided from what each could have seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from crewlite.codec import Json
from crewlite.state.format.operations import Operation, Path, beginnings


class Start(NamedTuple):
    """The state as a step begins with it."""

    values: Mapping[str, Json]
    delivered: int = 0
    """How many steps beside it have handed over their changes, which are in these values."""
    known: frozenset[str] = frozenset()
    """Steps whose changes are in these values though they have not been handed over."""


@dataclass(slots=True)
class _Mark:
    delivered: list[tuple[int, str]] = field(default_factory=list)
    """The steps that have changed something here and handed that over, by number."""
    waiting: set[str] = field(default_factory=set)
    """Steps that have changed something here and have not handed it over."""

    def is_unseen(self, start: Start) -> bool:
        """Whether a step that began so could not see some change here."""
        later = takewhile(lambda step: step[0] > start.delivered, reversed(self.delivered))
        return not start.known.issuperset(address for _, address in later) or bool(self.waiting - start.known)


class Touched:
    """The places that the steps inside one step have changed."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, Path], _Mark] = {}
        self._of: dict[str, list[_Mark]] = {}

    def note(self, address: str, operations: Iterable[Operation]) -> None:
        """A step has committed these."""
        for verb, path, *_ in operations:
            place = tuple(path)
            keys = [("append" if verb == "append" else "write", place), *(("inside", at) for at in beginnings(place))]
            for key in keys:
                mark = self._marks.setdefault(key, _Mark())
                if address not in mark.waiting:
                    mark.waiting.add(address)
                    self._of.setdefault(address, []).append(mark)

    def deliver(self, address: str, number: int) -> None:
        """What a step has changed is handed over, as the change of this number."""
        for mark in self._of.pop(address, ()):
            mark.waiting.discard(address)
            mark.delivered.append((number, address))

    def conflicts(self, operations: Iterable[Operation], start: Start) -> list[str]:
        """The names in which a step that began so changes what another has changed and it could not see.

        Two that append to one list, or set different keys, are no conflict.
        """
        found = dict.fromkeys(
            path[0]
            for verb, path, *_ in operations
            for key in _meeting(verb, tuple(path))
            if (mark := self._marks.get(key)) and mark.is_unseen(start)
        )
        return list(found)


def _meeting(verb: str, place: Path) -> Iterator[tuple[str, Path]]:
    """What must not have happened beside an operation."""
    yield "write", place
    yield "inside", place
    yield from (("write", at) for at in beginnings(place))
    if verb != "append":
        yield "append", place
