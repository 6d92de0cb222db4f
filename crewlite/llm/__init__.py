"""The port to language models: messages, replies, and models that answer without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewlite.coming_from.modules import elsewhere
from crewlite.llm.base import BaseLLM, LLMReply, Message, ToolCall
from crewlite.llm.embedding import Embedder
from crewlite.llm.models import resolve_llm

if TYPE_CHECKING:
    from crewlite.llm.model import LLM as LLM

__all__ = ["BaseLLM", "Embedder", "LLMReply", "Message", "ToolCall", "resolve_llm"]


def __getattr__(name: str) -> Any:
    if (found := elsewhere("crewlite.llm", name)) is not None:
        return found
    raise AttributeError(f"crewlite.llm has no {name!r}; it has {', '.join(__all__)}")
