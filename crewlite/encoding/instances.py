"""Take instances of users' classes apart into their parts, and build them from parts without calling `__init__`.

Time zones, and URLs of pydantic (`HttpUrl`, `PostgresDsn`, ...), are recorded by their names.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from crewlite.encoding.homes import is_named_tuple
from crewlite.lazy import lazy
from crewlite.texts.logs import logger

T = TypeVar("T")
log = logger("crewlite.codec")


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


def instance_of(cls: Any, called: str, values: dict[str, Any], more: Mapping[str, Any]) -> Any:
    """Return a recorded instance; its plain data if the class wants a field that the record lacks, which is warned of.

    A new field has its default. One that the class has lost is left out, with a warning.

    `more`: of a dataclass the `attributes` beyond its fields; of a model `set`, the names of the fields that were set
    (all by default), `extra`, the extra values if one of them is named as a field is, and `private`.
    """
    fields = _fields_of(cls)
    given = values if fields.keys() == values.keys() else _suited(cls, called, values, more.get("attributes", {}))
    if given is None:
        return tuple(values.values()) if is_named_tuple(cls) else values
    if is_named_tuple(cls):
        return cls._make(given[name] for name in fields)
    if issubclass(cls, BaseModel):
        return _model(cls, values, more)
    made = dataclass_of(cls, given)
    for name, item in more.get("attributes", {}).items():
        if name not in fields:
            with contextlib.suppress(AttributeError):  # since the recording, it has become a property, or has no slot
                object.__setattr__(made, name, item)
    return made


def _suited(cls: Any, called: str, values: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of all fields that the class has now; None if it wants one that was not recorded."""
    fields, found = _fields_of(cls), {**values, **attributes}
    if missing := [name for name, is_wanted in fields.items() if is_wanted and name not in found]:
        log.warning("%s now wants %s, which the record lacks: its value stays plain data", called, ", ".join(missing))
        return None
    if (lost := [name for name in values if name not in fields]) and not _takes_more(cls):
        log.warning("%s has no %s any more: what was recorded of it is left out", called, ", ".join(map(str, lost)))
    return {**_defaults(cls, found), **{name: found[name] for name in fields if name in found}}


@functools.lru_cache(maxsize=1024)
def _fields_of(cls: Any) -> Mapping[str, bool]:
    """Return the fields of a model, dataclass or named tuple, and whether an instance must be given each."""
    if is_named_tuple(cls):
        return {name: name not in cls._field_defaults for name in cls._fields}
    if issubclass(cls, BaseModel):
        return {name: field.is_required() for name, field in cls.model_fields.items()}
    return {field.name: field.init and not _has_default(field) for field in dataclasses.fields(cls)}


def _takes_more(cls: Any) -> bool:
    return issubclass(cls, BaseModel) and cls.model_config.get("extra") == "allow"


def _defaults(cls: Any, given: Collection[str]) -> dict[str, Any]:
    """Return the defaults of the fields of a dataclass or named tuple that are not given; a model makes its own."""
    if not dataclasses.is_dataclass(cls):
        return getattr(cls, "_field_defaults", {})
    left = [field for field in dataclasses.fields(cls) if field.name not in given and _has_default(field)]
    return {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in left
    }


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return not (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)


def _model(cls: Any, values: dict[str, Any], more: Mapping[str, Any]) -> Any:
    # not validated again, because a validator could change the value
    given = _copied(values) if cls.__pydantic_post_init__ else values  # model_post_init may change them in place
    model = cls.model_construct(_fields_set=set(more.get("set", values)), **given)
    recorded = {name: values[name] for name in cls.model_fields if name in values}
    model.__dict__.update(recorded)  # undo model_post_init
    if model.__pydantic_extra__ is None:
        model.__pydantic_fields_set__ &= cls.model_fields.keys()
    else:  # an alias may be the name of an extra value
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
