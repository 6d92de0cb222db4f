"""Typed events on one central bus. Families load when one of their classes is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewlite.events.base import BaseEvent
from crewlite.events.registry import CheckpointEventType, EventType, load

if TYPE_CHECKING:
    from crewlite.events.types.agent_events import (
        AgentExecutionCompletedEvent as AgentExecutionCompletedEvent,
    )
    from crewlite.events.types.agent_events import (
        AgentExecutionErrorEvent as AgentExecutionErrorEvent,
    )
    from crewlite.events.types.agent_events import (
        AgentExecutionStartedEvent as AgentExecutionStartedEvent,
    )
    from crewlite.events.types.agent_events import (
        LiteAgentExecutionCompletedEvent as LiteAgentExecutionCompletedEvent,
    )
    from crewlite.events.types.agent_events import (
        LiteAgentExecutionErrorEvent as LiteAgentExecutionErrorEvent,
    )
    from crewlite.events.types.agent_events import (
        LiteAgentExecutionStartedEvent as LiteAgentExecutionStartedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointCompletedEvent as CheckpointCompletedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointFailedEvent as CheckpointFailedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointPrunedEvent as CheckpointPrunedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointRestoreCompletedEvent as CheckpointRestoreCompletedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointRestoreFailedEvent as CheckpointRestoreFailedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointRestoreStartedEvent as CheckpointRestoreStartedEvent,
    )
    from crewlite.events.types.checkpoint_events import (
        CheckpointStartedEvent as CheckpointStartedEvent,
    )
    from crewlite.events.types.crew_events import (
        CrewKickoffCompletedEvent as CrewKickoffCompletedEvent,
    )
    from crewlite.events.types.crew_events import (
        CrewKickoffFailedEvent as CrewKickoffFailedEvent,
    )
    from crewlite.events.types.crew_events import (
        CrewKickoffStartedEvent as CrewKickoffStartedEvent,
    )
    from crewlite.events.types.llm_events import (
        LLMCallCompletedEvent as LLMCallCompletedEvent,
    )
    from crewlite.events.types.llm_events import (
        LLMCallFailedEvent as LLMCallFailedEvent,
    )
    from crewlite.events.types.llm_events import (
        LLMCallStartedEvent as LLMCallStartedEvent,
    )
    from crewlite.events.types.logging_events import (
        AgentLogsExecutionEvent as AgentLogsExecutionEvent,
    )
    from crewlite.events.types.logging_events import (
        AgentLogsStartedEvent as AgentLogsStartedEvent,
    )
    from crewlite.events.types.step_events import (
        StepCompletedEvent as StepCompletedEvent,
    )
    from crewlite.events.types.step_events import (
        StepFailedEvent as StepFailedEvent,
    )
    from crewlite.events.types.step_events import (
        StepReplayedEvent as StepReplayedEvent,
    )
    from crewlite.events.types.step_events import (
        StepStartedEvent as StepStartedEvent,
    )
    from crewlite.events.types.task_events import (
        TaskCompletedEvent as TaskCompletedEvent,
    )
    from crewlite.events.types.task_events import (
        TaskFailedEvent as TaskFailedEvent,
    )
    from crewlite.events.types.task_events import (
        TaskStartedEvent as TaskStartedEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolExecutionErrorEvent as ToolExecutionErrorEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolSelectionErrorEvent as ToolSelectionErrorEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolUsageErrorEvent as ToolUsageErrorEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolUsageFinishedEvent as ToolUsageFinishedEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolUsageStartedEvent as ToolUsageStartedEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolValidateInputErrorEvent as ToolValidateInputErrorEvent,
    )

__all__ = ["BaseEvent", "CheckpointEventType", "EventType"]


def __getattr__(name: str) -> Any:
    if name.endswith("Event") and (found := load().get(name)):
        return found
    raise AttributeError(f"crewlite.events has no {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *load()])
