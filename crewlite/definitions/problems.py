"""What is wrong with the fields of a definition, in words: found, wanted, and what was meant.

Values are shown only where they cannot be a secret.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from crewlite.coming_from import SETTINGS_PAGE
from crewlite.coming_from.settings import settings_of, why_not
from crewlite.errors import ConfigError, meant, meant_setting
from crewlite.texts.wording import an, what_is


def refused(cls: type[BaseModel], error: ValidationError) -> ConfigError:
    """Return the error for invalid fields. A single problem keeps the class of the error that reported it."""
    listed = error.errors(include_url=False)
    found = listed[0].get("ctx", {}).get("error") if len(listed) == 1 else None
    if not isinstance(found, ConfigError):
        return ConfigError(_readable(cls, error))
    found.args = (_readable(cls, error),)
    return found


def classes_of(cls: type[BaseModel]) -> list[str]:
    """Return the names of a class and of its base classes."""
    return [base.__name__ for base in cls.__mro__]


def given_names(cls: type[BaseModel]) -> list[str]:
    """Return the names by which the fields of a class are given: of `streamed` it is `stream`."""
    return [field.alias or name for name, field in cls.model_fields.items()]


def meant_field(cls: type[BaseModel], name: str) -> str:
    """Return which field was meant by a name that is none, such as a setting of the class of a field; "" if unknown."""
    if close := meant_setting(name, given_names(cls)):
        return close
    for field, known in cls.model_fields.items():
        for one in get_args(known.annotation):
            is_settings = isinstance(one, type) and issubclass(one, BaseModel) and not hasattr(one, "kickoff")
            if is_settings and name in one.model_fields:
                return f"it is a setting: {field}={one.__name__}({name}=...)"
    return ""


def _readable(cls: type[BaseModel], error: ValidationError) -> str:
    problems, unlike, of_others, classes = [], list[str](), False, classes_of(cls)
    for name, item in each_once(error):
        if item["type"] == "extra_forbidden":
            instead = why_not(classes, name)
            close = meant_field(cls, name) or meant(name, settings_of(classes))
            of_others = of_others or bool(instead)
            hint = f": {instead}" if instead else f"; {close}" if close else ""
            problems.append(f"it has no field {name!r}{hint}")
            unlike += [] if hint else [name]
        elif item["type"] == "missing":
            problems.append(f"{name!r} is missing")
        else:
            message = item["msg"].removeprefix("Value error, ")
            if name and item["type"] not in ("union", "value_error"):
                value = item.get("input")
                is_word = item["type"] in ("literal_error", "enum") and str(value).isalpha() and len(str(value)) <= 15
                shown = is_word or isinstance(value, int | float)  # another value may hold a key
                found = found_and_wanted(item) if shown else f"is {_kind(value)}; wanted {_wanted(item)}"
                message = f"{name} {found}"
            problems.append(f"{name}: {message}" if name and name not in message else message)
    if unlike:
        problems.append(f"it has {', '.join(given_names(cls))}")
    return f"{cls.__name__}: " + "; ".join(problems) + (f" ({SETTINGS_PAGE})" if of_others else "")


def each_once(error: ValidationError) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the problems with their fields. A value that fits none of several types counts as one problem.

    If one of the types says more than that the type is wrong, its problem is the one.
    """
    listed = error.errors(include_url=False)
    for field, items in itertools.groupby(listed, lambda item: item["loc"][:1]):
        same = list(items)
        if len(same) > 1 and all(len(item["loc"]) == 2 and item["input"] is same[0]["input"] for item in same):
            wanted = ", or ".join(dict.fromkeys(_wanted(item) for item in same))
            found = what_is(same[0]["input"])  # not the value: it may hold a key
            every = {"type": "union", "msg": f"{field[0]} is {found}; wanted {wanted}"}
            yield str(field[0]), next((item for item in same if item["type"] == "value_error"), every)
        else:
            yield from ((".".join(map(str, item["loc"])), item) for item in same)


def found_and_wanted(item: Mapping[str, Any]) -> str:
    """Return a problem as text, with the value, which must not be a secret."""
    if item["type"] == "missing":
        return "is missing"
    if item["type"] == "union" or item["msg"].startswith("Value error, "):
        return str(item["msg"].removeprefix("Value error, "))
    return f"is {item['input']!r}; wanted {_wanted(item)}"


def _kind(value: object) -> str:
    """Return what a value is, in words. The value itself is left out: it may hold a key."""
    if get_origin(value) is not None:  # such as list[str]
        return str(value)
    if value is None:
        return "None"
    return "empty" if isinstance(value, list | tuple) and not value else what_is(value)


def _wanted(item: Mapping[str, Any]) -> str:
    """Return what a field, or one of several types, accepts, in words."""
    if item["type"] == "model_type":
        return an(item["ctx"]["class_name"])
    if plain := _WANTED.get(item["type"]):
        return plain
    return str(item["msg"]).removeprefix("Input should be ").replace("greater", "a number greater")


_WANTED = {
    "string_type": "text",
    **dict.fromkeys(("bool_type", "bool_parsing"), "True or False"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "path_type": "a path",
    "is_subclass_of": "a class of pydantic, such as RootModel[list[...]] for a list",
}
"""What a field accepts, by the type of pydantic's error about it."""
