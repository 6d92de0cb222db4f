"""Events of agents, in a task (`agent_execution_*`) and alone (`lite_agent_execution_*`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from crewlite.events.base import BaseEvent
from crewlite.usage import Usage


class _AgentEvent(BaseEvent):
    agent_role: str


class AgentExecutionStartedEvent(_AgentEvent):
    """An agent begins a task."""

    type: Literal["agent_execution_started"] = "agent_execution_started"
    tools: tuple[str, ...] = ()
    task_prompt: str


class AgentExecutionCompletedEvent(_AgentEvent):
    """An agent gave its answer."""

    type: Literal["agent_execution_completed"] = "agent_execution_completed"
    output: str


class AgentExecutionErrorEvent(_AgentEvent):
    """An agent failed to do its task."""

    type: Literal["agent_execution_error"] = "agent_execution_error"
    error: str
    error_type: str


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


class LiteAgentExecutionErrorEvent(_AgentEvent):
    """An agent that was kicked off without a crew failed."""

    type: Literal["lite_agent_execution_error"] = "lite_agent_execution_error"
    error: str
    error_type: str
