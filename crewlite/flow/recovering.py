"""What code of a flow or a step is told of the failure before this attempt."""

from __future__ import annotations

from crewlite import durable
from crewlite.recovery.context import RecoveryContext


def recovery() -> RecoveryContext | None:
    """Return what the running attempt is told of the failure before it; None in a first attempt.

    In a step that has not failed, it is what the attempt around it is told.
    """
    return durable.scope().recovery(around=True)


def recovery_hint() -> str:
    """Return the hint for the running attempt; "" without one."""
    told = recovery()
    return told.hint if told else ""
