"""A model without a network or a key: it calls tools that list, search and read, and then quotes from their results.

It decides from the messages alone and holds no state, so the same conversation always gets the same reply. It does not
understand texts: it quotes the sentences that share many words with the question, with their sources, and says so at
the end of every answer. Sources are read in two forms, `name:12: text` and `- text [name:12]`, and from headings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crewlite.llm.base import REMINDER, BaseLLM, LLMReply, Message, ToolCall
from crewlite.llm.parts import text_of
from crewlite.usage import Usage

NOTE = "(extracted by crewlite's offline model: no language model was asked)"

_VERBS = {
    "list": {"list", "ls", "index", "catalogue", "catalog"},
    "search": {"search", "find", "query", "grep", "lookup"},
    "read": {"read", "open", "fetch", "get", "load"},
}
_SEARCHES, _READINGS, _QUOTES = 3, 3, 6  # the most of each in one reply
_NUMBERED = re.compile(r"^([^\s:]+:\d+): ?(.*)$")
_CITED = re.compile(r"^[-*] (.+) \[([^\[\]]+)\]$")
_FRAME = re.compile(r"[#>{]|Expected output:|\(.*\)$|\W*$")  # lines about a text, which are not quoted
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_QUOTED = re.compile(r"[\"“]([^\"“”]{3,400})[\"”]")
_ASKED = re.compile(r"[^.?!\n]+\?")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """about above after all also and any are because been before being below between both but can could did
        does doing each every few for from further had has have having her here hers him his how into its itself
        just let may might more most must nor not now off once only other our out over own per same shall she
        should some such than that the their them then there these they this those through too under until very
        was were what when where which while who whom whose why will with would you your

    answer brief cite come comes describe document documents explain expected find found full get give good key list
    make name output passage passages pick please question read report say says search sentence short source sources
    speak speaks summarise summarize summary tell text using word words write""",
    )
)


class OfflineLLM(BaseLLM):
    """Quotes from documents instead of thinking, for demos and tests: `llm="offline"`, or CREWLITE_MODEL=offline.

    It calls tools whose names say list, search or read, in this order and once each, with the question's keywords and
    the documents found. The answer quotes the sentences that share most words with the question, each with its source,
    and ends with a note that no language model was asked (except an answer in JSON). The question is the text in
    quotation marks in the last user message, else its sentence that ends in `?`, else its first paragraph. Usage counts
    words as tokens.
    """

    model = "offline"

    def plain_settings(self) -> dict[str, Any]:
        """Return its name, the only setting."""
        return {"model": self.model}

    async def acall(self, messages: list[Message], **context: Any) -> LLMReply:
        """Return the next tool calls, or the answer."""
        talk = _Talk.of(messages)
        calls = tuple(_next_calls(talk, context.get("tools") or ()))
        text = "" if calls else _answer(talk, context.get("response_schema"))
        said = text or " ".join(f"{call.name} {call.arguments}" for call in calls)
        words = sum(len(text_of(message).split()) for message in messages)
        usage = Usage(prompt_tokens=words, completion_tokens=len(said.split()), requests=1)
        return LLMReply(text=text, tool_calls=calls, usage=usage)


def question_in(text: str) -> str:
    """Return the question in a text: the part in quotation marks, else the sentence that ends in `?`, else a paragraph.

    The paragraph is the first one. Text below a markdown heading is material and holds no question.
    """
    opening = text.partition("\n## ")[0].strip()
    first = opening.partition("\n\n")[0]
    found = (_QUOTED.findall(part)[:1] or _ASKED.findall(part)[-1:] for part in (first, opening))
    return " ".join(next(filter(None, found), [first])[0].split())


def keywords(text: str) -> list[str]:
    """Return the words that carry a question, in order; of words with the same stem only the first.

    >>> keywords("What do the documents say about liberty, and about the powers of government?")
    ['liberty', 'powers', 'government']
    """
    first: dict[str, str] = {}
    for word in re.findall(r"[^\W\d_]{3,}", text.lower()):
        if word not in _COMMON:
            first.setdefault(_stem(word), word)
    return list(first.values())


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence and its source: `name`, `name:line`, or "" if the source is not known."""

    text: str
    source: str = ""

    @property
    def document(self) -> str:
        """The source without its line number."""
        return re.sub(r":\d+$", "", self.source)

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


def passages(text: str, source: str = "") -> list[Passage]:
    """Return the sentences of a text with their sources. A markdown heading names the source of the text below it."""
    found = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#"):
            source = line.strip("# ") or source
        elif numbered := _NUMBERED.match(line):
            found += [] if _FRAME.match(numbered[2]) else [Passage(numbered[2], numbered[1])]
        elif cited := _CITED.match(line):
            found.append(Passage(*cited.groups()))
        elif not _FRAME.match(line):
            found += [Passage(sentence, source) for sentence in _SENTENCE_END.split(line)]
    return found


@dataclass(slots=True)
class _Talk:
    """The parts of a conversation that decide the reply."""

    question: str = ""
    called: set[str] = field(default_factory=set)
    """Tools that were called since the question."""
    found: dict[Passage, None] = field(default_factory=dict)
    """Sentences from tools and earlier tasks, in order."""
    names: list[str] = field(default_factory=list)
    """Names from a listing: the texts of a JSON list, else the first word of each line."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> _Talk:
        talk, asked = cls(), dict[str, str]()
        for message in messages:
            role, content = message.get("role"), text_of(message)
            if role == "user" and message.get("name") != REMINDER:
                talk.question, talk.called = question_in(content), set()
                talk.found |= dict.fromkeys(_given(content, talk.question))
            elif role == "assistant":
                for call in message.get("tool_calls") or ():
                    made = ToolCall(call["function"]["name"], call["function"]["arguments"])
                    talk.called.add(made.name)
                    texts = [value for value in made.arguments.values() if isinstance(value, str)]
                    asked[call["id"]] = texts[0] if texts else ""
            elif role == "tool" and _does(message.get("name") or "", "list"):
                talk.names += re.findall(r'"([^"]+)"' if content.startswith("[") else r"(?m)^\s*(\S+)", content)
            elif role == "tool":
                source = asked.get(message.get("tool_call_id") or "") or message.get("name") or ""
                talk.found |= dict.fromkeys(passages(content, source))
        return talk

    def scores(self) -> dict[Passage, float]:
        """Return how well each passage fits the question. A word counts for more, the fewer passages hold it."""
        wanted = set(map(_stem, keywords(self.question)))
        held = {p: wanted & set(map(_stem, re.findall(r"[^\W\d_]+", p.text.lower()))) for p in self.found}
        spread = {word: sum(word in words for words in held.values()) for word in wanted}
        return {p: sum(math.log(1 + len(held) / spread[w]) for w in sorted(words)) for p, words in held.items()}

    def quotes(self) -> list[Passage]:
        """Return the passages that fit the question best; of equal ones, the shorter first."""
        scores = self.scores()
        best = sorted((p for p in scores if scores[p] > 0), key=lambda p: (-scores[p], len(p.text)))
        return best[:_QUOTES]

    def worth_reading(self) -> list[str]:
        """Return the documents of the passages found so far, best first; without any, the documents of a listing."""
        total: dict[str, float] = {}
        for passage, score in self.scores().items():
            if passage.document and score > 0 and (not self.names or passage.document in self.names):
                total[passage.document] = total.get(passage.document, 0) + score
        return (sorted(total, key=lambda name: -total[name]) or self.names)[:_READINGS]


def _next_calls(talk: _Talk, tools: Iterable[dict[str, Any]]) -> list[ToolCall]:
    """Return the next calls: to list, else to search, else to read, with a tool that has not been called yet."""
    plan: dict[str, Callable[[], list[str]]] = {
        "list": lambda: [""],
        "search": lambda: keywords(talk.question)[:_SEARCHES],
        "read": talk.worth_reading,
    }
    offered = [tool["function"] for tool in tools if tool["function"]["name"] not in talk.called]
    for verb, values in plan.items():
        for tool in offered:
            takes = _takes(tool)
            if _does(tool["name"], verb) and takes is not None and bool(takes) == (verb != "list") and values():
                return [ToolCall(tool["name"], {takes: value} if takes else {}) for value in values()]
    return []


def _answer(talk: _Talk, schema: dict[str, Any] | None) -> str:
    quotes = talk.quotes()
    if schema:
        return json.dumps(_Form(schema.get("$defs", {}), talk.question).filled(schema, quotes), ensure_ascii=False)
    if not quotes:
        words = ", ".join(keywords(talk.question))
        return f"(nothing that was given speaks of: {words or talk.question})\n\n{NOTE}"
    lines = [f"- {passage}" for passage in talk.found if passage in quotes]
    return "\n".join([f"# {talk.question}", "", *lines, "", NOTE])


def _given(content: str, question: str) -> list[Passage]:
    """Return the passages in a user's message: the text under headings, else everything except the question."""
    _, heading, below = f"\n{content}".partition("\n## ")
    if heading:
        return passages(f"## {below}")
    return [passage for passage in passages(content) if question not in passage.text and passage.text not in question]


@dataclass(frozen=True, slots=True)
class _Form:
    """Builds JSON values that fit a simple schema."""

    definitions: Any
    """The schemas that others name, by name."""
    question: str

    def filled(self, schema: Any, found: Sequence[Passage], name: str = "", inside: tuple[str, ...] = ()) -> Any:
        """Return a value with the passages found. `inside`: the definitions that it is a part of.

        A text is the best passage, a list has an item for each passage, and a schema without a rule here gives null. A
        definition is not filled inside itself: a list of it is empty.
        """
        if ref := _named(schema):
            return None if ref in inside else self.filled(self.definitions[ref], found, name, (*inside, ref))
        if options := schema.get("anyOf"):
            ends = [option for option in options if _named(option) not in inside]
            return self.filled(ends[0], found, name, inside) if ends else None
        if "enum" in schema or "const" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        match schema.get("type"):
            case "object":
                fields = schema.get("properties", {}).items()
                return {key: self.filled(inner, found, key, inside) for key, inner in fields}
            case "array" if places := schema.get("prefixItems"):
                return [self.filled(place, found, "", inside) for place in places]
            case "array":
                items = schema.get("items", {})
                return [self.filled(items, [one], "", inside) for one in found if _named(items) not in inside]
        return self._plain(schema, found, name)

    def _plain(self, schema: Any, found: Sequence[Passage], name: str) -> Any:
        """Return a text, a number or a truth value that fits; None for a schema of anything else."""
        match schema.get("type"):
            case "string" if name in ("title", "question", "topic"):
                return self.question
            case "string":
                return "" if not found else found[0].source if name in ("source", "citation") else str(found[0])
            case "integer" | "number":
                number = next((int(number) for p in found for number in re.findall(r"\b\d{1,9}\b", p.text)), 0)
                return min(max(number, schema.get("minimum", number)), schema.get("maximum", number))
            case "boolean":
                return bool(found)
        return None


def _named(schema: Any) -> str:
    """Return the name of the definition that a schema refers to; "" if it does not refer to one."""
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _does(tool: str, verb: str) -> bool:
    """Return whether a tool's name holds this verb. If it holds several, the first of list, search, read counts."""
    parts = set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", tool).lower()))
    return next((name for name, words in _VERBS.items() if words & parts), None) == verb


def _takes(tool: dict[str, Any]) -> str | None:
    """Return the name of the one text argument that a tool requires.

    "" if it requires no argument, None if it requires more than this model can give.
    """
    parameters = tool.get("parameters") or {}
    wanted = parameters.get("required") or []
    if not wanted:
        return ""
    kind = parameters.get("properties", {}).get(wanted[0], {}).get("type")
    return str(wanted[0]) if len(wanted) == 1 and kind == "string" else None


def _stem(word: str) -> str:
    """Return the beginning of a word, so that `governed` matches `government`, and `tide` matches `tides`."""
    return word.rstrip("s")[:5]
