"""Events of guardrails: what an answer had to pass before it counted."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _GuardrailEvent(BaseEvent):
    guardrail: str
    """The text that a model judges by, or the name of the function."""
    agent_role: str
    retry_count: int = 0
    """How many answers were turned down before this one."""


class LLMGuardrailStartedEvent(_GuardrailEvent):
    """A guardrail is asked about an answer: a function, or a model."""

    type: Literal["llm_guardrail_started"] = "llm_guardrail_started"


class LLMGuardrailCompletedEvent(_GuardrailEvent):
    """The verdict of a guardrail is recorded."""

    type: Literal["llm_guardrail_completed"] = "llm_guardrail_completed"
    success: bool
    result: str | None = None
    """The answer that the guardrail put in the place of the one it was asked about."""
    error: str | None = None
    """Why the answer does not pass, as the agent is told."""


class LLMGuardrailFailedEvent(_GuardrailEvent, ErrorFields):
    """A guardrail came to no verdict: its function raised an error, or its model could not be asked."""

    type: Literal["llm_guardrail_failed"] = "llm_guardrail_failed"
