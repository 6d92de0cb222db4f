"""Events of verbose agents, with texts for people to read."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class AgentLogsStartedEvent(BaseEvent):
    """A verbose agent begins."""

    type: Literal["agent_logs_started"] = "agent_logs_started"
    agent_role: str
    task_description: str


class AgentLogsExecutionEvent(BaseEvent):
    """A verbose agent thought, asked for tools or answered."""

    type: Literal["agent_logs_execution"] = "agent_logs_execution"
    agent_role: str
    formatted_answer: str
