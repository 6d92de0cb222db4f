"""Events of agents, in a task (`agent_execution_*`) and alone (`lite_agent_execution_*`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from crewlite.events.base import BaseEvent, ErrorFields
from crewlite.usage import Usage


class _AgentEvent(BaseEvent):
    agent_role: str

    @property
    def agent(self) -> Any:
        """The agent, which emits it."""
        return self.source


class AgentInTaskFields(_AgentEvent):
    """The fields of all events of an agent that may be in a task."""

    task_name: str | None = None


class AgentExecutionStartedEvent(AgentInTaskFields):
    """An agent begins a task."""

    type: Literal["agent_execution_started"] = "agent_execution_started"
    tools: tuple[str, ...] = ()
    task_prompt: str


class AgentExecutionCompletedEvent(AgentInTaskFields):
    """An agent gave its answer."""

    type: Literal["agent_execution_completed"] = "agent_execution_completed"
    output: str


class AgentExecutionErrorEvent(AgentInTaskFields, ErrorFields):
    """An agent failed to do its task."""

    type: Literal["agent_execution_error"] = "agent_execution_error"


class LiteAgentExecutionStartedEvent(_AgentEvent):
    """An agent is kicked off without a crew."""

    type: Literal["lite_agent_execution_started"] = "lite_agent_execution_started"
    tools: tuple[str, ...] = ()
    messages: tuple[dict[str, Any], ...]


class LiteAgentExecutionCompletedEvent(_AgentEvent):
    """The answer of an agent that was kicked off without a crew is recorded."""

    type: Literal["lite_agent_execution_completed"] = "lite_agent_execution_completed"
    output: str
    usage: Usage = Field(default_factory=Usage)
    """The usage of everything inside the run, including its earlier kickoffs."""


class LiteAgentExecutionErrorEvent(_AgentEvent, ErrorFields):
    """An agent that was kicked off without a crew failed."""

    type: Literal["lite_agent_execution_error"] = "lite_agent_execution_error"


class ContextWindowSummarizationStartedEvent(_AgentEvent):
    """A model said that a conversation does not fit, and is asked to summarise it."""

    type: Literal["context_window_summarization_started"] = "context_window_summarization_started"
    messages: int
    """The number of messages that the summary takes the place of."""


class ContextWindowSummarizationCompletedEvent(_AgentEvent):
    """The summary is recorded, and the conversation goes on with it."""

    type: Literal["context_window_summarization_completed"] = "context_window_summarization_completed"
    summary: str


class ContextWindowSummarizationFailedEvent(_AgentEvent, ErrorFields):
    """There is no summary, as the model could not be asked, or even parts of the conversation do not fit."""

    type: Literal["context_window_summarization_failed"] = "context_window_summarization_failed"
