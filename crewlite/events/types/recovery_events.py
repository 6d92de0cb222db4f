"""Events of recovering from failures."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _Failed(ErrorFields):
    kind: str
    name: str
    """The name of the step; of a model call, the model that was asked."""
    attempt: int
    """The number of the try that failed, counted over all kickoffs of the run."""
    failure: str
    """The kind of the failure: "unavailable", "timeout", "empty", ..."""
    failure_type: str = ""
    """What went wrong, as a classifier says: "hallucinated_state", ...; "" without a classifier."""


class FailureClassifiedEvent(_Failed):
    """A classifier has said what went wrong in a failed step, in its try number `attempt`."""

    type: Literal["failure_classified"] = "failure_classified"
    evidence: tuple[dict[str, str], ...] = ()
    """What speaks for the type: mappings with the name of a `rule` and a `text`."""


class RecoveryStartedEvent(_Failed):
    """A step failed and will be tried again: `delay` is the seconds until the next try.

    `attempt` is the number of the try that failed, which took `duration_ms`.
    """

    type: Literal["recovery_started"] = "recovery_started"
    remedy: str = "retry"
    """The choice of the failure policy: to "retry" the same, to take the next "fallback", to "replan", ..."""
    hint: str = ""
    """What the next attempt is told."""
    delay: float
    duration_ms: float = 0.0


class RecoveryCompletedEvent(BaseEvent):
    """A step has succeeded in its try number `attempt`, after remedies, of which `remedy` was the last."""

    type: Literal["recovery_completed"] = "recovery_completed"
    kind: str
    name: str
    attempt: int
    """The number of the try that succeeded, counted over all kickoffs of the run."""
    remedy: str


class RecoveryFailedEvent(_Failed):
    """No remedy is left: the step fails, though there were remedies before, or its policy escalates the failure."""

    type: Literal["recovery_failed"] = "recovery_failed"
    remedy: str
    """How the policy gives up: "abort" or "escalate"."""
    reason: str = ""
