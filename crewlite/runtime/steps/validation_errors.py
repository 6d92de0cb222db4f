"""Validation errors of pydantic as plain data. Unlike other errors, they cannot be built from arguments and fields.

An input that cannot be recorded is left out. The text of the rebuilt error then shows no inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from crewlite.encoding import codec
from crewlite.state.format.failed import RaisedError, ValidationLine, ValidationRecord


def written(
    error: ValidationError,
    codable: Callable[[dict[str, Any]], dict[str, Any]],
    other: Callable[[BaseException], RaisedError],
) -> ValidationRecord:
    """Return what the error holds as data.

    `codable` returns those fields that can be recorded; `other` returns the data of an error that a validator raised.
    """
    arguments: Any = error.__reduce__()[1]  # the arguments of from_exception_data
    title, found, input_type, hidden = arguments
    # inputs that the model hides from the text are not recorded either
    lines = [_line({**line, "input": None} if hidden else line, codable, other) for line in found]
    hidden = hidden or any("input" not in line for line in lines)
    return {"title": title, "input_type": input_type, "hidden": hidden, "lines": lines}


def built(record: ValidationRecord, other: Callable[[RaisedError], BaseException]) -> ValidationError:
    """Build the error from its data. Raises KeyError, TypeError or ValueError for a type that is unknown by now."""
    lines = [_details(line, other) for line in record["lines"]]
    return ValidationError.from_exception_data(record["title"], lines, record["input_type"], record["hidden"])


def _line(
    line: dict[str, Any],
    codable: Callable[[dict[str, Any]], dict[str, Any]],
    other: Callable[[BaseException], RaisedError],
) -> ValidationLine:
    kind, context, name = line["type"], dict(line.get("ctx") or {}), f"input of {'.'.join(map(str, line['loc']))}"
    found: ValidationLine = {"type": str(kind), "loc": codec.encode(line["loc"])}
    if isinstance(kind, PydanticCustomError):
        found["type"], found["template"] = kind.type, kind.message_template
    elif kind not in get_args(core_schema.ErrorType):  # a custom one: before 2.14.1, pydantic gives only its text
        found["template"] = line["msg"]
    if isinstance(context.get("error"), BaseException):
        found["error"] = other(context.pop("error"))
    if context:
        found["ctx"] = codec.encode(codable(context))
    if name in (kept := codable({name: line["input"]})):
        found["input"] = codec.encode(kept[name])
    return found


def _details(line: ValidationLine, other: Callable[[RaisedError], BaseException]) -> InitErrorDetails:
    context: dict[str, Any] = codec.decode(line.get("ctx")) or {}
    if "error" in line:
        context["error"] = other(line["error"])
    details: InitErrorDetails = {
        "type": line["type"],
        "loc": codec.decode(line["loc"]),
        "input": codec.decode(line.get("input")),
    }
    if "template" in line:  # the program's own type, with a name of its own
        kind: Any = line["type"]
        details["type"] = PydanticCustomError(kind, line["template"], context or None)
    elif context:
        details["ctx"] = context
    return details
