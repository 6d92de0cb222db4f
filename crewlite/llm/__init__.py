"""The port to language models: what one is asked, what it replies, and models that answer without a network."""

from crewlite.llm.base import BaseLLM, LLMReply, Message, ToolCall
from crewlite.llm.embedding import Embedder
from crewlite.llm.models import resolve_llm

__all__ = ["BaseLLM", "Embedder", "LLMReply", "Message", "ToolCall", "resolve_llm"]
