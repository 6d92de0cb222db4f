"""Errors as plain data, to be raised again by a later resume or in another process.

The error is raised as its own class if that is loaded here and the error's arguments could be encoded; otherwise as
`StepRaised`. For this, nothing is imported, and no code of the class runs.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from crewlite import codec
from crewlite.errors import NotCodable, StepRaised
from crewlite.state.format.failed import RaisedError


@dataclass(frozen=True, slots=True)
class Told:
    """A failure that another process has reported."""

    error_type: str
    message: str
    traceback: str
    raised: RaisedError | None


class Failure(Protocol):
    """A failure as plain data."""

    @property
    def error_type(self) -> str:
        """The name of the error's class."""

    @property
    def message(self) -> str:
        """The error's text."""

    @property
    def traceback(self) -> str:
        """The traceback as text; "" if that of a failed child step is recorded instead."""

    @property
    def raised(self) -> RaisedError | None:
        """The result of `written` for the error; None if it was not recorded."""


def written(error: BaseException) -> RaisedError:
    """Return an error as data, from which `raised` builds it again: its class, and the fields that can be encoded."""
    raised: RaisedError = {"cls": codec.class_name(type(error))}
    with contextlib.suppress(NotCodable):
        raised["args"] = codec.encode(list(_arguments(error)))
        raised["fields"] = codec.encode(vars(error))
    return raised


def raised(step: str, failure: Failure) -> Exception:
    """Build the error that a step failed with: an object of its class if that is loaded here, else a StepRaised."""
    raised = failure.raised
    cls = _loaded(raised["cls"]) if raised and "fields" in raised else None
    if raised is None or cls is None:
        return StepRaised(step, failure.error_type, failure.message, failure.traceback)
    args, fields = codec.decode(raised["args"]), codec.decode(raised["fields"])
    try:
        error: Exception = _builtin(cls).__new__(cls, *args)
        _builtin(cls).__init__(error, *args)  # not the class's own __init__, which may take other arguments
        vars(error).update(fields)
    except Exception:  # noqa: BLE001 - the border: a user's class may raise anything here
        return StepRaised(step, failure.error_type, failure.message, failure.traceback)
    return error


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Return the arguments of the error's built-in base class. For an OSError these are more than `args`."""
    return tuple(_builtin(type(error)).__reduce__(error)[1])


def _builtin(cls: type) -> Any:
    """Return the built-in class whose fields the objects of a class have, such as OSError."""
    base = cls
    while base.__module__ != "builtins":
        base = base.__base__ or object
    return base


def _loaded(name: str) -> type[Exception] | None:
    """Return the exception class of this name if its module is loaded already, else None."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
