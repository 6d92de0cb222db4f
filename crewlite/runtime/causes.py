"""What is told of a failure: its type and traceback, the child steps it came from, the author's error behind it."""

from __future__ import annotations

from collections.abc import Iterator

from crewlite import tracebacks
from crewlite.errors import Redacted, StepRaised, ends_run
from crewlite.runtime.frame import Frame

_LONGEST_TRACEBACK = 4000  # characters


def causes_of(frame: Frame, error: BaseException) -> list[str]:
    """The child steps that a failure came from: theirs is this very error, or one that led to it."""
    return list(dict.fromkeys(child for _, children in led_to(frame, error) for child in children))


def for_author(frame: Frame, error: BaseException) -> BaseException | None:
    """The error for the author of the program that a failure is, or came from, whatever the code around made of it."""
    return next((one for one, _ in led_to(frame, error) if ends_run(one)), None)


def led_to(frame: Frame, error: BaseException) -> Iterator[tuple[BaseException, list[str]]]:
    """This error and those that led to it, each with the child steps that failed with it."""
    seen, todo = set[int](), [error]
    while todo:
        one = todo.pop(0)
        if id(one) in seen:  # the error behind another is mostly told twice, as its cause and as its context
            continue
        seen.add(id(one))
        children = [child for child, raised in frame.children.failed.items() if raised is one]
        yield one, children
        if children:
            continue  # what was being handled when these were asked for led to no failure
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        todo += [before for before in (one.__cause__, one.__context__, *inner) if before is not None]


def type_of(error: Exception) -> str:
    """The name of an error's type, also where another stands for it."""
    return error.error_type if isinstance(error, Redacted | StepRaised) else type(error).__qualname__


def traceback_of(error: Exception) -> str:
    """The end of its traceback, as users read it."""
    text = tracebacks.text(error)
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"
