"""Describe a failure: its type and traceback, the child steps that caused it, the error for the author behind it."""

from __future__ import annotations

from collections.abc import Iterator

from crewlite import tracebacks
from crewlite.errors import Redacted, StepRaised, ends_run
from crewlite.runtime.frame import Frame

_LONGEST_TRACEBACK = 4000  # characters


def causes_of(frame: Frame, error: BaseException) -> list[str]:
    """Return the child steps that caused a failure: they failed with this very error, or with one that led to it."""
    return list(dict.fromkeys(child for _, children in led_to(frame, error) for child in children))


def for_author(frame: Frame, error: BaseException) -> BaseException | None:
    """Return the error for the author of the program that a failure is, or was caused by; None if there is none."""
    return next((one for one, _ in led_to(frame, error) if ends_run(one)), None)


def led_to(frame: Frame, error: BaseException) -> Iterator[tuple[BaseException, list[str]]]:
    """Yield this error and the errors that led to it, each with the child steps that failed with it."""
    seen, todo = set[int](), [error]
    while todo:
        one = todo.pop(0)
        if id(one) in seen:  # an error is mostly linked twice, as the cause and as the context
            continue
        seen.add(id(one))
        children = [child for child, raised in frame.children.failed.items() if raised is one]
        yield one, children
        if children:
            continue  # errors that were being handled when these steps were requested are not their cause
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        todo += [before for before in (one.__cause__, one.__context__, *inner) if before is not None]


def type_of(error: Exception) -> str:
    """Return the name of an error's type; for an error that stands for another, the type of that one."""
    return error.error_type if isinstance(error, Redacted | StepRaised) else type(error).__qualname__


def traceback_of(error: Exception) -> str:
    """Return the end of an error's traceback, without crewlite's own frames."""
    text = tracebacks.text(error)
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"
