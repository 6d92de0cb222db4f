"""Events of model calls."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _LLMEvent(BaseEvent):
    model: str
    agent_role: str | None = None


class LLMCallStartedEvent(_LLMEvent):
    """A model is about to be called."""

    type: Literal["llm_call_started"] = "llm_call_started"
    messages: tuple[dict[str, Any], ...]
    tools: tuple[str, ...] = ()


class LLMCallCompletedEvent(_LLMEvent):
    """A model's reply is recorded."""

    type: Literal["llm_call_completed"] = "llm_call_completed"
    response: str
    tool_calls: tuple[dict[str, Any], ...] = ()
    call_type: Literal["llm_call", "tool_call"]
    usage: dict[str, Any]
    finish_reason: str | None = None
    response_id: str | None = None


class LLMCallFailedEvent(_LLMEvent, ErrorFields):
    """A model call failed and is not retried any more."""

    type: Literal["llm_call_failed"] = "llm_call_failed"


class _ChunkEvent(_LLMEvent):
    fleeting: ClassVar[bool] = True

    chunk: str
    attempt: int = 1
    """The number of the attempt that it belongs to. Pieces of earlier attempts do not count any more."""


class LLMStreamChunkEvent(_ChunkEvent):
    """A piece of a streamed reply. It is not recorded; the complete reply is."""

    type: Literal["llm_stream_chunk"] = "llm_stream_chunk"


class LLMThinkingChunkEvent(_ChunkEvent):
    """A piece of a model's thoughts before its reply. It is not recorded."""

    type: Literal["llm_thinking_chunk"] = "llm_thinking_chunk"


class LLMCallPacedEvent(BaseEvent):
    """A model call waits for its turn, as `max_rpm` allows no more calls now. It is not recorded."""

    type: Literal["llm_call_paced"] = "llm_call_paced"
    fleeting: ClassVar[bool] = True

    owner: str
    """Whose `max_rpm` it is, such as "crew 'desk'"."""
    max_rpm: int
    seconds: float
    """How long it waits at least."""
