"""Events of recovering from failures."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class RecoveryStartedEvent(BaseEvent):
    """A step failed and will be tried again: `attempt` is the try that failed, `delay` the seconds until the next."""

    type: Literal["recovery_started"] = "recovery_started"
    kind: str
    name: str
    attempt: int
    error: str
    error_type: str
    failure: str
    """What sort of failure it is: "unavailable", "timeout", "empty", ..."""
    delay: float
