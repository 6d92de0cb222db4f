"""An error as plain data, and raised again from it: where a step failed in another life, or in another process.

It comes back as what it was if its class is loaded here, and its arguments could be written down; else `StepRaised`
stands for it. Nothing is imported for it, and of its class nothing runs but `__new__`.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from crewlite import codec
from crewlite.errors import NotCodable, StepRaised
from crewlite.state.format.commit import RaisedError


@dataclass(frozen=True, slots=True)
class Told:
    """How something failed elsewhere."""

    error_type: str
    message: str
    traceback: str
    raised: RaisedError | None


class Failure(Protocol):
    """How something failed, as it was told."""

    @property
    def error_type(self) -> str:
        """The name of its class."""

    @property
    def message(self) -> str:
        """Its text."""

    @property
    def traceback(self) -> str:
        """Where it came from; "" if that is told elsewhere."""

    @property
    def raised(self) -> RaisedError | None:
        """What `written` said of it; None if that was never asked."""


def written(error: BaseException) -> RaisedError:
    """What it takes to raise an error again, as far as it can be written down."""
    raised: RaisedError = {"cls": codec.class_name(type(error))}
    with contextlib.suppress(NotCodable):
        raised["args"] = codec.encode(list(_arguments(error)))
        raised["fields"] = codec.encode(vars(error))
    return raised


def raised(step: str, failure: Failure) -> Exception:
    """The error that a step failed with."""
    raised = failure.raised
    cls = _loaded(raised["cls"]) if raised and "fields" in raised else None
    if raised is None or cls is None:
        return StepRaised(step, failure.error_type, failure.message, failure.traceback)
    args, fields = codec.decode(raised["args"]), codec.decode(raised["fields"])
    try:
        error: Exception = cls.__new__(cls, *args)
        _builtin(cls).__init__(error, *args)  # and not its own, which may want something else
        vars(error).update(fields)
    except Exception:  # noqa: BLE001 - the border: whatever the class of somebody else does when it is made so
        return StepRaised(step, failure.error_type, failure.message, failure.traceback)
    return error


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """What its built-in base is made of: of an OSError that is more than `args`."""
    return tuple(_builtin(type(error)).__reduce__(error)[1])


def _builtin(cls: type) -> Any:
    """The class of Python's own that it is made from."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _loaded(name: str) -> type[Exception] | None:
    """The class of that name, if this program has it already."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
