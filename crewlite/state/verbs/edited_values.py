"""Convert plain data that replaces a recorded value to the type of that value, and check that it fits.

A person who edits a step in a terminal can enter only plain data. The recorded value supplies the type: fields become a
model, a text becomes a date or a member of an enum. If the program has the class, the class decides what fits; if not,
each field takes data of the kind recorded in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, cast, get_type_hints
from uuid import UUID

from pydantic import BaseModel, ConfigDict, PydanticUserError, RootModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.encoding import codec, homes
from crewlite.encoding.codec import Json, JsonObject
from crewlite.encoding.instances import fields_of_model
from crewlite.encoding.standard_types import FORMS
from crewlite.errors import ConfigError, JournalCorrupt, text_of
from crewlite.state.reading.fitting import Typed, typed
from crewlite.texts.wording import an, cut, what_is

_SHOWN = 200  # characters of a value in an error
_READERS: dict[str, Callable[[Any], Any]] = {
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "zoned datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
    "zoned time": time.fromisoformat,
    "timedelta": lambda given: TypeAdapter(timedelta).validate_python(given),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": str.encode,
}
_BY_CLASS = ("path", "PurePosixPath", "PureWindowsPath", "url")
_KINDS = ((bool, "true or false"), (int | float, "a number"), (str, "a text"), (list, "a list"), (dict, "data by name"))


def read(text: Typed, recorded: Json) -> Any:
    """Convert text that a person typed to a boolean or other JSON; keep it if the recorded value is stored as text."""
    if _tag(recorded) == "enum" or _tag(recorded) in FORMS:
        recorded = recorded["v"]
    if isinstance(recorded, str) or _tag(recorded) in {"str", *_READERS, *_BY_CLASS}:
        return str(text)
    return typed(text, {"type": "boolean"} if isinstance(recorded, bool) else {})


def as_recorded(given: Json, recorded: Json, what: str) -> Json:
    """Convert encoded data to the type of the recorded value, unless it has one. Raises ConfigError about `what`."""
    tag = _tag(recorded)
    if given is None or _tag(given):
        return given
    if tag in ("model", "dataclass", "namedtuple"):
        return _fields(given, recorded, what)
    if tag == "enum":
        return _member(given, recorded, what)
    if tag in ("tuple", "set", "frozenset"):
        return _items(given, recorded, what)
    if tag in _READERS or tag in _BY_CLASS:
        return _text(given, recorded, what)
    if tag in FORMS:
        return _held(given, recorded, what)
    if isinstance(recorded, list) and isinstance(given, list):
        return _all(given, recorded, what)
    if isinstance(recorded, dict) and isinstance(given, dict) and not tag:
        return {key: as_recorded(item, recorded.get(key), f"{what}, {key}") for key, item in given.items()}
    return given


def _fields(given: Json, recorded: Json, what: str) -> Json:
    known = recorded["v"]
    if _tag(known):  # with unusual field names, the codec writes pairs instead of fields
        return given
    if isinstance(given, list) and recorded["$"] == "namedtuple" and len(given) == len(known):
        given = dict(zip(known, given, strict=True))
    if not isinstance(given, dict) or given.keys() != known.keys():
        raise _misfit(given, what, f"data with the fields of {recorded['c']}: {', '.join(known)}")
    fields = {name: as_recorded(given[name], item, f"{what}, {name}") for name, item in known.items()}
    if cls := homes.class_of(recorded["$"], recorded["c"]):
        fields = _validated(cls, fields, given, recorded["c"], what)
    else:
        for name, item in fields.items():
            _check_kind(item, known[name], f"{what}, {name}")
    return {**{key: item for key, item in recorded.items() if key != "set"}, "v": fields}


def _validated(cls: type, fields: JsonObject, given: Json, called: str, what: str) -> JsonObject:
    """Return the encoded fields as the class converts them, such as "3" to 3. Raises ConfigError.

    `given`: the fields as they were given, and `called` the name of the class, for the error.
    """
    values: dict[str, Any] = codec.decode(fields)
    try:
        taken = _taken(cls, values)
    except ValidationError as error:
        problem = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    except Exception as error:  # the border: a validator is code of the user's
        problem = f"{type(error).__name__}: {text_of(error)}"
    else:
        made = dict(fields)  # also those that the class has no more
        for name in values.keys() & taken.keys():
            coded = codec.encode(taken[name], f"{what}, {name}")
            if coded != codec.encode(values[name]):
                made[name] = coded
        return made
    raise _misfit(given, what, f"data that {called} takes ({problem})")


def _taken(cls: type, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the values for the fields of a class. Raises ValidationError, and what validators raise.

    Those of a dataclass or named tuple are checked by its type hints, so that none of its own code runs.
    """
    if issubclass(cls, BaseModel):
        given = values["root"] if issubclass(cls, RootModel) else values
        own, extra = fields_of_model(cls.model_validate(given, by_alias=True, by_name=True))
        return own | extra
    try:
        hints = get_type_hints(cls, include_extras=True)
        shape = cast(Any, TypedDict)(cls.__name__, {name: hints.get(name, Any) for name in values})
        shape.__pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)
        adapter: TypeAdapter[Mapping[str, Any]] = TypeAdapter(shape)
    except (NameError, TypeError, PydanticUserError):  # type hints that the program, or pydantic, does not know
        return values
    return adapter.validate_python(values)


def _check_kind(given: Json, recorded: Json, what: str) -> None:
    """Raise ConfigError if plain data is of another kind than the recorded plain data. None fits any kind."""
    if given is None or recorded is None or _tag(given) or _tag(recorded):
        return
    cls, wanted = next((cls, name) for cls, name in _KINDS if isinstance(recorded, cls))
    if not isinstance(given, cls) or isinstance(given, bool) is not isinstance(recorded, bool):
        raise _misfit(
            given, what, wanted, "; a program that has imported the class of the value may pass what that class accepts"
        )


def _member(given: Json, recorded: Json, what: str) -> Json:
    """Return the member of an enum that has this value, or this name."""
    cls: Any = homes.class_of("enum", recorded["c"])
    if cls is None:
        _check_kind(given, recorded["v"], what)
        return {**recorded, "v": given}
    try:
        found: Enum = cls(codec.decode(given))
    except (ValueError, TypeError):
        if not isinstance(given, str) or given not in cls.__members__:
            raise _misfit(given, what, f"{an(recorded['c'])}: {', '.join(map(_choice, cls))}") from None
        found = cls[given]
    return {**recorded, "v": codec.encode(found.value)}


def _choice(member: Enum) -> str:
    value = _shown(codec.encode(member.value))
    return value if isinstance(member.value, str) else f"{value} ({member.name})"


def _items(given: Json, recorded: Json, what: str) -> Json:
    tag, known = recorded["$"], recorded["v"]
    if not isinstance(given, list):
        raise _misfit(given, what, f"a list, for a {tag}")
    if tag == "tuple":
        if len(given) == len(known):
            pairs = enumerate(zip(given, known, strict=True))
            return {"$": tag, "v": [as_recorded(item, was, f"{what}[{n}]") for n, (item, was) in pairs]}
        return {"$": tag, "v": _all(given, known, what)}
    one_each = {json.dumps(item, sort_keys=True): item for item in _all(given, known, what)}
    made = {"$": tag, "v": [one_each[text] for text in sorted(one_each)]}
    if not isinstance(codec.decode(made), set | frozenset):
        raise _misfit(given, what, f"a list of what a {tag} can hold: no list and no dict")
    return made


def _all(given: list[Json], recorded: list[Json], what: str) -> list[Json]:
    """Convert each item to the type of the recorded items; return the items unchanged if those have several types."""
    if len({(type(item), _tag(item), _tag(item) and item.get("c")) for item in recorded}) != 1:
        return given
    return [as_recorded(item, recorded[0], f"{what}[{n}]") for n, item in enumerate(given)]


def _text(given: Json, recorded: Json, what: str) -> Json:
    tag, was = recorded["$"], codec.decode(recorded)
    if tag == "decimal" and isinstance(given, int | float) and not isinstance(given, bool):
        given = str(given)
    try:
        made = _READERS.get(tag, type(was))(given)
    except (TypeError, ValueError, InvalidOperation) as error:
        raise _misfit(given, what, f"{what_is(was)}, such as {was}") from error
    if getattr(was, "tzinfo", None) and made.tzinfo is None:
        made = made.replace(tzinfo=was.tzinfo)
    return codec.encode(made, what)


def _held(given: Json, recorded: Json, what: str) -> Json:
    """Convert what a Counter, a deque, a Fraction or another such value is to hold."""
    if recorded["$"] == "OrderedDict" and isinstance(given, dict) and "$" not in given:
        given = [[*pair] for pair in given.items()]
    _check_kind(given, recorded["v"], what)
    made = {**recorded, "v": as_recorded(given, recorded["v"], what)}
    try:
        codec.decode(made)
    except JournalCorrupt:
        raise _misfit(given, what, f"what {an(recorded['$'])} holds, such as {_shown(recorded['v'])}") from None
    return made


def _tag(data: Json) -> Any:
    return data.get("$") if isinstance(data, dict) else None


def _misfit(given: Json, what: str, wanted: str, instead: str = "") -> ConfigError:
    return ConfigError(f"{what} is {_shown(given)}; wanted {wanted}, like the recorded value{instead}")


def _shown(data: Json) -> str:
    return cut(codec.dumps(data).decode(), _SHOWN)
