"""Extraction: the keywords of a question, and the sentences in a text that speak to it.

No understanding is claimed: a sentence is good if it holds many of the keywords, rare ones above all. Sources travel
with their sentences, in the two forms tools and people use most: `name:12: text` and `- text [name:12]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Json = Any

_NUMBERED = re.compile(r"^([^\s:]+):(\d+): ?(.*)$")
_CITED = re.compile(r"^[-*] (.+) \[([^\[\]]+)\]$")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_QUOTED = re.compile(r"[\"“]([^\"“”]{3,400})[\"”]")
_ASKED = re.compile(r"[^.?!\n]+\?")
_ENDINGS = ("ments", "ment", "ings", "ing", "ies", "ied", "ed", "es", "s", "y", "e")
_SOURCES = frozenset({"source", "sources", "citation", "reference", "document", "where"})
_TITLES = frozenset({"title", "question", "topic", "subject", "heading"})
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """a about above after all also an and any are as at be because been before being below between both but by can
        could did do does doing each every few for from further had has have having he her here hers him his how i if
        in into is it its itself just let may me might more most must my no nor not now of off on once only or other
        our out over own per same shall she should so some such than that the their them then there these they this
        those through to too under until up us very was we were what when where which while who whom whose why will
        with would you your

        answer brief cite come comes describe document documents each explain expected find found full get give good
        key list make name output passage passages pick please question read report say says search sentence short
        source sources speak speaks summarise summarize summary tell text using word words write""",
    )
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, and where it stands: `name`, `name:line`, or None if nobody said."""

    text: str
    source: str | None = None

    @property
    def document(self) -> str | None:
        """The source without its line."""
        name, colon, line = (self.source or "").rpartition(":")
        return name if colon and line.isdigit() else self.source

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]" if self.source else self.text


def question_in(text: str) -> str:
    """What a text asks: what stands in quotation marks, else what ends in `?`, else its first paragraph.

    What comes below a markdown heading is material, not question.
    """
    opening = text.partition("\n## ")[0].strip()
    first = opening.partition("\n\n")[0]
    for part in (first, opening):
        asked = _QUOTED.findall(part)[:1] or _ASKED.findall(part)[-1:]
        if asked:
            return " ".join(asked[0].split())
    return " ".join(first.split())


def keywords(text: str) -> list[str]:
    """The words that carry a question, in order, each once.

    >>> keywords("What do the documents say about liberty, and about the powers of government?")
    ['liberty', 'powers', 'government']
    """
    words = [word for word in re.findall(r"[^\W\d_]{3,}", text.lower()) if word not in _COMMON]
    first = {stem(word): word for word in reversed(words)}
    return [word for word in dict.fromkeys(words) if first[stem(word)] == word]


def stem(word: str) -> str:
    """The word without its commonest endings, so that `governed` meets `government`."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def passages(text: str, source: str | None = None) -> list[Passage]:
    """The sentences of a text with their sources. Markdown headings name the source of what is below them."""
    found = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#"):
            source = line.strip("# ") or source
        elif numbered := _NUMBERED.match(line):
            name, number, said = numbered.groups()
            found += [] if _is_frame(said) else [Passage(said, f"{name}:{number}")]
        elif cited := _CITED.match(line):
            found.append(Passage(*cited.groups()))
        elif not _is_frame(line):
            found += [Passage(sentence, source) for sentence in _SENTENCE_END.split(line)]
    return list(dict.fromkeys(found))


def scores(candidates: Sequence[Passage], words: Iterable[str]) -> dict[Passage, float]:
    """How well each passage speaks to the words. A word counts for more, the fewer passages hold it."""
    wanted = {stem(word) for word in words}
    held = {passage: wanted & set(map(stem, re.findall(r"[^\W\d_]+", passage.text.lower()))) for passage in candidates}
    spread = {word: sum(word in words for words in held.values()) for word in wanted}
    weight = {word: math.log(1 + len(held) / count) for word, count in spread.items() if count}
    return {passage: sum(weight[word] for word in sorted(words)) for passage, words in held.items()}


def best(candidates: Sequence[Passage], words: Sequence[str], limit: int) -> list[Passage]:
    """The passages that speak to the words best, at most `limit`; without words, the first. Of equals, the shorter."""
    if not words:
        return list(candidates[:limit])
    scored = scores(candidates, words)
    return sorted((p for p in scored if scored[p] > 0), key=lambda p: (-scored[p], len(p.text)))[:limit]


def fitting(schema: Json, found: Sequence[Passage], question: str, definitions: Json = None) -> Json:
    """A JSON value of the schema, filled with passages: the best for a text, each in a list, a number found in them.

    Simple schemas only: what it has no rule for becomes null.
    """
    definitions = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        return fitting(definitions[schema["$ref"].rpartition("/")[2]], found, question, definitions)
    if options := schema.get("anyOf"):
        return fitting(options[0], found, question, definitions)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {}).items()
            return {name: _property(name, field, found, question, definitions) for name, field in fields}
        case "array":
            return [fitting(schema["items"], [passage], question, definitions) for passage in found]
        case "string":
            return str(found[0]) if found else ""
        case "integer" | "number":
            return next((int(n) for p in found for n in re.findall(r"\b\d{1,9}\b", p.text)), 0)
        case "boolean":
            return bool(found)
    return None


def _is_frame(line: str) -> bool:
    """Whether a line is about the text, not of it: headings, notes, JSON, wishes, remarks in parentheses."""
    remark = line.startswith("(") and line.endswith(")")
    return remark or line.startswith(("#", ">", "{", "Expected output:")) or not re.search(r"\w", line)


def _property(name: str, schema: Json, found: Sequence[Passage], question: str, definitions: Json) -> Json:
    if schema.get("type") == "string" and "enum" not in schema:
        if name in _SOURCES and found:
            return found[0].source or ""
        if name in _TITLES:
            return question
    return fitting(schema, found, question, definitions)
