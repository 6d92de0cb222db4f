"""Values that may hold what no record can: as plain JSON data for comparison alone, and copies of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crewlite import codec
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
