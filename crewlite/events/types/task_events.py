"""Events of tasks."""

from __future__ import annotations

from typing import Any, Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _TaskEvent(BaseEvent):
    task_name: str | None = None
    agent_role: str | None = None


class _TaskStepEvent(_TaskEvent):
    @property
    def task(self) -> Any:
        """The task, which emits it."""
        return self.source


class TaskStartedEvent(_TaskStepEvent):
    """A task begins."""

    type: Literal["task_started"] = "task_started"
    description: str
    expected_output: str
    context: tuple[str, ...] = ()
    """Addresses of the tasks whose outputs it is given as context."""


class TaskCompletedEvent(_TaskStepEvent):
    """A task's output is recorded, after validation, output file and callback."""

    type: Literal["task_completed"] = "task_completed"
    output: Any
    """The TaskOutput."""


class TaskFailedEvent(_TaskStepEvent, ErrorFields):
    """A task failed and is not tried again."""

    type: Literal["task_failed"] = "task_failed"


class TaskEvaluationEvent(_TaskEvent):
    """A model is about to judge the answer to a task, or, in a training, the answers of an agent."""

    type: Literal["task_evaluation"] = "task_evaluation"
    evaluation_type: Literal["task_evaluation", "training_data_evaluation"]
