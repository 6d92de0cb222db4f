"""The text of a value, the same in every process: a set has another order in each, so it is sorted here.

A prompt that holds such a text would be another question after a restart.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

from pydantic import BaseModel

from crewlite.encoding.homes import is_named_tuple
from crewlite.encoding.instances import attributes_of, dataclass_of

_MAPPINGS = (dict, Counter, OrderedDict, defaultdict)


def text_of(value: object) -> str:
    """Return `str(value)`, with the sets in it sorted."""
    return value if isinstance(value, str) else str(_ordered(value))


class _Set(set[Any]):
    """A set that is iterated and shown in a stable order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(_sorted(super().__iter__()))

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}" if self else "set()"


class _FrozenSet(frozenset[Any]):
    """The same of a frozenset."""

    def __iter__(self) -> Iterator[Any]:
        return iter(_sorted(super().__iter__()))

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, self))}}})" if self else "frozenset()"


def _sorted(items: Iterable[Any]) -> list[Any]:
    """Return the items in an order that follows from them alone: numbers by size, all else by type and text."""
    return sorted(items, key=lambda item: (type(item).__name__, item if type(item) in (int, float) else 0, repr(item)))


def _ordered(value: Any, around: frozenset[int] = frozenset()) -> Any:
    """Return the value with sets of a stable order in the places of its sets; the value itself if it has none.

    `around`: the ids of the values that it is a part of, as one may contain itself.
    """
    if id(value) in around:
        return value
    around |= {id(value)}
    kind = type(value)
    if kind is set:
        return _Set(_ordered(item, around) for item in value)
    if kind is frozenset:
        return _FrozenSet(_ordered(item, around) for item in value)
    parts = _parts(value)
    changed = {name: made for name, part in parts.items() if (made := _ordered(part, around)) is not part}
    return _with(value, parts | changed) if changed else value


def _parts(value: Any) -> dict[Any, Any]:
    """Return the parts of a value by what tells them apart: places, or names of fields."""
    kind = type(value)
    if kind in (list, tuple, deque) or is_named_tuple(kind):
        return dict(enumerate(value))
    if kind in _MAPPINGS:
        return dict(enumerate(value.items()))
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name for field in dataclasses.fields(value) if hasattr(value, field.name)}
        return {name: getattr(value, name) for name in fields} | attributes_of(value)
    return {}


def _with(value: Any, parts: dict[Any, Any]) -> Any:
    """Return a copy of a value that has these parts."""
    if isinstance(value, BaseModel):
        return value.model_copy(update=parts)
    if isinstance(value, list | deque | dict):
        made: Any = copy(value)  # of a deque with its maxlen, of a defaultdict with its factory
        made.clear()
        made.update(dict(parts.values())) if isinstance(value, dict) else made.extend(parts.values())
        return made
    if isinstance(value, tuple):
        kind: Any = type(value)
        return kind._make(parts.values()) if is_named_tuple(kind) else tuple(parts.values())
    return dataclass_of(type(value), parts)
