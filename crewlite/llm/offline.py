"""A model without a network or a key: it lists, searches and reads with the tools it is offered, then quotes.

It decides from the messages alone and holds no state, so the same conversation always gets the same reply. What it
can do is extraction, and it says so at the end of every answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crewlite.llm.base import BaseLLM, LLMReply, Message, ToolCall
from crewlite.llm.extract import Passage, best, fitting, keywords, passages, question_in, scores
from crewlite.usage import Usage

NOTE = "(extracted by crewlite's offline model: no language model was asked)"

_LIST = frozenset({"list", "ls", "index", "catalogue", "catalog"})
_SEARCH = frozenset({"search", "find", "query", "grep", "lookup"})
_READ = frozenset({"read", "open", "fetch", "get", "load"})
_SEARCHES, _READINGS, _QUOTES = 3, 3, 6  # at most so many at a time


class OfflineLLM(BaseLLM):
    """Extracts; does not think. For demos, tests and first steps: `llm="offline"`, or CREWLITE_MODEL=offline.

    Tools whose names say list, search or read are used in this order, once each, with the question's keywords and the
    documents they led to. The answer quotes the sentences that share most words with the question, each with its
    source, and ends with a note that no language model was asked (an answer that must be JSON has no room for it).
    The question is what stands in quotation marks or ends in `?` in the last user message, else its first paragraph.
    Usage counts words as tokens.
    """

    model = "offline"

    def plain_settings(self) -> dict[str, Any]:
        """There are none but its name."""
        return {"model": self.model}

    async def acall(self, messages: list[Message], **context: Any) -> LLMReply:
        """The next calls to make, or the answer."""
        talk = _Talk.of(messages)
        calls = tuple(_next_calls(talk, context.get("tools") or ()))
        text = "" if calls else _answer(talk, context.get("response_schema"))
        said = text or " ".join(f"{call.name} {call.arguments}" for call in calls)
        words = sum(len(str(message.get("content") or "").split()) for message in messages)
        usage = Usage(prompt_tokens=words, completion_tokens=len(said.split()), requests=1)
        return LLMReply(text=text, tool_calls=calls, usage=usage)


@dataclass(slots=True)
class _Talk:
    """What a conversation comes to."""

    question: str = ""
    words: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    """Tools that were called since the question."""
    found: list[Passage] = field(default_factory=list)
    """What tools and earlier tasks said."""
    names: list[str] = field(default_factory=list)
    """What a listing named."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> _Talk:
        talk, asked = cls(), dict[str, str]()
        for message in messages:
            role, content = message.get("role"), str(message.get("content") or "")
            if role == "user":
                talk.question, talk.called = question_in(content), set()
                talk.found += _given(content, talk.question)
            elif role == "assistant":
                for call in message.get("tool_calls") or ():
                    talk.called.add(call["function"]["name"])
                    asked[call["id"]] = _first_text(call["function"]["arguments"])
            elif role == "tool":
                talk.hear(message.get("name") or "", asked.get(message.get("tool_call_id") or "", ""), content)
        talk.words = keywords(talk.question)
        talk.found = list(dict.fromkeys(talk.found))
        return talk

    def hear(self, tool: str, argument: str, result: str) -> None:
        """Take in a tool's result."""
        if _verb(tool) is _LIST:
            self.names += _names(result)
        else:
            self.found += passages(result, argument or tool or None)


def _next_calls(talk: _Talk, tools: Iterable[dict[str, Any]]) -> list[ToolCall]:
    """List, then search, then read: the first of these that is on offer and has not been done."""
    offered = [tool["function"] for tool in tools]
    plan = ((_LIST, [""]), (_SEARCH, talk.words[:_SEARCHES]), (_READ, _worth_reading(talk)))
    for verb, values in plan:
        for tool in offered:
            name, takes = tool["name"], _takes(tool)
            usable = takes == "" if verb is _LIST else bool(takes)
            if _verb(name) is verb and usable and values and name not in talk.called:
                return [ToolCall(name, {takes: value} if takes else {}) for value in values]
    return []


def _worth_reading(talk: _Talk) -> list[str]:
    """The documents that what was found so far comes from, best first; without any, those a listing named."""
    total: dict[str, float] = {}
    for passage, score in scores(talk.found, talk.words).items():
        if passage.document and score > 0 and (not talk.names or passage.document in talk.names):
            total[passage.document] = total.get(passage.document, 0) + score
    return (sorted(total, key=lambda name: -total[name]) or talk.names)[:_READINGS]


def _answer(talk: _Talk, schema: dict[str, Any] | None) -> str:
    quotes = best(talk.found, talk.words, _QUOTES)
    if schema:
        return json.dumps(fitting(schema, quotes, talk.question), ensure_ascii=False)
    if not quotes:
        return f"(nothing that was given speaks of: {', '.join(talk.words) or talk.question})\n\n{NOTE}"
    order = {passage: number for number, passage in enumerate(talk.found)}
    lines = [f"- {passage}" for passage in sorted(quotes, key=order.__getitem__)]
    return "\n".join([f"# {talk.question}", "", *lines, "", NOTE])


def _given(content: str, question: str) -> list[Passage]:
    """The sources in a user's message: what stands under headings, else everything but the question."""
    _, heading, below = f"\n{content}".partition("\n## ")
    if heading:
        return passages(f"## {below}")
    return [passage for passage in passages(content) if question not in passage.text and passage.text not in question]


def _verb(tool: str) -> frozenset[str] | None:
    parts = set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", tool).lower()))
    return next((verb for verb in (_LIST, _SEARCH, _READ) if verb & parts), None)


def _takes(tool: dict[str, Any]) -> str | None:
    """The one text a tool wants: its name, "" if it wants nothing, None if it wants more than this model can give."""
    parameters = tool.get("parameters") or {}
    wanted = parameters.get("required") or []
    if not wanted:
        return ""
    kind = parameters.get("properties", {}).get(wanted[0], {}).get("type")
    return str(wanted[0]) if len(wanted) == 1 and kind == "string" else None


def _first_text(arguments: object) -> str:
    values = arguments.values() if isinstance(arguments, dict) else ()
    return next((value for value in values if isinstance(value, str)), "")


def _names(listing: str) -> list[str]:
    """What a listing names: the strings of a JSON list, else the first word of each line."""
    try:
        items = json.loads(listing)
    except ValueError:
        items = listing.splitlines()
    items = [item for item in items if isinstance(item, str)] if isinstance(items, list) else []
    return [first for item in items if (first := item.lstrip("-* ").partition(" ")[0].rstrip(":,"))]
