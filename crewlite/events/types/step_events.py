"""Events of durable steps, of all steps that were answered from the record, and of budgets."""

from __future__ import annotations

from typing import ClassVar, Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _StepEvent(BaseEvent):
    kind: str
    name: str
    step_type: str | None = None
    """The kind of work, in the words of the step's author: `@step(type="llm_call")`."""


class StepStartedEvent(_StepEvent):
    """A step begins."""

    type: Literal["step_started"] = "step_started"


class StepCompletedEvent(_StepEvent):
    """A step's outcome is recorded."""

    type: Literal["step_completed"] = "step_completed"
    reused_from: str | None = None
    """Where a cached outcome came from, as `run/branch@address`: another run did the work, and this one did none."""


class StepFailedEvent(_StepEvent, ErrorFields):
    """A step failed and is not tried again. `attempt` is the number of the last attempt, which took `duration_ms`."""

    type: Literal["step_failed"] = "step_failed"
    attempt: int = 1
    duration_ms: float = 0.0


class StepReplayedEvent(_StepEvent):
    """A finished step answered from the record: no call, no cost, no side effect.

    `changed` names the parts that differ from the record: "question" (kept because of on_drift="keep"), "model",
    "template", "version". `drifted` has the addresses of the tasks, itself or inside it, whose answers were kept
    although they are asked something else now. It is not recorded: a resume adds nothing about steps that had finished.
    """

    type: Literal["step_replayed"] = "step_replayed"
    fleeting: ClassVar[bool] = True

    failed: bool = False
    """Whether it answered with its recorded failure."""
    changed: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()


class StepStateConflictEvent(BaseEvent):
    """A step and another beside it changed the same names of the state; those of this one count, as it ended later."""

    type: Literal["step_state_conflict"] = "step_state_conflict"
    names: tuple[str, ...]


class BudgetExceededEvent(BaseEvent):
    """A budget is used up, and the run stops. It goes on when it is kicked off with a higher limit."""

    type: Literal["budget_exceeded"] = "budget_exceeded"
    owner: str
    """Whose budget, such as "task 'write'"."""
    setting: str
    """max_tokens, max_cost_usd, max_execution_time or max_iter."""
    limit: float
    used: float
