"""The port to language models: messages, replies, and models that answer without a network.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.llm.base import BaseLLM as BaseLLM, LLMReply as LLMReply, Message as Message, ToolCall as ToolCall
    from crewlite.llm.embedding import Embedder as Embedder
    from crewlite.llm.model import LLM as LLM
    from crewlite.llm.models import resolve_llm as resolve_llm

_HOMES = {
    "BaseLLM": "crewlite.llm.base",
    "Embedder": "crewlite.llm.embedding",
    "LLM": "crewlite.llm.model",
    "LLMReply": "crewlite.llm.base",
    "Message": "crewlite.llm.base",
    "ToolCall": "crewlite.llm.base",
    "resolve_llm": "crewlite.llm.models",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - the names of the table

__getattr__ = first_use("crewlite.llm", _HOMES)
