"""Encode values as canonical JSON, and decode them without loss.

A value that JSON cannot express is written as `{"$": tag, ...}`. A dict with a "$" key, or with keys that are not text,
is written as a list of pairs, so data can never be taken for a tag. Nothing is pickled, and decoding imports nothing:
an object is rebuilt only if the program has declared its class (`register`, or `classes=`), or has defined it where a
step or flow of its own is defined. Otherwise its fields are decoded as plain data, with a warning.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeVar, get_args, get_type_hints, is_typeddict
from uuid import UUID

from pydantic import BaseModel, SecretBytes, SecretStr

from crewlite.definitions.field_list import FieldList
from crewlite.encoding import homes, standard_types
from crewlite.encoding.homes import class_name, is_named_tuple
from crewlite.encoding.instances import (
    attributes_of,
    fields_of_model,
    hashed,
    instance_of,
    plain_url,
    url_of,
    zone,
)
from crewlite.encoding.json_text import chunks_of
from crewlite.errors import JournalCorrupt, NotCodable
from crewlite.texts.logs import logger

Json = Any
"""Plain JSON data: None, bool, int, float, str, list, dict with text keys."""
JsonObject = dict[str, Json]

C = TypeVar("C", bound=type)
IMMUTABLE = (str, int, float, bool, type(None))  # types whose values cannot change
log = logger("crewlite.codec")
_looked_into: weakref.WeakSet[type] = weakref.WeakSet()
_MAX_DEPTH = 100  # a level may become three of JSON, and recursive functions must stay within Python's stack
_INSIDE = 1_000  # more than any depth; added to it within an attribute, of which nothing may be left out
_LONG = 2_000  # bits; Python refuses to parse the decimal digits of much longer integers
_compact = chunks_of(json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False))
_sorted = chunks_of(json.JSONEncoder(sort_keys=True, separators=(",", ":")))
_PAIR = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")  # two lone surrogates, which JSON would combine into one


def register(cls: C) -> C:
    """Declare a class, so that recorded objects of it are rebuilt as such. Can be used as a decorator."""
    homes.registered[class_name(cls)] = cls
    return cls


def declare(hint: Any) -> None:
    """Register the classes that a type contains: `list[Report]` registers Report, and the classes of its fields."""
    if hint in IMMUTABLE or (isinstance(hint, type) and hint in _looked_into):
        return
    _look_into(hint, found := set[type]())
    _declare_all(found)


def declare_hints(func: Callable[..., Any]) -> frozenset[type]:
    """Register and return the classes in the type hints of a function. Pass them to `decode`: names may be shared.

    Finds none if a hint names something that cannot be found: their objects are then decoded as plain data.
    """
    _look_into_hints(func, found := set[type]())
    _declare_all(found)
    return frozenset(found)


def _declare_all(found: set[type]) -> None:
    for cls in [cls for cls in found if cls not in _looked_into]:
        _looked_into.add(cls)
        if not is_typeddict(cls):
            register(cls)


def _look_into(hint: Any, found: set[type]) -> None:
    """Add the classes that a type contains to `found`."""
    for part in get_args(hint):
        _look_into(part, found)
    if not isinstance(hint, type) or hint in found:
        return
    if issubclass(hint, BaseModel):
        found.add(hint)
        for field in hint.model_fields.values():
            _look_into(field.annotation, found)
    elif dataclasses.is_dataclass(hint) or is_named_tuple(hint) or is_typeddict(hint):
        found.add(hint)
        _look_into_hints(hint, found)
    elif issubclass(hint, Enum):
        found.add(hint)


def _look_into_hints(func: Callable[..., Any], found: set[type]) -> None:
    with contextlib.suppress(NameError, TypeError):
        for hint in get_type_hints(func).values():
            _look_into(hint, found)


def dumps(data: Json) -> bytes:
    """Return the canonical bytes of plain JSON data: compact, UTF-8, keys in the order given."""
    try:
        return "".join(_compact(data, 0)).encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form; its escape is lossless
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def digest(data: Json) -> str:
    """Return a digest of plain JSON data, independent of the order of keys: 32 hexadecimal digits."""
    return hashlib.blake2b("".join(_sorted(data, 0)).encode(), digest_size=16).hexdigest()


def encode(value: object, path: str = "") -> Json:
    """Return `value` as plain JSON data. Raises NotCodable, with the path of the part that cannot be recorded."""
    return _encode(value, path, 0)


def encode_to_keep(value: object, path: str = "") -> Json:
    """Return `value` as `encode` does, for a record from which it is to come back.

    Raises NotCodable also if it holds a SecretStr or SecretBytes, of which a record has only a mask.
    """
    data = encode(value, path)
    if type(value) not in IMMUTABLE and holds_secret(data):
        raise NotCodable(path, value, "it holds a secret, which is never recorded: read it where it is used")
    return data


def holds_secret(data: Json) -> bool:
    """Return whether encoded data stands for a value that holds a SecretStr or SecretBytes."""
    if isinstance(data, dict) and data.get("$") == "secret":
        return True
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        if type(part) not in IMMUTABLE and holds_secret(part):
            return True
    return False


def decode(data: Json, classes: Iterable[type] = ()) -> Any:
    """Return the value that was encoded. `classes` are declared in addition to the registered ones.

    Raises JournalCorrupt for data that `encode` never returns, NotCodable for an unknown tag.
    """
    known = {class_name(cls): cls for cls in classes}
    try:
        return _decode(data, known)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, NotCodable):
            raise
        problem = f"it cannot be read ({type(error).__name__}: {error})"
        raise JournalCorrupt("a recorded value", problem, None) from error


def laid_over(below: dict[str, Json], above: dict[str, Json]) -> dict[str, Json]:
    """Merge two encoded dicts. For a name in both, the value of `above` is used."""
    if "$" not in below and "$" not in above:
        return {**below, **above}
    pairs = [pair for coded in (below, above) for pair in (coded["v"] if "$" in coded else coded.items())]
    return {"$": "dict", "v": list({decode(name): [name, value] for name, value in pairs}.values())}


def _encode(value: Any, path: str, depth: int) -> Json:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return value if value.isascii() or not _PAIR.search(value) else {"$": "str", "v": _PAIR.split(value)}
    if kind is int:
        return value if value.bit_length() <= _LONG else {"$": "int", "v": hex(value)}
    if depth % _INSIDE > _MAX_DEPTH:
        raise NotCodable(path, value, f"nested deeper than {_MAX_DEPTH}, or contains itself: use ids for parts")
    if kind is list or kind is FieldList:
        return [
            item if type(item) is str and item.isascii() else _encode(item, f"{path}[{i}]", depth + 1)
            for i, item in enumerate(value)
        ]
    if kind is dict:
        return _encode_dict(value, path, depth)
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
    if writer := _WRITERS.get(kind):
        return writer(value, path, depth)
    return _encode_instance(value, path, depth)


def _encode_instance(value: Any, path: str, depth: int) -> Json:
    kind = type(value)
    if isinstance(value, Enum):
        return {"$": "enum", "c": class_name(kind), "v": _encode(value.value, path, depth + 1)}
    if isinstance(value, BaseModel):
        return _encode_model(value, path, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type | dict | list | tuple | set | str | bytes | int):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}
        data = {"$": "dataclass", "c": class_name(kind), "v": _encode_dict(fields, path, depth)}
        attributes = _encode_attributes(value, path, depth)
        return data | ({"attributes": attributes} if attributes else {})
    if is_named_tuple(kind):
        return {"$": "namedtuple", "c": class_name(kind), "v": _encode_dict(value._asdict(), path, depth)}
    if kind in (type(Path()), PurePosixPath, PureWindowsPath):
        return {"$": "path" if kind is type(Path()) else kind.__name__, "v": str(value)}
    if url := plain_url(value):
        return {"$": "url", "v": url}
    if form := standard_types.form_of(kind):
        standard_types.check(value, path)
        return {"$": kind.__name__, "v": _encode(form.data(value), path, depth + 1), **form.more(value)}
    if getattr(kind, "recorded_as_text", False):
        return _encode(str(value), path, depth)
    if plain := standard_types.moment_of(kind):
        return _WRITERS[plain](value, path, depth)
    raise NotCodable(path, value)


def _encode_attributes(value: Any, path: str, depth: int) -> JsonObject:
    """Encode what a dataclass holds beyond its fields, without what cannot be encoded whole, such as a lock."""
    found: JsonObject = {}
    for name, item in attributes_of(value).items():
        with contextlib.suppress(*(() if depth >= _INSIDE else (NotCodable,))):
            found = laid_over(found, _encode_dict({name: item}, path, depth % _INSIDE + _INSIDE))
    return found


def _encode_model(value: BaseModel, path: str, depth: int) -> Json:
    fields, extra = fields_of_model(value)
    data = {"$": "model", "c": class_name(type(value)), "v": _encode_dict(fields, path, depth)}
    if value.model_fields_set != fields.keys() | extra.keys():
        data["set"] = [name for name in fields | extra if name in value.model_fields_set]
    if extra:
        data["extra"] = _encode_dict(extra, path, depth)
    if value.__pydantic_private__:
        data["private"] = _encode_dict(value.__pydantic_private__, f"{path}.<private>", depth)
    return data


def _encode_dict(value: dict[Any, Any], path: str, depth: int) -> Json:
    for key in value:
        if type(key) is not str or key == "$" or not (key.isascii() or not _PAIR.search(key)):
            break
    else:
        into = f"{path}." if path else ""
        return {
            key: item if type(item) is str and item.isascii() else _encode(item, into + key, depth + 1)
            for key, item in value.items()
        }
    pairs = [
        [_encode(key, f"{path}.<key>", depth + 1), _encode(item, f"{path}[{_label(key)}]", depth + 1)]
        for key, item in value.items()
    ]
    return {"$": "dict", "v": pairs}


def _label(key: object) -> str:
    """Return a key as a path shows it: its repr, or only its class if it is large or of a class of the user."""
    plain = key is None or isinstance(key, str | float) or (isinstance(key, int) and key.bit_length() <= _LONG)
    return repr(key) if plain else f"<{type(key).__name__}>"


def _tuple(value: Any, path: str, depth: int) -> Json:
    return {"$": "tuple", "v": [_encode(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]}


def _unordered(tag: str) -> Callable[[Any, str, int], Json]:
    return lambda value, path, depth: {
        "$": tag,
        "v": sorted((_encode(v, f"{path}{{}}", depth + 1) for v in value), key=lambda v: json.dumps(v, sort_keys=True)),
    }


def _text(tag: str, show: Callable[[Any], str]) -> Callable[[Any, str, int], Json]:
    return lambda value, path, depth: {"$": tag, "v": show(value)}


def _moment(value: Any, path: str, depth: int) -> Json:
    """Encode a datetime or time. The name of its zone is kept, as an offset alone would lose daylight saving time."""
    tag, zone = "time" if type(value) is time else "datetime", value.tzinfo
    if zone is None or type(zone) is timezone:
        data = {"$": tag, "v": value.isoformat()} | ({"fold": 1} if value.fold else {})
        name = zone and zone.tzname(None)
        usual = zone and timezone(zone.utcoffset(None)).tzname(None)
        return data if name == usual else data | {"zone": _encode(name, path, depth)}
    if key := getattr(zone, "key", None):
        return {"$": f"zoned {tag}", "v": [value.replace(tzinfo=None).isoformat(), key, value.fold]}
    raise NotCodable(path, value, f"its time zone is a {type(zone).__qualname__}; zoneinfo.ZoneInfo has a name to keep")


_WRITERS: dict[type, Callable[[Any, str, int], Json]] = {
    tuple: _tuple,
    set: _unordered("set"),
    frozenset: _unordered("frozenset"),
    bytes: _text("bytes", lambda v: base64.b64encode(v).decode()),
    datetime: _moment,
    date: _text("date", date.isoformat),
    time: _moment,
    timedelta: lambda v, path, depth: {"$": "timedelta", "v": [v.days, v.seconds, v.microseconds]},
    Decimal: _text("decimal", str),
    UUID: _text("uuid", str),
    SecretStr: lambda v, path, depth: {"$": "secret", "v": "text"},  # the secret itself is never written
    SecretBytes: lambda v, path, depth: {"$": "secret", "v": "bytes"},
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "str": "".join,
    "int": lambda v: int(v, 16),
    "float": float,
    "bytes": lambda v: base64.b64decode(v, validate=True),
    "datetime": datetime.fromisoformat,
    "zoned datetime": lambda v: datetime.fromisoformat(v[0]).replace(tzinfo=zone(v[1]), fold=v[2]),
    "zoned time": lambda v: time.fromisoformat(v[0]).replace(tzinfo=zone(v[1]), fold=v[2]),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda v: timedelta(*v),
    "decimal": Decimal,
    "uuid": UUID,
    "url": url_of,
    "path": Path,
    "PurePosixPath": PurePosixPath,
    "PureWindowsPath": PureWindowsPath,
    "secret": lambda v: SecretStr("**********") if v == "text" else SecretBytes(b"**********"),
}

_OF_ITEMS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": partial(hashed, set),
    "frozenset": partial(hashed, frozenset),
}


def _decode(data: Json, known: Mapping[str, type]) -> Any:
    if isinstance(data, list):
        return [item if type(item) in IMMUTABLE else _decode(item, known) for item in data]
    if not isinstance(data, dict):
        return data
    tag = data.get("$")
    if tag is None:
        return {key: item if type(item) in IMMUTABLE else _decode(item, known) for key, item in data.items()}
    value = data["v"]
    if "fold" in data or "zone" in data:
        moment, name = _READERS[tag](value), _decode(data.get("zone"), known)
        zone = moment.tzinfo if name is None else timezone(moment.utcoffset(), name)
        return moment.replace(fold=data.get("fold", 0), tzinfo=zone)
    if reader := _READERS.get(tag):
        return reader(value)
    if tag == "dict":
        return hashed(dict, [[_decode(key, known), _decode(item, known)] for key, item in value])
    if form := standard_types.FORMS.get(tag):
        return form.made(_decode(value, known), data)
    if make := _OF_ITEMS.get(tag):
        return make([_decode(item, known) for item in value])
    if tag in ("enum", "model", "dataclass", "namedtuple"):
        return _rebuild(data, _decode(value, known), known)
    raise NotCodable("", data, f"unknown tag {tag!r}")


def _rebuild(data: dict[str, Any], value: Any, known: Mapping[str, type]) -> Any:
    """Rebuild the recorded instance; return its plain data if its class is not declared, or has changed too much."""
    tag, name = data["$"], data["c"]
    cls: Any = known.get(name) or homes.declared(name, known)
    if cls is None and (own := homes.find(tag, name)):
        declare(cls := own)
    plain = tuple(value.values()) if tag == "namedtuple" else value
    if cls is None:
        log.warning(
            "%s is not declared in this program: its value stays plain data. To change that, codec.register(it), or "
            "annotate the step or flow with it as the return type",
            name,
        )
        return plain
    if not homes.fits(tag, cls):
        log.warning("%s is another kind of class now: its value stays plain data", name)
        return plain
    if tag == "enum":
        try:
            return cls(value)
        except ValueError:
            log.warning("%s has no %r any more: the value stays plain data", name, value)
            return value
    more: dict[str, Any] = {part: _decode(item, known) for part, item in data.items() if part not in ("$", "c", "v")}
    return instance_of(cls, name, value, more)
