"""Two changed copies of one encoded value, put together where they changed different parts of it.

Operations reach into lists and plain mappings alone: a model that two concurrent steps have changed, or an item of a
list, is one value to them. So what each has changed is found by comparison with the value that both began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crewlite.encoding.codec import Json
from crewlite.state.format.operations import ABSENT, Operation, alike

CLASH: Any = object()
"""Stands for a value of which both have changed the same part."""
_WITH_FIELDS = (None, "model", "dataclass")
"""The tags of plain mappings and of encoded objects with fields."""


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
    """Return the names of the fields that are set in either copy of a model; ABSENT stands for all fields."""
    return ABSENT if ABSENT in (one, other) else list(dict.fromkeys([*one, *other]))
