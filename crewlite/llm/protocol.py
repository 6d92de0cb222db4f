"""Tools for models that have no tool calls of their own: thought, action, observation, all in writing.

    Thought: The almanac will know.
    Action: high_water
    Action Input: {"port": "Brest"}

Several actions in one reply are several calls. What a model imagines to have observed is cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from crewlite import templates
from crewlite.llm.base import LLMReply, Message, ToolCall
from crewlite.llm.wire import fenced

STOP = "\nObservation:"
_PROMPTS = "crewlite.llm"
_OBSERVED = re.compile(r"^\s*Observation\s*:", re.MULTILINE)
_ACTION = re.compile(r"^[ \t]*Action[ \t]*:[ \t]*(?P<name>[^\n]+?)[ \t]*$", re.MULTILINE)
_INPUT = re.compile(r"\s*Action Input[ \t]*:[ \t]*", re.IGNORECASE)
_FINAL = re.compile(r"^[ \t]*Final Answer[ \t]*:[ \t]*", re.MULTILINE)
_NEXT = re.compile(r"^[ \t]*(?:Thought|Action|Final Answer)[ \t]*:", re.MULTILINE)


def told(messages: Iterable[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """The conversation in plain text, with the tools and how to ask for them told at its beginning."""
    how = templates.render(_PROMPTS, "tools.j2", tools=[_shown(tool["function"]) for tool in tools])
    plain: list[Message] = []
    for message in messages:
        role, text = message.get("role"), str(message.get("content") or "")
        if role == "assistant" and message.get("tool_calls"):
            plain.append({"role": "assistant", "content": _written(text, message["tool_calls"])})
        elif role == "tool":
            seen = f"Observation: {fenced(text, str(message.get('name') or ''))}"
            if plain and plain[-1]["role"] == "user" and plain[-1]["content"].startswith("Observation:"):
                plain[-1] = {"role": "user", "content": f"{plain[-1]['content']}\n\n{seen}"}
            else:
                plain.append({"role": "user", "content": seen})
        else:
            plain.append(message)
    if plain and plain[0].get("role") == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{how}"}, *plain[1:]]
    return [{"role": "system", "content": how}, *plain]


def read(reply: LLMReply) -> LLMReply:
    """The reply with its actions as tool calls, or with nothing but its final answer as text."""
    if reply.tool_calls:
        return reply
    observed = _OBSERVED.search(reply.text)
    text = reply.text[: observed.start()] if observed else reply.text
    calls = tuple(_calls(text))
    if calls:
        return reply.model_copy(update={"text": text.strip(), "tool_calls": calls})
    final = _FINAL.search(text)
    return reply.model_copy(update={"text": (text[final.end() :] if final else text).strip()})


def _calls(text: str) -> Iterable[ToolCall]:
    final = _FINAL.search(text)
    for number, action in enumerate(_ACTION.finditer(text), 1):
        if final and final.start() < action.start():
            return
        given = _INPUT.match(text, action.end())
        after = text[given.end() :] if given else ""
        yield ToolCall(action["name"].strip("`*\"' "), _arguments(after), f"action_{number}")


def _arguments(text: str) -> str:
    """The JSON at the beginning of a text, or, if there is none, the text up to the next word of the protocol."""
    start = text.lstrip().removeprefix("```json").removeprefix("```").lstrip()
    try:
        _, end = json.JSONDecoder().raw_decode(start)
    except ValueError:
        after = _NEXT.search(start)
        return start[: after.start() if after else None].strip()
    return start[:end]


def _written(text: str, calls: Iterable[dict[str, Any]]) -> str:
    if _ACTION.search(text):  # as the model wrote it itself
        return text
    lines = [text] if text else []
    for call in calls:
        arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        lines += [f"Action: {call['function']['name']}", f"Action Input: {arguments}"]
    return "\n".join(lines)


def _shown(function: dict[str, Any]) -> dict[str, str]:
    return {
        "name": function["name"],
        "description": function.get("description") or "",
        "parameters": json.dumps(function.get("parameters") or {}, ensure_ascii=False),
    }
