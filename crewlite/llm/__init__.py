"""The port to language models: messages, replies, and models that answer without a network.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.llm.base import BaseLLM as BaseLLM, LLMReply as LLMReply, Message as Message, ToolCall as ToolCall
    from crewlite.llm.model import LLM as LLM
    from crewlite.llm.models import resolve_llm as resolve_llm

_NAMES = {
    "llm.base": "BaseLLM LLMReply Message ToolCall",
    "llm.model": "LLM",
    "llm.models": "resolve_llm",
}

__all__, __getattr__ = first_use("crewlite.llm", _NAMES)
