"""Typed events on one central bus. A family of event classes is imported when one of its classes is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewlite.coming_from import missing_import
from crewlite.coming_from.modules import elsewhere
from crewlite.events.base import BaseEvent
from crewlite.events.registry import CheckpointEventType, EventType, find, load

if TYPE_CHECKING:
    from crewlite.events.listener import BaseEventListener as BaseEventListener
    from crewlite.events.types.agent_events import (
        AgentEvaluationCompletedEvent as AgentEvaluationCompletedEvent,
        AgentEvaluationFailedEvent as AgentEvaluationFailedEvent,
        AgentEvaluationStartedEvent as AgentEvaluationStartedEvent,
        AgentExecutionCompletedEvent as AgentExecutionCompletedEvent,
        AgentExecutionErrorEvent as AgentExecutionErrorEvent,
        AgentExecutionStartedEvent as AgentExecutionStartedEvent,
        LiteAgentExecutionCompletedEvent as LiteAgentExecutionCompletedEvent,
        LiteAgentExecutionErrorEvent as LiteAgentExecutionErrorEvent,
        LiteAgentExecutionStartedEvent as LiteAgentExecutionStartedEvent,
    )
    from crewlite.events.types.budget_events import BudgetExceededEvent as BudgetExceededEvent
    from crewlite.events.types.checkpoint_events import (
        CheckpointCompletedEvent as CheckpointCompletedEvent,
        CheckpointFailedEvent as CheckpointFailedEvent,
        CheckpointForkCompletedEvent as CheckpointForkCompletedEvent,
        CheckpointForkFailedEvent as CheckpointForkFailedEvent,
        CheckpointForkStartedEvent as CheckpointForkStartedEvent,
        CheckpointLabelledEvent as CheckpointLabelledEvent,
        CheckpointPrunedEvent as CheckpointPrunedEvent,
        CheckpointRestoreCompletedEvent as CheckpointRestoreCompletedEvent,
        CheckpointRestoreFailedEvent as CheckpointRestoreFailedEvent,
        CheckpointRestoreStartedEvent as CheckpointRestoreStartedEvent,
        CheckpointRewoundEvent as CheckpointRewoundEvent,
        CheckpointStartedEvent as CheckpointStartedEvent,
    )
    from crewlite.events.types.context_events import (
        ContextWindowSummarizationCompletedEvent as ContextWindowSummarizationCompletedEvent,
        ContextWindowSummarizationFailedEvent as ContextWindowSummarizationFailedEvent,
        ContextWindowSummarizationStartedEvent as ContextWindowSummarizationStartedEvent,
    )
    from crewlite.events.types.crew_events import (
        CrewKickoffCompletedEvent as CrewKickoffCompletedEvent,
        CrewKickoffFailedEvent as CrewKickoffFailedEvent,
        CrewKickoffStartedEvent as CrewKickoffStartedEvent,
        CrewTestCompletedEvent as CrewTestCompletedEvent,
        CrewTestFailedEvent as CrewTestFailedEvent,
        CrewTestResultEvent as CrewTestResultEvent,
        CrewTestStartedEvent as CrewTestStartedEvent,
        CrewTrainCompletedEvent as CrewTrainCompletedEvent,
        CrewTrainFailedEvent as CrewTrainFailedEvent,
        CrewTrainStartedEvent as CrewTrainStartedEvent,
    )
    from crewlite.events.types.flow_events import (
        FlowCreatedEvent as FlowCreatedEvent,
        FlowFailedEvent as FlowFailedEvent,
        FlowFinishedEvent as FlowFinishedEvent,
        FlowInputReceivedEvent as FlowInputReceivedEvent,
        FlowInputRequestedEvent as FlowInputRequestedEvent,
        FlowPausedEvent as FlowPausedEvent,
        FlowPlotEvent as FlowPlotEvent,
        FlowStartedEvent as FlowStartedEvent,
        HumanFeedbackReceivedEvent as HumanFeedbackReceivedEvent,
        HumanFeedbackRequestedEvent as HumanFeedbackRequestedEvent,
        MethodExecutionFailedEvent as MethodExecutionFailedEvent,
        MethodExecutionFinishedEvent as MethodExecutionFinishedEvent,
        MethodExecutionPausedEvent as MethodExecutionPausedEvent,
        MethodExecutionStartedEvent as MethodExecutionStartedEvent,
    )
    from crewlite.events.types.guardrail_events import (
        LLMGuardrailCompletedEvent as LLMGuardrailCompletedEvent,
        LLMGuardrailFailedEvent as LLMGuardrailFailedEvent,
        LLMGuardrailStartedEvent as LLMGuardrailStartedEvent,
    )
    from crewlite.events.types.llm_events import (
        LLMCallCompletedEvent as LLMCallCompletedEvent,
        LLMCallFailedEvent as LLMCallFailedEvent,
        LLMCallPacedEvent as LLMCallPacedEvent,
        LLMCallStartedEvent as LLMCallStartedEvent,
        LLMStreamChunkEvent as LLMStreamChunkEvent,
        LLMThinkingChunkEvent as LLMThinkingChunkEvent,
    )
    from crewlite.events.types.logging_events import (
        AgentLogsExecutionEvent as AgentLogsExecutionEvent,
        AgentLogsStartedEvent as AgentLogsStartedEvent,
    )
    from crewlite.events.types.progress_events import ProgressReportedEvent as ProgressReportedEvent
    from crewlite.events.types.reasoning_events import (
        AgentReasoningCompletedEvent as AgentReasoningCompletedEvent,
        AgentReasoningFailedEvent as AgentReasoningFailedEvent,
        AgentReasoningStartedEvent as AgentReasoningStartedEvent,
        GoalAchievedEarlyEvent as GoalAchievedEarlyEvent,
        PlanRefinementEvent as PlanRefinementEvent,
        PlanReplanTriggeredEvent as PlanReplanTriggeredEvent,
        StepObservationCompletedEvent as StepObservationCompletedEvent,
        StepObservationFailedEvent as StepObservationFailedEvent,
        StepObservationStartedEvent as StepObservationStartedEvent,
    )
    from crewlite.events.types.recovery_events import (
        FailureClassifiedEvent as FailureClassifiedEvent,
        RecoveryCompletedEvent as RecoveryCompletedEvent,
        RecoveryFailedEvent as RecoveryFailedEvent,
        RecoveryStartedEvent as RecoveryStartedEvent,
    )
    from crewlite.events.types.signal_events import (
        SigContEvent as SigContEvent,
        SigHupEvent as SigHupEvent,
        SigIntEvent as SigIntEvent,
        SigTermEvent as SigTermEvent,
        SigTStpEvent as SigTStpEvent,
    )
    from crewlite.events.types.step_events import (
        StepCompletedEvent as StepCompletedEvent,
        StepFailedEvent as StepFailedEvent,
        StepReplayedEvent as StepReplayedEvent,
        StepStartedEvent as StepStartedEvent,
        StepStateConflictEvent as StepStateConflictEvent,
    )
    from crewlite.events.types.task_events import (
        TaskCompletedEvent as TaskCompletedEvent,
        TaskEvaluationEvent as TaskEvaluationEvent,
        TaskFailedEvent as TaskFailedEvent,
        TaskStartedEvent as TaskStartedEvent,
    )
    from crewlite.events.types.tool_events import (
        ToolExecutionErrorEvent as ToolExecutionErrorEvent,
        ToolSelectionErrorEvent as ToolSelectionErrorEvent,
        ToolUsageErrorEvent as ToolUsageErrorEvent,
        ToolUsageFinishedEvent as ToolUsageFinishedEvent,
        ToolUsageStartedEvent as ToolUsageStartedEvent,
        ToolValidateInputErrorEvent as ToolValidateInputErrorEvent,
    )

__all__ = ["BaseEvent", "CheckpointEventType", "EventType"]


def __getattr__(name: str) -> Any:
    if name.endswith("Event") and (found := find(name)):
        globals()[name] = found
        return found
    if (found := elsewhere("crewlite.events", name)) is not None:
        return found
    raise missing_import("crewlite.events", name) or AttributeError(f"crewlite.events has no {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *load()])
