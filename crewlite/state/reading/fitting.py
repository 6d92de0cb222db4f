"""Answers and the JSON schema of their question: what fits, in words; what typed text is converted to; what misfits."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from crewlite.lazy import lazy

referencing = lazy("referencing")
jsonschema = lazy("jsonschema")  # only answers given from outside of a run need it; a run checks with its own classes
_FORMATS: dict[str, Any] = {"date": date, "date-time": datetime, "time": time, "duration": timedelta, "uuid": UUID}
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}/]")
_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}


class Typed(str):
    """An answer as a person has typed it; `typed` converts it to the type that the question wants."""


def typed(text: str, schema: Any) -> Any:
    """Convert text that a person typed to the type that a schema wants; None stands for any text.

    Returns the text itself where a string is wanted, True or False for yes or no where a boolean is wanted, otherwise
    the text parsed as JSON, or unchanged if it is not JSON.
    """
    text = str(text)
    wanted = "string" if schema is None else schema.get("type")
    if wanted == "string":
        return text
    if _takes_yes_or_no(schema) and (answer := _YES_OR_NO.get(text.strip().lower())) is not None:
        return answer
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


def converted(value: Any, schema: Any) -> Any:
    """Return the answer that a person meant: typed text is converted by `typed`, yes or no to True or False.

    A text that fits the schema stays a text.
    """
    if isinstance(value, Typed):
        return typed(value, schema)
    if isinstance(value, str) and _takes_yes_or_no(schema) and misfit(value, schema):
        return _YES_OR_NO.get(value.strip().lower(), value)
    return value


def _takes_yes_or_no(schema: Any) -> bool:
    return schema is not None and (schema.get("type") == "boolean" or {"type": "boolean"} in schema.get("anyOf", ()))


def misfit(value: Any, schema: Any) -> str:
    """Return in words why an answer does not fit a JSON schema; "" if it fits. A schema of None accepts any text."""
    if schema is None:
        return "" if isinstance(value, str) else f"{value!r} is not a text"
    validator = jsonschema.Draft202012Validator(schema, registry=referencing.Registry(), format_checker=_formats())
    try:
        error = jsonschema.exceptions.best_match(validator.iter_errors(to_jsonable_python(value)))
    except (
        jsonschema.exceptions.UnknownType,
        referencing.exceptions.Unresolvable,
        re.error,
        TypeError,
        RecursionError,
    ):
        return ""  # a tool's own schema that cannot be followed: the run checks by the tool itself
    if not error:
        return ""
    problem, wanted = _problem(error, schema), what_fits(schema)
    return problem if wanted in problem else f"{problem}; wanted {wanted}"


def _problem(error: Any, schema: Any) -> str:
    """Return a sentence about the part of an answer that does not fit, with the path of that part."""
    within = max(error.context, key=lambda inner: len(inner.absolute_path), default=error)
    if at := ".".join(map(str, within.absolute_path)):
        return f"{at}: {within.message}"
    return (
        f"{error.instance!r}: wanted {schema['description']}"
        if "description" in schema and (error.context or error.validator == "pattern")
        else error.message
    )


@cache
def _formats() -> Any:
    formats = jsonschema.FormatChecker()
    for name, kind in _FORMATS.items():
        formats.checks(name, raises=ValidationError)(_reader(kind))
    return formats


def _reader(kind: Any) -> Any:
    adapter = TypeAdapter(kind)
    return lambda text: adapter.validate_python(text) is not None


def what_fits(schema: Any) -> str:
    """Return in words which answers fit a JSON schema, None for any text; for a complex schema, the schema itself."""
    if schema is None:
        return "any text"
    if isinstance(schema.get("enum"), list):
        return f"one of {', '.join(str(choice) for choice in schema['enum'])}"
    if schema.get("type") == "boolean":
        return "yes or no"
    if "description" in schema and ({"type": "boolean"} in schema.get("anyOf", ()) or "pattern" in schema):
        return str(schema["description"])
    if schema.get("type") in ("integer", "number", "string") and not schema.keys() - {"type", "title", "description"}:
        plain = {"integer": "a whole number", "number": "a number", "string": "any text"}[schema["type"]]
        return str(schema.get("description", plain))
    return f"JSON that fits {json.dumps(schema)}"


def begins_with(names: Iterable[str]) -> str:
    """Return the pattern of texts that are one of these names, or begin with one and a colon, in any case."""
    return rf"^\s*({'|'.join(''.join(map(_any_case, name.strip())) for name in names)})\s*(:|$)"


def _any_case(letter: str) -> str:
    """Return the pattern of a letter in any case. Patterns of JSON schemas have no flags."""
    forms = dict.fromkeys((letter.upper(), letter, letter.lower(), letter.casefold()))
    if len(forms) == 1:
        return _SPECIAL.sub(r"\\\g<0>", letter)
    return f"({'|'.join(forms)})" if any(len(form) > 1 for form in forms) else f"[{''.join(forms)}]"
