"""Events of recovering from failures."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class RecoveryStartedEvent(BaseEvent):
    """A step failed and will be tried again: `delay` is the seconds until the next attempt.

    `attempt` is the number of the attempt that failed, which took `duration_ms`.
    """

    type: Literal["recovery_started"] = "recovery_started"
    kind: str
    name: str
    attempt: int
    error: str
    error_type: str
    failure: str
    """The kind of the failure: "unavailable", "timeout", "empty", ..."""
    remedy: Literal["retry", "fallback"] = "retry"
    """The choice of the failure policy: to try the same again, or to continue with the next fallback."""
    delay: float
    duration_ms: float = 0.0
