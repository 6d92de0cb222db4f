"""The messages of an agent's kickoff: a text, or messages as chat models take them, checked before the run begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crewlite.errors import ConfigError, meant
from crewlite.llm.base import Message

_ROLES = ("system", "developer", "user", "assistant", "tool")
_ELSEWHERE = {"human": "user", "ai": "assistant", "bot": "assistant", "model": "assistant", "function": "tool"}
_WANTED = "wanted a text, or a list of {'role': ..., 'content': ...}"


def as_conversation(messages: str | Sequence[Message]) -> list[Message]:
    """Return messages, or a text as one message, as a list of roles and contents. Raises ConfigError for other data."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    fits = isinstance(messages, Sequence) and all(isinstance(message, Mapping) for message in messages)
    found = [dict(message) for message in messages] if fits else []
    for message in found:
        if message.get("tool_calls"):
            message.setdefault("content", None)  # OpenAI's protocol leaves it out where there is none
    if not found or any(not isinstance(message.get("role"), str) or "content" not in message for message in found):
        raise ConfigError(f"messages is {messages!r}; {_WANTED}")
    return found


def asked(messages: str | Sequence[Message]) -> list[Message]:
    """Return the messages of a kickoff as a list. Raises ConfigError for roles and contents that no model takes."""
    found = as_conversation(messages)
    for number, message in enumerate(found):
        if problem := _role(message["role"]) or _content(message):
            raise ConfigError(f"messages[{number}]: {problem}")
    return found


def _role(role: str) -> str:
    if role in _ROLES:
        return ""
    known = _ELSEWHERE.get(role.lower())
    hint = f"write {known!r}" if known else meant(role, _ROLES) or f"wanted {', '.join(_ROLES)}"
    return f"the role is {role!r}; {hint}"


def _content(message: Message) -> str:
    content: Any = message["content"]
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return ""
    if not isinstance(content, list | tuple):
        return f"the content is {content!r}; wanted a text, or a list of parts, such as {{'type': 'text', 'text': ...}}"
    for part in content:
        if not (isinstance(part, Mapping) and isinstance(part.get("type"), str)):
            return f"a part of the content is {part!r}; wanted {{'type': 'text', 'text': ...}} or an image_url"
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            return f"a part of the content is {dict(part)!r}; wanted its text: {{'type': 'text', 'text': ...}}"
    return "" if content else "the content is an empty list; wanted a text, or a list of parts"
