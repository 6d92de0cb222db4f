"""The parts of an instance of a user's class, and an instance of such parts, made without a call of its `__init__`.

Time zones, and URLs of pydantic (`HttpUrl`, `PostgresDsn`, ...), are recorded by their names.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from crewlite.encoding.homes import is_named_tuple
from crewlite.lazy import lazy

T = TypeVar("T")
log = logging.getLogger("crewlite.codec")


def copied(value: T) -> T:
    """Return a deep copy of a value; the value itself if it holds what cannot be copied, such as a lock."""
    try:
        return copy.deepcopy(value)
    except (TypeError, AttributeError, RuntimeError, ValueError, copy.Error):  # a lock; a class that refuses copies
        return value


def fields_of_model(value: BaseModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (fields and extra values, {}) of a model; (fields, extra values) if one of each has the same name.

    A field with an alias leaves its own name free.
    """
    names, extra = type(value).model_fields, value.__pydantic_extra__ or {}
    own = {name: value.__dict__[name] for name in names if name in value.__dict__}
    return (own | extra, {}) if names.keys().isdisjoint(extra) else (own, extra)


def attributes_of(value: Any) -> dict[str, Any]:
    """Return what a dataclass holds beyond its fields, such as what `__post_init__` has set."""
    kind: Any = type(value)
    fields, slots = _names(kind)
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    found |= {name: item for name, item in getattr(value, "__dict__", {}).items() if name not in fields}
    return {
        name: item
        for name, item in found.items()
        if not isinstance(getattr(kind, name, None), functools.cached_property)
    }


@functools.lru_cache(maxsize=1024)
def _names(kind: Any) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of a dataclass's fields, and of its slots that are no fields."""
    fields = frozenset(field.name for field in dataclasses.fields(kind))
    slots = [cls.__dict__.get("__slots__", ()) for cls in kind.__mro__]
    names = [name for given in slots for name in ([given] if isinstance(given, str) else given)]
    return fields, tuple(name for name in names if name not in fields and not name.startswith("__"))


def dataclass_of(cls: Any, values: Mapping[str, Any]) -> Any:
    """Return an instance of a dataclass with these fields and attributes."""
    made = object.__new__(cls)
    for name, item in values.items():
        object.__setattr__(made, name, item)
    return made


def model_of(cls: Any, called: str, values: dict[str, Any], more: Mapping[str, Any]) -> Any:
    """Return a model of these values; the values themselves if one is missing that the class wants.

    `more`: `set`, the names of the fields that were set (all by default); `extra`, the extra values if one of them is
    named as a field is; `private`.
    """
    if missing := [name for name, field in cls.model_fields.items() if field.is_required() and name not in values]:
        log.warning("%s now wants %s, which the record lacks: its value stays plain data", called, ", ".join(missing))
        return values
    # not validated again, because a validator could change the value
    given = _copied(values) if cls.__pydantic_post_init__ else values  # model_post_init may change them in place
    model = cls.model_construct(_fields_set=set(more.get("set", values)), **given)
    recorded = {name: values[name] for name in cls.model_fields if name in values}
    model.__dict__.update(recorded)  # undo model_post_init
    if model.__pydantic_extra__ is not None:  # an alias may be the name of one
        extra = {name: item for name, item in values.items() if name not in cls.model_fields}
        model.__pydantic_extra__ = extra | more.get("extra", {})
    if private := more.get("private"):
        model.__pydantic_private__ = private
    return model


def _copied(value: Any) -> Any:
    """Return a value whose lists, dicts and sets, down to the innermost, are copies."""
    kind = type(value)
    if kind is dict:
        return {key: _copied(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(_copied, value))
    return set(value) if kind is set else value


def named_tuple_of(cls: Any, called: str, values: dict[str, Any]) -> Any:
    """Return a named tuple of these values; a plain tuple if the class has other fields."""
    if is_named_tuple(cls) and list(values) == list(cls._fields):
        return cls._make(values.values())
    log.warning("%s has other fields now: its value stays a plain tuple", called)
    return tuple(values.values())


def hashed(cls: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """Return a set or dict of the items; the list itself if one is unhashable, as plain data of a class may be."""
    try:
        return cls(items)
    except TypeError:
        return items


networks = lazy("pydantic.networks")
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,3}")


def zone(name: str) -> ZoneInfo:
    """Return the time zone of this name. Checks the name first, as ZoneInfo opens files and imports modules by it."""
    if not _ZONE.fullmatch(name):
        raise ValueError(f"{name!r} is not a time zone")
    return ZoneInfo(name)


def plain_url(value: Any) -> list[str] | None:
    """Return the name of a URL's class and its text; None for anything else."""
    kind = type(value)
    is_url = kind.__module__ == "pydantic.networks" and hasattr(value, "unicode_string")
    return [kind.__name__, str(value)] if is_url else None


def url_of(data: list[str]) -> Any:
    """Return the URL that `plain_url` has made. Raises ValueError for data that it has not made."""
    name, text = data
    kind = getattr(networks, name, None)
    if not isinstance(kind, type) or kind.__module__ != "pydantic.networks" or not hasattr(kind, "unicode_string"):
        raise ValueError(f"{name!r} is no class of URLs")
    return kind(text)
