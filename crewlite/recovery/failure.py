"""A failure as plain data, with its kind, so that a policy can decide without inspecting exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crewlite.errors import (
    CrewliteError,
    DeadlineExceeded,
    LLMEmptyReply,
    LLMUnavailable,
    StateConflict,
    StepCrashed,
    StepRaised,
    text_of,
)

FailureKind = Literal["unavailable", "later", "timeout", "empty", "refused", "bug"]
"""unavailable: may work later (rate limit, server error, lost connection). later: the same, but the service asks to
wait longer than `LONGEST_WAIT`. timeout: took too long. empty: a reply without content. refused: any other error of
crewlite, which a retry cannot fix. bug: anything else."""

LONGEST_WAIT = 60.0
"""The maximum number of seconds that a run waits before a retry."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, as a policy sees it."""

    kind: FailureKind
    error_type: str
    message: str
    retry_after: float | None = None
    """The seconds that the service asked to wait; None if it did not."""
    address: str = ""
    """The address of the step that failed. It seeds the jitter, so that a resumed run computes the same delay."""
    fallbacks: int = 0
    """The number of fallbacks that are left, such as other models."""

    @classmethod
    def of(cls, error: BaseException, address: str = "", fallbacks: int = 0) -> Failure:
        """Build the failure of an error. The kind follows from the type of the error, never from its text."""
        kind, wait = _kind(error), getattr(error, "retry_after", None)
        if kind == "unavailable" and wait is not None and wait > LONGEST_WAIT:
            kind = "later"
        return cls(kind, type(error).__qualname__, text_of(error), wait, address, fallbacks)


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, LLMUnavailable | StateConflict):
        return "unavailable"
    if isinstance(error, TimeoutError) and not isinstance(error, DeadlineExceeded):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "unavailable"
    if isinstance(error, LLMEmptyReply):
        return "empty"
    if isinstance(error, StepCrashed | StepRaised):
        return "bug"  # an error of the user's code in another process, classified as in this one
    return "refused" if isinstance(error, CrewliteError) else "bug"
