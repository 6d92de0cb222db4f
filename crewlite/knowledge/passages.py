"""Passages of texts, and the search for those that share words with a query, ranked by BM25.

Words rather than embeddings: a search is a pure function of the query and the texts, in every process and on every
machine, so a resumed run finds what it found before. It needs no model, no key, no network and no store. The index is
plain Python and not SQLite's FTS5, which some builds lack, and which takes a run of Chinese or Japanese for one word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import NamedTuple

_WORDS = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u0e00-\u0eff\u3040-\ud7af]+")
"""In scripts without spaces, each character is a word."""
_ENDING = re.compile(r"(?<=\w{3})(?:ies|ing|ed|es|[sye])$")
"""Of English words, so that "policies" finds "policy". Words that were equal stay so, in any language."""
_SATURATION, _BY_LENGTH = 1.2, 0.75  # k1 and b of Robertson and Zaragoza, "The Probabilistic Relevance Framework"


class Passage(NamedTuple):
    """A piece of a source."""

    source: str
    """The name of the text that it is from, such as a path; "" for a text without a name."""
    text: str


def pieces(text: str, size: int, overlap: int) -> Iterator[str]:
    """Yield pieces of at most `size` characters. Each begins with the last `overlap` characters of the one before.

    A piece ends at the end of a line or a word, if there is one in its second half.
    """
    start = 0
    while start < len(text):
        end, earliest = start + size, start + (size + overlap) // 2
        if end < len(text):
            cut = max(text.rfind("\n", earliest, end), 0) or text.rfind(" ", earliest, end)
            end = cut + 1 if cut > 0 else end
        if piece := text[start:end].strip():
            yield piece
        if end >= len(text):
            return
        start = max(end - overlap, start + 1)


class Index:
    """Passages by the words in them."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages, self.lengths, stems = tuple(passages), list[int](), _Stems()
        self._places = defaultdict[str, list[int]](list)
        """For each word the numbers of its passages, each followed by how often the word is in it."""
        for number, passage in enumerate(self.passages):
            counts = Counter(_words(f"{passage.source} {passage.text}", stems))
            self.lengths.append(counts.total())
            for word, count in counts.items():
                self._places[word] += (number, count)

    def places(self, word: str) -> Iterator[tuple[int, int]]:
        """Yield (number of a passage with this word, how often it has the word)."""
        found = iter(self._places.get(word, ()))
        return zip(found, found, strict=True)


def search(indexes: Sequence[Index], query: str, limit: int) -> list[tuple[Passage, float]]:
    """Return at most `limit` passages that share a word with the query, each with its score, the best one first.

    If there are no more passages than that, return all of them, in their order: a search by words would miss those
    that say the same in other words.
    """
    passages = [passage for index in indexes for passage in index.passages]
    scores = _scores(indexes, query)
    if len(passages) <= limit:
        return [(passage, scores.get(number, 0.0)) for number, passage in enumerate(passages)]
    best = sorted(scores, key=lambda number: (-scores[number], number))[:limit]
    return [(passages[number], scores[number]) for number in best]


def _scores(indexes: Sequence[Index], query: str) -> Mapping[int, float]:
    """Return the scores of the passages that share a word with the query, by their numbers among all passages."""
    lengths, firsts = list[int](), list[int]()
    for index in indexes:
        firsts.append(len(lengths))
        lengths += index.lengths
    mean = sum(lengths) / len(lengths) if any(lengths) else 1
    scores = dict[int, float]()
    for word in dict.fromkeys(_words(query, _Stems())):
        places = [
            (first + number, count)
            for first, index in zip(firsts, indexes, strict=True)
            for number, count in index.places(word)
        ]
        rarity = log(1 + (len(lengths) - len(places) + 0.5) / (len(places) + 0.5))
        for number, count in places:
            room = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * lengths[number] / mean)
            scores[number] = scores.get(number, 0.0) + rarity * count * (_SATURATION + 1) / (count + room)
    return {number: round(score, 6) for number, score in scores.items()}  # logarithms differ between machines


class _Stems(dict[str, str]):
    """The stems of words, each of which is looked for once."""

    def __missing__(self, word: str) -> str:
        self[word] = stem = _ENDING.sub("", word)
        return stem


def _words(text: str, stems: _Stems) -> Iterator[str]:
    plain = text.casefold()
    if not plain.isascii():
        apart = unicodedata.normalize("NFKD", plain)
        plain = unicodedata.normalize("NFC", "".join(one for one in apart if not unicodedata.combining(one)))
    return map(stems.__getitem__, _WORDS.findall(plain))
