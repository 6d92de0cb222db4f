"""Events about what agents know."""

from __future__ import annotations

from typing import Literal

from crewlite.events.types.agent_events import AgentInTaskFields


class KnowledgeRetrievalStartedEvent(AgentInTaskFields):
    """An agent with knowledge, or of a crew with knowledge, is given the passages that fit its task or its message."""

    type: Literal["knowledge_retrieval_started"] = "knowledge_retrieval_started"


class KnowledgeRetrievalCompletedEvent(AgentInTaskFields):
    """The passages are found, and become part of the prompt. Their texts are not recorded."""

    type: Literal["knowledge_retrieval_completed"] = "knowledge_retrieval_completed"
    query: str
    """The text that they fit."""
    retrieved_knowledge: str
    """The passages, one after the other; "" for none."""
