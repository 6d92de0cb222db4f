"""A failure as plain data: what kind it is, so that a policy can decide without looking at exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crewlite.errors import (
    CrewliteError,
    DeadlineExceeded,
    LLMEmptyReply,
    LLMUnavailable,
    StepCrashed,
    StepRaised,
    text_of,
)

FailureKind = Literal["unavailable", "later", "timeout", "empty", "refused", "bug"]
"""unavailable: may work later (rate limit, server error, lost connection). later: the other side asks to wait longer
than a run should. timeout: took too long. empty: a reply without content. refused: crewlite's own typed refusals, which
trying again does not mend. bug: anything else."""

LONGEST_WAIT = 60.0
"""Seconds that a run waits at most before it tries again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong."""

    kind: FailureKind
    error_type: str
    message: str
    retry_after: float | None = None
    """Seconds the other side asked to wait."""
    address: str = ""
    """The step that failed: it seeds the jitter, so that a delay replays."""
    fallbacks: int = 0
    """How many other ways of doing it are left, such as fallbacks of a model."""

    @classmethod
    def of(cls, error: BaseException, address: str = "", fallbacks: int = 0) -> Failure:
        """Classify by type, never by words found in a text."""
        kind, wait = _kind(error), getattr(error, "retry_after", None)
        if kind == "unavailable" and wait is not None and wait > LONGEST_WAIT:
            kind = "later"
        return cls(kind, type(error).__qualname__, text_of(error), wait, address, fallbacks)


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, LLMUnavailable):
        return "unavailable"
    if isinstance(error, TimeoutError) and not isinstance(error, DeadlineExceeded):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "unavailable"
    if isinstance(error, LLMEmptyReply):
        return "empty"
    if isinstance(error, StepCrashed | StepRaised):
        return "bug"  # of the code in the other process, as it would be here
    return "refused" if isinstance(error, CrewliteError) else "bug"
