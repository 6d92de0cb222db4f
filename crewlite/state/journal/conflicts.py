"""Concurrent changes to the same part of the state: which of them conflict, and how two of them are merged.

Two changes conflict if the step that commits later did not see the other change. Operations reach into lists and plain
mappings only: to them, a model or an item of a list is one value. So what each step has changed inside such a value is
found by comparing it with the value that both steps began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from crewlite.encoding.codec import Json
from crewlite.state.format.operations import ABSENT, Operation, Path, alike, beginnings

CLASH: Any = object()
"""Stands for a value of which both have changed the same part."""
_WITH_FIELDS = (None, "model", "dataclass")
"""The tags of plain mappings and of encoded objects with fields."""


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


def merged_at(operation: Operation, before: Mapping[str, Json], theirs: Mapping[str, Json]) -> Json:
    """Return the value that an operation sets, with what others have changed in it; CLASH if that cannot be told.

    `before`: the values that the step of the operation began with; `theirs`: those with the changes of the others.
    """
    verb, path, *rest = operation
    if verb != "set":
        return CLASH
    was: Any = before
    now: Any = theirs
    for key in path:
        was, now = (value.get(key, ABSENT) if isinstance(value, Mapping) else ABSENT for value in (was, now))
    return CLASH if was is ABSENT or now is ABSENT else merged(was, now, rest[0])


def merged(before: Json, one: Json, other: Json) -> Json:
    """Return a value with the changes of two copies of it, or CLASH if both changed the same part."""
    if alike(before, one):
        return other
    if alike(before, other):
        return one
    if isinstance(before, list) and isinstance(one, list) and isinstance(other, list):
        return _merged_lists(before, one, other)
    if isinstance(before, dict) and isinstance(one, dict) and isinstance(other, dict):
        return _merged_fields(before, one, other)
    return CLASH


def _merged_lists(before: list[Json], one: list[Json], other: list[Json]) -> Json:
    size = len(before)
    if all(len(copy) >= size and alike(before, copy[:size]) for copy in (one, other)):
        return [*one, *other[size:]]
    if not size == len(one) == len(other):
        return CLASH
    items = [merged(*versions) for versions in zip(before, one, other, strict=True)]
    return CLASH if any(item is CLASH for item in items) else items


def _merged_fields(before: dict[str, Json], one: dict[str, Json], other: dict[str, Json]) -> Json:
    kind, *kinds = (_kind(value) for value in (before, one, other))
    if kind[0] not in _WITH_FIELDS or kinds != [kind, kind]:
        return CLASH
    found: dict[str, Json] = {}
    for key in {**before, **one, **other}:
        versions = [value.get(key, ABSENT) for value in (before, one, other)]
        value = _set_in_either(*versions[1:]) if key == "set" and kind[0] else merged(*versions)
        if value is CLASH:
            return CLASH
        if value is not ABSENT:
            found[key] = value
    return found


def _kind(value: dict[str, Json]) -> tuple[Json, Json]:
    """Return the tag and the class of an encoded object; (None, None) for a plain mapping, whatever its keys."""
    tag = value.get("$")
    return tag, value.get("c") if tag else None


def _set_in_either(one: Json, other: Json) -> Json:
    """Return the names of the fields set in either of two copies of a model; ABSENT if all fields are set in one."""
    return ABSENT if ABSENT in (one, other) else list(dict.fromkeys([*one, *other]))
