"""Describe the failure of a step: its type and traceback, and the child steps and errors that caused it.

A frame is one attempt at a step: it knows which of the step's child steps have failed, and with which errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from crewlite.errors import Redacted, StepRaised, ends_run, text_of
from crewlite.runtime.steps.frame import Frame
from crewlite.texts import tracebacks

_LONGEST_MESSAGE = 10_000  # characters
_LONGEST_TRACEBACK = 4000


def causes_of(frame: Frame, error: BaseException) -> list[str]:
    """Return the addresses of the child steps that raised `error`, or an error that led to it."""
    return list(dict.fromkeys(child for _, children in led_to(frame, error) for child in children))


def for_author(frame: Frame, error: BaseException) -> BaseException | None:
    """Return the error that only the program's author can fix: `error`, or one that led to it; None if neither is."""
    return next((one for one, _ in led_to(frame, error) if ends_run(one)), None)


def led_to(frame: Frame, error: BaseException) -> Iterator[tuple[BaseException, list[str]]]:
    """Yield an error, then the errors that caused it (causes, contexts, members of a group), the nearest first.

    Each comes with the addresses of the child steps of `frame` that raised it.
    """
    failed: dict[int, list[str]] = {}
    for address, raised in frame.children.failed.items():
        failed.setdefault(id(raised), []).append(address)
    seen, todo = set[int](), deque([error])
    while todo:
        one = todo.popleft()
        if id(one) in seen:  # the cause of an error is mostly its context too
            continue
        seen.add(id(one))
        children = failed.get(id(one), [])
        yield one, children
        if children:
            continue  # an error that was being handled when these steps were requested did not cause their failure
        inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        todo += [before for before in (one.__cause__, one.__context__, *inner) if before is not None]


def type_of(error: Exception) -> str:
    """Return the name of an error's type; for a Redacted or StepRaised, that of the error it replaces."""
    return error.error_type if isinstance(error, Redacted | StepRaised) else type(error).__qualname__


def message_of(error: Exception) -> str:
    """Return the text of an error that holds no secret; of a very long text, the beginning.

    For a Redacted or StepRaised, this is the text of the error it replaces, without its type.
    """
    text = error.message if isinstance(error, Redacted | StepRaised) else text_of(error)
    if (more := len(text) - _LONGEST_MESSAGE) <= 0:
        return text
    return f"{text[:_LONGEST_MESSAGE]}... ({more:,} more characters are not recorded)"


def traceback_of(error: Exception, mask: Callable[[str], str]) -> str:
    """Return the end of an error's traceback, masked, without crewlite's own frames."""
    text = mask(tracebacks.text(error))  # mask before cutting: a part of a secret would not be recognised
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"
