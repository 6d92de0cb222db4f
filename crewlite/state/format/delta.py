"""What changes in a mapping of coded values: the names that are set and those that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from crewlite.codec import Json, digest
from crewlite.state.format.commit import StepChanges

GONE: Any = object()
"""Stands for no value at all."""


def applied(values: Mapping[str, Json], changed: StepChanges) -> Mapping[str, Json]:
    """The values after these changes; the same object if there are none."""
    new, gone = changed.get("set", {}), changed.get("gone", ())
    if not new and not gone:
        return values
    return ({name: value for name, value in values.items() if name not in gone} if gone else {**values}) | new


def difference(before: Mapping[str, Json], after: Mapping[str, Json]) -> StepChanges:
    """What leads from one to the other."""
    if before is after:
        return {}
    new = {name: value for name, value in after.items() if not alike(value, before.get(name, GONE))}
    gone = [name for name in before if name not in after]
    return cast(StepChanges, ({"set": new} if new else {}) | ({"gone": gone} if gone else {}))


def combined(first: StepChanges, then: StepChanges) -> StepChanges:
    """Both, one after the other."""
    new = applied(first.get("set", {}), then)
    gone = [name for name in dict.fromkeys([*first.get("gone", ()), *then.get("gone", ())]) if name not in new]
    return cast(StepChanges, ({"set": new} if new else {}) | ({"gone": gone} if gone else {}))


def differing(names: Iterable[str], one: Mapping[str, Json], other: Mapping[str, Json]) -> list[str]:
    """The names that do not stand for the same in both."""
    return [name for name in names if not alike(one.get(name, GONE), other.get(name, GONE))]


def names_in(changed: StepChanges) -> list[str]:
    """All names that were set, or are gone."""
    return [*changed.get("set", {}), *changed.get("gone", ())]


def alike(one: Json, other: Json) -> bool:
    """Whether two coded values are the same: `1` and `1.0` are two. Either may be no value at all."""
    if one is other:
        return True
    return one is not GONE and other is not GONE and digest(one) == digest(other)
