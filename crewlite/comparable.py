"""Values that may hold what no record can: as plain JSON data for comparison alone, and copies of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from crewlite import codec
from crewlite.callables import held, shape
from crewlite.codec import Json
from crewlite.errors import NotCodable
from crewlite.instances import copied

_DEEPEST = 8  # levels of a collection with live objects, which may hold itself


def class_of(value: object) -> Json:
    """Return what a live object counts as, such as a client: its class, as nothing else of it can be compared."""
    return {"opaque": type(value).__qualname__}


def comparable(value: object, live: Callable[[object], Json] = class_of, depth: int = 0) -> Json:
    """Return as plain JSON what tells a value from others. It cannot be decoded.

    Of a list, tuple or dict with live objects in it, that are its parts. A live object, and a collection of nothing
    else, counts as what `live` returns.
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
        if depth < _DEEPEST and type(value) in (list, tuple):
            return type(value)(copied_apart(item, depth + 1) for item in value)
        if depth < _DEEPEST and type(value) is dict:
            return {key: copied_apart(item, depth + 1) for key, item in value.items()}
        return value
    return copied(value)


def alike_in_data(one: Any, other: Any, depth: int = 0) -> bool:
    """Return whether no text or number tells two values apart.

    It is looked for in lists, tuples and dicts, in what functions hold, and in the attributes of objects. The code of
    functions counts too.
    """
    if one is other or depth == _DEEPEST:
        return True
    kind = type(one)
    if kind is not type(other) or kind in codec.IMMUTABLE:
        return kind is type(other) and bool(one == other)
    if kind is CodeType:
        return bool(shape(one) == shape(other))
    if kind is dict:
        return one.keys() == other.keys() and all(alike_in_data(one[name], other[name], depth + 1) for name in one)
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(alike_in_data(*pair, depth + 1) for pair in zip(one, other, strict=True))
    return alike_in_data(_parts(one), _parts(other), depth + 1)


def _parts(value: object) -> dict[str, Any]:
    """Return what a function or method holds, or the texts and numbers among the attributes of another object."""
    if isinstance(value, FunctionType):
        return {"code": value.__code__, **held(value)}
    if isinstance(value, MethodType):
        return {"object": value.__self__, "function": value.__func__}
    if isinstance(value, partial):
        return {"function": value.func, "args": value.args, "keywords": value.keywords}
    return {name: item for name, item in getattr(value, "__dict__", {}).items() if type(item) in codec.IMMUTABLE}
