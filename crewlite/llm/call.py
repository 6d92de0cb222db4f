"""Asking a model, as a durable step: events, retries and the record in one place for every kind of model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crewlite import codec, durable, events
from crewlite.durable import Intent, Stamp, Step
from crewlite.llm.base import BaseLLM, LLMReply, Message, ToolCall, context_for, whole_reply
from crewlite.recovery import DEFAULT


@dataclass(frozen=True, slots=True)
class _Voice:
    source: BaseLLM
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    agent: str

    def started(self, stamp: Stamp) -> events.LLMCallStartedEvent:
        return events.LLMCallStartedEvent(
            **stamp, model=self.source.model, agent_role=self.agent, messages=self.messages, tools=self.tools
        )

    def completed(self, stamp: Stamp, value: LLMReply) -> events.LLMCallCompletedEvent:
        return events.LLMCallCompletedEvent(
            **stamp,
            model=self.source.model,
            agent_role=self.agent,
            response=value.text,
            tool_calls=tuple({"name": call.name, "arguments": call.arguments} for call in value.tool_calls),
            call_type="tool_call" if value.tool_calls else "llm_call",
            usage=value.usage.to_record(),
            finish_reason=value.finish_reason,
            response_id=value.response_id,
        )

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.LLMCallFailedEvent:
        return events.LLMCallFailedEvent(
            **stamp, model=self.source.model, agent_role=self.agent, error=error, error_type=error_type
        )


def ask(
    llm: BaseLLM,
    messages: Sequence[Message],
    *,
    tools: Sequence[dict[str, Any]] = (),
    agent: str = "",
    response_schema: dict[str, Any] | None = None,
    template: str = "",
    intends: Callable[[LLMReply], Sequence[Intent]] | None = None,
) -> Awaitable[LLMReply]:
    """Ask a model and wait for its whole reply; from the record if this call was answered before."""
    snapshot = tuple(messages)
    context = {"tools": list(tools), "agent": agent, "response_schema": response_schema}

    async def work() -> LLMReply:
        reply = await llm.acall([dict(m) for m in snapshot], **context_for(type(llm).acall, context))
        return whole_reply(reply, llm.model)

    step = Step(
        kind="llm",
        name=None,
        work=work,
        question=None,
        chained=True,
        voice=_Voice(llm, snapshot, tuple(tool["function"]["name"] for tool in tools), agent),
        encode=_encode,
        decode=_decode,
        usage=_usage,
        means={"model": llm.model, "template": template},
        remedies=DEFAULT,
        intends=intends,
    )
    return durable.scope().step(step)


def _encode(reply: LLMReply) -> Any:
    data: dict[str, Any] = {"text": reply.text}
    if reply.tool_calls:
        data["tool_calls"] = [[call.name, call.arguments, call.id] for call in reply.tool_calls]
    if reply.finish_reason:
        data["finish"] = reply.finish_reason
    if reply.response_id:
        data["id"] = reply.response_id
    return codec.encode(data)


def _decode(data: Any) -> LLMReply:
    plain = codec.decode(data)
    return LLMReply(
        text=plain["text"],
        tool_calls=tuple(ToolCall(*call) for call in plain.get("tool_calls", ())),
        finish_reason=plain.get("finish"),
        response_id=plain.get("id"),
    )


def _usage(reply: LLMReply) -> Any:
    counted = reply.usage.to_record()
    return {**counted, "requests": counted.get("requests", 1)}
