"""What is wrong with an answer, in words: checked against the JSON schema that a question has recorded."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from crewlite.lazy import lazy
from crewlite.state.reading.shown import what_fits

referencing = lazy("referencing")
jsonschema = lazy("jsonschema")  # only answers given from outside of a run need it; a run checks with its own classes
_FORMATS: dict[str, Any] = {"date": date, "date-time": datetime, "time": time, "duration": timedelta, "uuid": UUID}


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
