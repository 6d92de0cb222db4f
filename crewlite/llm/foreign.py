"""Chat models of other frameworks, such as LangChain, recognised by their methods and never imported.

A chat model is an object with `ainvoke` or `invoke` that takes a list of messages. Tools are passed with its
`bind_tools`; for a model without that method, the tools are described in the text of the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crewlite.concurrency import background
from crewlite.errors import LLMUnavailable, text_of
from crewlite.llm import wire
from crewlite.llm.base import BaseLLM, LLMReply, Message, ToolCall
from crewlite.llm.faults import may_work_later
from crewlite.usage import Usage

_LOST = frozenset({"APIConnectionError", "APITimeoutError", "TransportError"})


class ForeignLLM(BaseLLM):
    """Wraps a chat model of another framework. `original` is that model."""

    def __init__(self, original: Any) -> None:
        super().__init__(_name_of(original))
        self.original = original
        self.tool_protocol = "native" if callable(getattr(original, "bind_tools", None)) else "text"

    def supports_multimodal(self) -> bool:
        """Return True: the model itself says what it does not take."""
        return True

    async def acall(
        self, messages: list[Message], *, tools: Sequence[dict[str, Any]] = (), stop: Sequence[str] = (), **context: Any
    ) -> LLMReply:
        """Ask once and return the reply. Ignores the rest of the context.

        Raises LLMUnavailable for failures that a later try may not have, and all other errors of the model unchanged.
        """
        model = self.original.bind_tools([dict(tool) for tool in tools]) if tools else self.original
        options = {"stop": list(stop)} if stop else {}
        asked = wire.messages_for(messages, "")
        try:
            if callable(getattr(model, "ainvoke", None)):
                said = await model.ainvoke(asked, **options)
            else:
                said = await background.blocking(model.invoke, asked, **options)
        except Exception as error:  # the border: the errors of a model's own library
            if _may_work_later(error):
                raise LLMUnavailable(f"{self.model}: {text_of(error)}") from error
            raise
        return _reply(said)


def _name_of(original: object) -> str:
    names = (getattr(original, word, None) for word in ("model_name", "model", "model_id", "deployment_name"))
    return next((name for name in names if isinstance(name, str) and name), type(original).__name__)


def _may_work_later(error: Exception) -> bool:
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return may_work_later(status)
    return bool(_LOST.intersection(cls.__name__ for cls in type(error).__mro__))


def _reply(said: Any) -> LLMReply:
    if isinstance(said, str):
        return LLMReply(text=wire.clean(said))
    about = _mapping(getattr(said, "response_metadata", None))
    reason = about.get("finish_reason") or about.get("stop_reason")
    calls = [_mapping(call) for call in getattr(said, "tool_calls", None) or ()]
    return LLMReply(
        text=wire.clean(_text(getattr(said, "content", ""))),
        tool_calls=tuple(
            ToolCall(wire.label(call.get("name")) or "", call.get("args"), wire.label(call.get("id"))) for call in calls
        ),
        usage=_usage(_mapping(getattr(said, "usage_metadata", None)), _mapping(about.get("token_usage"))),
        finish_reason=str(reason) if reason else None,
        response_id=getattr(said, "id", None) if isinstance(getattr(said, "id", None), str) else None,
    )


def _text(content: object) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, list | tuple):
        parts = [part if isinstance(part, str) else _mapping(part).get("text") for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return str(content or "")


def _usage(counted: Mapping[str, Any], reported: Mapping[str, Any]) -> Usage:
    """Return the usage that the framework counted, else the usage that the service reported."""
    details = _mapping(counted.get("input_token_details"))
    return Usage(
        prompt_tokens=_count(counted.get("input_tokens", reported.get("prompt_tokens"))),
        completion_tokens=_count(counted.get("output_tokens", reported.get("completion_tokens"))),
        cached_tokens=_count(details.get("cache_read")),
        reasoning_tokens=_count(_mapping(counted.get("output_token_details")).get("reasoning")),
        requests=1,
    )


def _count(value: object) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
