"""A failure as plain data: what kind it is, so that a policy can decide without looking at exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crewlite.errors import CrewliteError, LLMEmptyReply, LLMUnavailable, text_of

FailureKind = Literal["unavailable", "timeout", "empty", "refused", "bug"]
"""unavailable: may work later (rate limit, server error, lost connection). timeout: took too long. empty: a reply
without content. refused: crewlite's own typed refusals, which trying again does not mend. bug: anything else."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong."""

    kind: FailureKind
    error_type: str
    message: str
    retry_after: float | None = None
    """Seconds the other side asked to wait."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Classify by type, never by words found in a text."""
        return cls(_kind(error), type(error).__qualname__, text_of(error), getattr(error, "retry_after", None))


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, LLMUnavailable):
        return "unavailable"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "unavailable"
    if isinstance(error, LLMEmptyReply):
        return "empty"
    return "refused" if isinstance(error, CrewliteError) else "bug"
