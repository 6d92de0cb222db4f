"""Convert requests and replies between crewlite's form and litellm's.

Output of tools is sent between marks, as data that is not to be obeyed. Characters that cannot be sent are replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from crewlite.errors import ContentRefused, LLMError, LLMUnavailable
from crewlite.llm.base import LLMReply, Message, ToolCall
from crewlite.llm.parts import text_of
from crewlite.texts import templates
from crewlite.usage import Usage

_BROKEN_OFF = {"error", "ERROR", "network_error", "abort", "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"}
"""The reasons that services give for a reply that failed in the middle. litellm replaces them by `stop`."""
_HEAR_THOUGHTS = {"deepseek", "moonshot"}
_LONE = re.compile("[\ud800-\udfff]")  # lone surrogates: no encoding can send them, no file can hold them


def messages_for(messages: Iterable[Message], provider: str) -> list[Message]:
    """Return the conversation as it is sent."""
    return [_sent(message, provider) for message in messages]


def schema_for(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a JSON schema as the `response_format` of a request; None for one that services refuse, as of a list."""
    if schema.get("type") != "object":
        return None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "answer"))[:64]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema)}}


def reply_of(
    response: Any, model: str, provider: str, cost: float | None, mask: Callable[[str], str] = str
) -> LLMReply:
    """Build the reply from a response.

    Raises ContentRefused for a reply that was refused or stopped by a filter, and LLMUnavailable for a response without
    a reply, or with one that broke off. Their `usage` is that of the response.
    """
    choice = next(iter(getattr(response, "choices", None) or ()), None)
    message, usage = getattr(choice, "message", None), _usage(getattr(response, "usage", None), cost)
    if failure := _failure(choice, message, model, mask):
        failure.usage = usage
        raise failure
    calls = tuple(
        ToolCall(label(call.function.name) or "", clean(call.function.arguments or ""), label(call.id))
        for call in getattr(message, "tool_calls", None) or ()
    )
    return LLMReply(
        text=clean(getattr(message, "content", None) or ""),
        tool_calls=calls,
        usage=usage,
        finish_reason=label(getattr(choice, "finish_reason", None)),
        response_id=label(getattr(response, "id", None)),
        carried=_carried(message, provider, called=bool(calls)),
    )


def _failure(choice: Any, message: Any, model: str, mask: Callable[[str], str]) -> LLMError | None:
    """Return the error for a response whose reply is none, or is not to be taken; None for a good one."""
    if message is None:
        return LLMUnavailable(f"{model} sent a response without a reply. Start the run again.")
    if (own := _extras(choice).get("native_finish_reason")) in _BROKEN_OFF:
        return LLMUnavailable(f"{model} broke off its reply (finish_reason {own}). Start the run again.")
    if refusal := getattr(message, "refusal", None):
        return ContentRefused(model, mask(clean(str(refusal))))
    if label(getattr(choice, "finish_reason", None)) == "content_filter":
        return ContentRefused(model, "a content filter of its service stepped in")
    return None


def label(value: object) -> str | None:
    """Return a name or an id as text; some services send a number."""
    return None if value is None else clean(str(value))


def clean(text: str) -> str:
    """Return the text with lone surrogates replaced. All other characters can be sent and stored."""
    return _LONE.sub("\ufffd", text)


def fenced(text: str, tool: str) -> str:
    """Return a tool's output between marks, which the output itself cannot close."""
    return templates.marked("tool_output", text, tool=tool)


def _sent(message: Message, provider: str) -> Message:
    sent: Message = _cleaned({name: value for name, value in message.items() if name not in ("carried", "name")})
    if message.get("role") == "tool":
        sent["content"] = fenced(text_of(sent), clean(str(message.get("name") or "")))
    if message.get("tool_calls"):
        sent = with_text(sent) | {"content": sent.get("content") or None}
    carried = message.get("carried") or {}
    return sent | (carried["fields"] if carried.get("provider") == provider else {})


def with_text(message: Message) -> Message:
    """Return a copy of a message in which the arguments of calls are JSON text, as in OpenAI's protocol."""
    calls = message.get("tool_calls")
    return message | ({"tool_calls": [_as_text(call) for call in calls]} if calls else {})


def _as_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return call | {"function": function | {"arguments": text}}


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_cleaned(item) for item in value]
    return value


def _carried(message: Any, provider: str, called: bool) -> dict[str, Any] | None:
    """Return the data that the service wants back with the next call: its thoughts, or what stands for them.

    Signed thoughts go back with each reply, others only with tool calls, and only to services that document it.
    """
    thoughts = {
        "thinking_blocks": getattr(message, "thinking_blocks", None),
        "reasoning_content": getattr(message, "reasoning_content", None)
        if called and provider in _HEAR_THOUGHTS
        else None,
        "reasoning_details": _extras(message).get("reasoning_details") if provider == "openrouter" else None,
    }
    fields = {name: _cleaned(value) for name, value in thoughts.items() if value}
    return {"provider": provider, "fields": fields} if fields else None


def _extras(part: Any) -> Mapping[str, Any]:
    """Return what litellm keeps of a part of a response in the service's own words."""
    extras = getattr(part, "provider_specific_fields", None)
    return extras if isinstance(extras, Mapping) else {}


def _usage(usage: Any, cost: float | None) -> Usage:
    return Usage(
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(getattr(usage, "prompt_tokens_details", None), "cached_tokens"),
        reasoning_tokens=_count(getattr(usage, "completion_tokens_details", None), "reasoning_tokens"),
        requests=1,
        cost=cost,
    )


def _count(details: Any, name: str) -> int:
    count = getattr(details, name, None)
    return max(count, 0) if isinstance(count, int) else 0
