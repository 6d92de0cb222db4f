"""Tools for models without tool calls of their own: thought, action and observation are written in the text.

    Thought: The almanac will know.
    Action: high_water
    Action Input: {"port": "Brest"}

Several actions in one reply are several calls. An observation that the model makes up itself is cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from crewlite.llm.base import LLMReply, Message, ToolCall
from crewlite.llm.parts import text_of
from crewlite.llm.wire import fenced, with_text
from crewlite.texts import templates

STOP = "\nObservation:"
_PROMPTS = "crewlite.llm"
_DRESS = r"[ \t#*`-]*"  # Markdown that a model may put around a word
_MARK = re.compile(
    rf"^{_DRESS}(?P<word>thought|action|observation|final answer)[ \t*`]*:[*`]*", re.MULTILINE | re.IGNORECASE
)
_INPUT = re.compile(r"[\s#*`-]*action input[ \t*`]*:\**\s*(?:`+(?:json)?\s*)?", re.IGNORECASE)
_THOUGHT = re.compile(rf"\s*^{_DRESS}thought[ \t*`]*:[^\n]*", re.MULTILINE | re.IGNORECASE)
_REST = re.compile(r"[ \t\r`*]*$", re.MULTILINE)
_JSON = json.JSONDecoder(strict=False)  # small models do not escape line breaks in a text


def in_plain_text(messages: Iterable[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """Return the conversation in plain text, with the tools and how to call them explained in the first message."""
    plain = without_calls(messages)
    if not tools:
        return plain
    how = templates.render(_PROMPTS, "tools.j2", tools=[_shown(tool["function"]) for tool in tools])
    if plain and plain[0].get("role") in ("system", "user") and isinstance(plain[0].get("content"), str):
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{how}"}, *plain[1:]]
    return [{"role": "system", "content": how}, *plain]


def has_calls(messages: Iterable[Message]) -> bool:
    """Return whether a conversation holds calls of tools or their results."""
    return any(message.get("role") == "tool" or message.get("tool_calls") for message in messages)


def without_calls(messages: Iterable[Message]) -> list[Message]:
    """Return the conversation with calls of tools and their results as plain text."""
    plain: list[Message] = []
    for message in messages:
        role, text = message.get("role"), text_of(message)
        if role == "assistant" and message.get("tool_calls"):
            plain.append({"role": "assistant", "content": _written(text, with_text(message)["tool_calls"])})
        elif role == "tool":
            seen = f"Observation: {fenced(text, str(message.get('name') or ''))}"
            if plain and plain[-1]["role"] == "user" and plain[-1]["content"].startswith("Observation:"):
                plain[-1] = {"role": "user", "content": f"{plain[-1]['content']}\n\n{seen}"}
            else:
                plain.append({"role": "user", "content": seen})
        else:
            plain.append(dict(message))
    return plain


def read(reply: LLMReply) -> LLMReply:
    """Return the reply with its actions as tool calls; without actions, with only its answer as text, maybe empty."""
    if reply.tool_calls:
        return reply
    calls, end = _calls(reply.text)
    if calls:
        return reply.model_copy(update={"text": reply.text[:end].strip(), "tool_calls": tuple(calls)})
    return reply.model_copy(update={"text": _answer(reply.text).strip()})


def _calls(text: str) -> tuple[list[ToolCall], int]:
    """Return the actions as calls, and the position where the last one ends. Text inside arguments is no action."""
    calls, end, whole = list[ToolCall](), 0, True
    while whole and (mark := _next(text, end, "action", "observation", "final answer")):
        if mark["word"].lower() != "action":
            break
        line = text.find("\n", mark.end())
        end = len(text) if line < 0 else line
        name = text[mark.end() : end].strip("`*\"' \t\r")
        arguments, end, whole = _arguments(text, end)
        calls.append(ToolCall(name, arguments, f"action_{len(calls) + 1}"))
    return calls, end


def _arguments(text: str, at: int) -> tuple[dict[str, Any] | str, int, bool]:
    """Return the arguments at a position, where they end, and whether that end is certain.

    Only after a certain end is another action looked for.
    """
    given = _INPUT.match(text, at)
    if not given:
        return {}, at, True
    start = given.end()
    try:
        value, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        after = _MARK.search(text, start)
        end = after.start() if after else len(text)
        unread = text[start:end].strip()
        return unread, end, not unread
    return value if isinstance(value, dict) else text[start:end], end, bool(_REST.match(text, end))


def _answer(text: str) -> str:
    """Return the final answer, up to the text where the model should have stopped; without one, all but the thought."""
    if final := _next(text, 0, "final answer", "observation"):
        if final["word"].lower() != "observation":
            return text[final.end() :].partition(STOP)[0]
        text = text[: final.start()]
    thought = _THOUGHT.match(text)
    return text[thought.end() :] if thought else text


def _next(text: str, at: int, *words: str) -> re.Match[str] | None:
    return next((mark for mark in _MARK.finditer(text, at) if mark["word"].lower() in words), None)


def _written(text: str, calls: Sequence[dict[str, Any]]) -> str:
    if [call.name for call in _calls(text)[0]] == [call["function"]["name"] for call in calls]:  # its text holds them
        return text
    lines = [text] if text else []
    for call in calls:
        lines += [f"Action: {call['function']['name']}", f"Action Input: {call['function']['arguments']}"]
    return "\n".join(lines)


def _shown(function: dict[str, Any]) -> dict[str, str]:
    return {
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": json.dumps(function.get("parameters") or {}, ensure_ascii=False),
    }
