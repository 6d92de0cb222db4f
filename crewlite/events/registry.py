"""The names of all events, and the files of their classes.

The names are written out so that editors and type checkers can complete `on_events=[...]`; a test compares them with
the classes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

from crewlite.lazy import imported, lazy

if TYPE_CHECKING:
    from crewlite.events import base
    from crewlite.events.base import BaseEvent
else:
    base = lazy("crewlite.events.base")  # settings name events long before there is any

CheckpointEventType = Literal[
    "task_started",
    "task_completed",
    "task_failed",
    "task_evaluation",
    "crew_kickoff_started",
    "crew_kickoff_completed",
    "crew_kickoff_failed",
    "crew_test_started",
    "crew_test_result",
    "crew_test_completed",
    "crew_test_failed",
    "crew_train_started",
    "crew_train_completed",
    "crew_train_failed",
    "agent_execution_started",
    "agent_execution_completed",
    "agent_execution_error",
    "knowledge_retrieval_started",
    "knowledge_retrieval_completed",
    "agent_evaluation_started",
    "agent_evaluation_completed",
    "agent_evaluation_failed",
    "lite_agent_execution_started",
    "lite_agent_execution_completed",
    "lite_agent_execution_error",
    "agent_reasoning_started",
    "agent_reasoning_completed",
    "agent_reasoning_failed",
    "step_observation_started",
    "step_observation_completed",
    "step_observation_failed",
    "plan_refinement",
    "plan_replan_triggered",
    "goal_achieved_early",
    "context_window_summarization_started",
    "context_window_summarization_completed",
    "context_window_summarization_failed",
    "agent_logs_started",
    "agent_logs_execution",
    "flow_started",
    "flow_finished",
    "flow_failed",
    "flow_paused",
    "method_execution_started",
    "method_execution_finished",
    "method_execution_failed",
    "method_execution_paused",
    "human_feedback_requested",
    "human_feedback_received",
    "flow_input_requested",
    "flow_input_received",
    "llm_call_started",
    "llm_call_completed",
    "llm_call_failed",
    "llm_call_paced",
    "llm_stream_chunk",
    "llm_thinking_chunk",
    "llm_guardrail_started",
    "llm_guardrail_completed",
    "llm_guardrail_failed",
    "tool_usage_started",
    "tool_usage_finished",
    "tool_usage_error",
    "tool_validate_input_error",
    "tool_selection_error",
    "tool_execution_error",
    "failure_classified",
    "recovery_started",
    "recovery_completed",
    "recovery_failed",
    "budget_exceeded",
    "step_started",
    "step_completed",
    "step_failed",
    "step_replayed",
    "step_state_conflict",
    "SIGTERM",
    "SIGINT",
    "SIGHUP",
    "SIGTSTP",
    "SIGCONT",
]
"""Every event that may create a checkpoint."""

EventType = (
    CheckpointEventType
    | Literal[
        "flow_created",
        "flow_plot",
        "progress_reported",
        "checkpoint_started",
        "checkpoint_completed",
        "checkpoint_failed",
        "checkpoint_pruned",
        "checkpoint_fork_started",
        "checkpoint_fork_completed",
        "checkpoint_fork_failed",
        "checkpoint_rewound",
        "checkpoint_labelled",
        "checkpoint_restore_started",
        "checkpoint_restore_completed",
        "checkpoint_restore_failed",
    ]
)
"""Every event. Those outside of runs, about checkpoints and about progress never name one themselves."""

_FAMILIES = {
    "AgentLogs": "logging",
    "AgentReasoning": "reasoning",
    "AgentEvaluation": "trial",
    "Agent": "agent",
    "Budget": "step",
    "LiteAgent": "agent",
    "Checkpoint": "checkpoint",
    "ContextWindow": "agent",
    "CrewTest": "trial",
    "CrewTrain": "trial",
    "Crew": "crew",
    "FailureClassified": "recovery",
    "Flow": "flow",
    "HumanFeedback": "flow",
    "Knowledge": "knowledge",
    "LLMGuardrail": "guardrail",
    "LLM": "llm",
    "Method": "flow",
    "Progress": "progress",
    "Recovery": "recovery",
    "Sig": "signal",
    "StepObservation": "reasoning",
    "PlanRe": "reasoning",
    "GoalAchieved": "reasoning",
    "Step": "step",
    "Task": "task",
    "Tool": "tool",
}
"""The beginnings of class names, and the file of each family. The first beginning that fits counts."""


def checkpoint_event_types() -> tuple[str, ...]:
    """Return the event names that `on_events` accepts."""
    return get_args(CheckpointEventType)


def find(name: str) -> type[BaseEvent] | None:
    """Return the event class of this name, importing only its family; None if there is no such class."""
    family = next((file for start, file in _FAMILIES.items() if name.startswith(start)), None)
    return _classes(family).get(name) if family else None


@cache
def load() -> dict[str, type[BaseEvent]]:
    """Import all event classes and return them by class name."""
    found: dict[str, type[BaseEvent]] = {"BaseEvent": base.BaseEvent}
    for family in dict.fromkeys(_FAMILIES.values()):
        found |= _classes(family)
    return found


def _classes(family: str) -> dict[str, type[BaseEvent]]:
    module = vars(imported(f"crewlite.events.types.{family}_events"))
    return {
        name: value
        for name, value in module.items()
        if name[0] != "_" and name.endswith("Event") and isinstance(value, type) and issubclass(value, base.BaseEvent)
    }
