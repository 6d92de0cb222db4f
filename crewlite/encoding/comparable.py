"""Values that may hold what no record can: as plain JSON data for comparison alone, and copies of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from crewlite.definitions.callables import held, shape
from crewlite.definitions.field_list import FieldList
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.encoding.instances import copied
from crewlite.errors import NotCodable

_SEQUENCES = (list, tuple, FieldList)
_DEEPEST = 8  # levels of a collection with live objects, which may hold itself
_MANY = 100  # parts of a value of which none is looked at if there are more


def class_of(value: object) -> Json:
    """Return the class of a live object, such as a client, as plain JSON: nothing else in it can be compared."""
    kind = list if type(value) is FieldList else type(value)
    return {"opaque": kind.__qualname__}


def comparable(value: object, live: Callable[[object], Json] = class_of, depth: int = 0) -> Json:
    """Return plain JSON that differs where values differ. It cannot be decoded.

    A list, tuple or dict that holds live objects becomes a list of its parts. A live object, and a collection of
    nothing else, becomes what `live` returns.
    """
    try:
        return codec.encode(value)
    except NotCodable:
        if depth == _DEEPEST or not isinstance(value, dict | list | tuple):
            return live(value)
    items = [list(pair) for pair in value.items()] if isinstance(value, dict) else list(value)
    parts = [comparable(item, live, depth + 1) for item in items]
    return live(value) if all(isinstance(part, dict) and part.keys() == {"opaque"} for part in parts) else parts


def copied_apart(value: Any, depth: int = 0) -> Any:
    """Return a copy of a value, as far as it can be encoded; a live object, such as a model or a lock, is shared."""
    try:
        codec.encode(value)
    except NotCodable:
        if depth < _DEEPEST and type(value) in _SEQUENCES:
            return type(value)(copied_apart(item, depth + 1) for item in value)
        if depth < _DEEPEST and type(value) is dict:
            return {key: copied_apart(item, depth + 1) for key, item in value.items()}
        return value
    return copied(value)


class Seen(NamedTuple):
    """A value, and the texts and numbers in it when it was looked at."""

    value: Any
    parts: Mapping[Any, Seen] | None = None
    """What is in it, by key, number or name; None for data that cannot change, and where it is too deep or too much."""


def seen(value: Any, depth: int = 0) -> Seen:
    """Look at a value: at lists, tuples and dicts, what functions hold, and the attributes of objects."""
    kind = type(value)
    if kind in codec.IMMUTABLE or kind is CodeType or depth == _DEEPEST:
        return Seen(value)
    parts = value if kind is dict else dict(enumerate(value)) if kind in _SEQUENCES else _parts(value)
    return Seen(value, {name: seen(part, depth + 1) for name, part in parts.items()} if len(parts) <= _MANY else None)


def alike_in_data(one: Seen, other: Seen) -> bool:
    """Return whether no text or number tells two values apart. The code of functions counts too."""
    kind = type(one.value)
    if one.value is other.value or kind is not type(other.value):
        return one.value is other.value
    if kind in codec.IMMUTABLE:
        return bool(one.value == other.value)
    if kind is CodeType:
        return bool(shape(one.value) == shape(other.value))
    if one.parts is None or other.parts is None:
        return True
    return one.parts.keys() == other.parts.keys() and all(
        alike_in_data(part, other.parts[name]) for name, part in one.parts.items()
    )


def _parts(value: object) -> dict[str, Any]:
    """Return what a function or method holds, or the texts and numbers among the attributes of another object."""
    if isinstance(value, FunctionType):
        return {"code": value.__code__, **held(value)}
    if isinstance(value, MethodType):
        return {"object": value.__self__, "function": value.__func__}
    if isinstance(value, partial):
        return {"function": value.func, "args": value.args, "keywords": value.keywords}
    return {name: item for name, item in getattr(value, "__dict__", {}).items() if type(item) in codec.IMMUTABLE}
