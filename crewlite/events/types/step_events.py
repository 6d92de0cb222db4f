"""Events of durable steps: callbacks, and whatever was answered from the record."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class _StepEvent(BaseEvent):
    kind: str
    name: str
    step_type: str | None = None
    """What sort of work it is, in its author's words: `@step(type="llm_call")`."""


class StepStartedEvent(_StepEvent):
    """A step begins."""

    type: Literal["step_started"] = "step_started"


class StepCompletedEvent(_StepEvent):
    """A step's outcome is recorded."""

    type: Literal["step_completed"] = "step_completed"
    reused_from: str | None = None
    """Where the outcome was taken from, as `run/branch@address`: another run came to it, and this one did nothing."""


class StepFailedEvent(_StepEvent):
    """A step gave up, at the try numbered `attempt`, which took so many milliseconds."""

    type: Literal["step_failed"] = "step_failed"
    error: str
    error_type: str
    attempt: int = 1
    duration_ms: float = 0.0


class StepReplayedEvent(_StepEvent):
    """A finished step answered from the record: no call, no cost, no side effect.

    `changed` names what is no longer as it was recorded: "question" (kept because of on_drift="keep"), "model",
    "template", "version". `drifted` has the addresses of the tasks, itself or in it, whose answers were kept
    though they are asked something else now.
    """

    type: Literal["step_replayed"] = "step_replayed"
    failed: bool = False
    """What it answered with is its failure."""
    changed: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()


class StepStateConflictEvent(BaseEvent):
    """A step and another beside it changed the same names of the state; those of this one count, as it ended later."""

    type: Literal["step_state_conflict"] = "step_state_conflict"
    names: tuple[str, ...]
