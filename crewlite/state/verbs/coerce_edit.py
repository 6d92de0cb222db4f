"""Convert the plain data of an edit to the type of the recorded value: fields to a model, a text to a date.

A person who edits a step in a terminal can enter only plain data. The recorded value supplies the type.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any
from uuid import UUID

from crewlite import codec
from crewlite.codec import Json
from crewlite.errors import ConfigError
from crewlite.state.verbs.answer import Typed, typed
from crewlite.wording import an

_SHOWN = 200  # characters of a value in an error
_READERS: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "zoned datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "zoned time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": str.encode,
}
_PATHS = ("path", "PurePosixPath", "PureWindowsPath")


def read(text: Typed, recorded: Json) -> Any:
    """Convert text that a person typed to a boolean or other JSON; keep it if the recorded value is stored as text."""
    if _tag(recorded) == "enum":
        recorded = recorded["v"]
    if isinstance(recorded, str) or _tag(recorded) in {"str", *_READERS, *_PATHS}:
        return str(text)
    return typed(text, {"type": "boolean"} if isinstance(recorded, bool) else {})


def coerce(given: Json, recorded: Json, what: str) -> Json:
    """Convert encoded data to the type of the recorded value, unless it has one. Raises ConfigError about `what`."""
    tag = _tag(recorded)
    if given is None or _tag(given):
        return given
    if tag in ("model", "dataclass", "namedtuple"):
        return _fields(given, recorded, what)
    if tag == "enum":
        return _choice(given, recorded, what)
    if tag in ("tuple", "set", "frozenset"):
        return _items(given, recorded, what)
    if tag in _READERS or tag in _PATHS:
        return _text(given, recorded, what)
    if isinstance(recorded, list) and isinstance(given, list):
        return _all(given, recorded, what)
    if isinstance(recorded, dict) and isinstance(given, dict) and not tag:
        return {key: coerce(item, recorded.get(key), f"{what}, {key}") for key, item in given.items()}
    return given


def _fields(given: Json, recorded: Json, what: str) -> Json:
    known = recorded["v"]
    if _tag(known):  # with unusual field names, the codec writes pairs instead of fields
        return given
    if isinstance(given, list) and recorded["$"] == "namedtuple" and len(given) == len(known):
        given = dict(zip(known, given, strict=True))
    if not isinstance(given, dict) or given.keys() != known.keys():
        raise _misfit(given, what, f"data with the fields of {recorded['c']}: {', '.join(known)}")
    fields = {name: coerce(given[name], item, f"{what}, {name}") for name, item in known.items()}
    return {**{key: item for key, item in recorded.items() if key != "set"}, "v": fields}


def _choice(given: Json, recorded: Json, what: str) -> Json:
    was = codec.decode(recorded)
    if isinstance(was, Enum):  # this program defines the class
        choices = [codec.encode(one.value) for one in type(was)]
        if given not in choices:
            raise _misfit(given, what, f"{an(recorded['c'])}: {', '.join(map(_shown, choices))}")
    return {**recorded, "v": given}


def _items(given: Json, recorded: Json, what: str) -> Json:
    tag, known = recorded["$"], recorded["v"]
    if not isinstance(given, list):
        raise _misfit(given, what, f"a list, for a {tag}")
    if tag == "tuple":
        if len(given) == len(known):
            pairs = enumerate(zip(given, known, strict=True))
            return {"$": tag, "v": [coerce(item, was, f"{what}[{n}]") for n, (item, was) in pairs]}
        return {"$": tag, "v": _all(given, known, what)}
    one_each = {json.dumps(item, sort_keys=True): item for item in _all(given, known, what)}
    return {"$": tag, "v": [one_each[text] for text in sorted(one_each)]}


def _all(given: list[Json], recorded: list[Json], what: str) -> list[Json]:
    """Convert each item to the type of the recorded items; return the items unchanged if those have several types."""
    if len({(type(item), _tag(item), _tag(item) and item.get("c")) for item in recorded}) != 1:
        return given
    return [coerce(item, recorded[0], f"{what}[{n}]") for n, item in enumerate(given)]


def _text(given: Json, recorded: Json, what: str) -> Json:
    tag, was = recorded["$"], codec.decode(recorded)
    if tag == "decimal" and isinstance(given, int | float) and not isinstance(given, bool):
        given = str(given)
    try:
        made = _READERS.get(tag, type(was))(given)
    except (TypeError, ValueError, InvalidOperation) as error:
        raise _misfit(given, what, f"{an(type(was).__name__)}, such as {was}") from error
    if tag.startswith("zoned") and made.tzinfo is None:
        made = made.replace(tzinfo=was.tzinfo)
    return codec.encode(made, what)


def _tag(data: Json) -> Any:
    return data.get("$") if isinstance(data, dict) else None


def _misfit(given: Json, what: str, wanted: str) -> ConfigError:
    return ConfigError(f"{what} is {_shown(given)}; wanted {wanted}, like the recorded value")


def _shown(data: Json) -> str:
    text = codec.dumps(data).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
