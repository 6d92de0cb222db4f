"""The differences between two runs as a page of HTML, and the parts of it that other pages share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

from crewlite.lazy import difflib
from crewlite.pages.rendering import rendered
from crewlite.state.comparing.fields import FieldDiff
from crewlite.state.comparing.text import counts, why_unknown

FOLDER = "crewlite/state/comparing"
"""The folder of the templates. In parts.html.j2 `compared(diff)` shows a RunDiff, with the values of `for_parts`."""


MarkedText = tuple[bool, str]
"""(whether the text differs, the text)"""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_MOST = 300  # words of a line that are compared
_ALIKE = 0.35  # share of a line that has to be the same; below that, marks would only distract


def page(diff: object) -> str:
    """Return the page of a RunDiff."""
    return rendered("diff.html.j2", FOLDER, diff=diff, **for_parts())


def for_parts() -> dict[str, Any]:
    """Return the functions that parts.html.j2 uses, for one page."""
    return {"marked": marked, "counts": counts, "why_unknown": why_unknown, "first_shown": _first_shown()}


def _first_shown() -> Callable[[object, str, FieldDiff], str | None]:
    """Return a function that finds the first address at which a difference was shown: None if this is the first."""
    seen: dict[tuple[int, tuple[str, ...]], str] = {}

    def find(diff: object, address: str, field: FieldDiff) -> str | None:
        earlier = seen.setdefault((id(diff), field.lines), address)
        return None if earlier == address else earlier

    return find


def marked(lines: Sequence[str]) -> Iterator[tuple[str, list[MarkedText]]]:
    """Yield (mark, parts) for the lines of a text diff. Removed and added lines of a group are compared in pairs."""
    number = 0
    while number < len(lines):
        gone = _run(lines, number, "-")
        come = _run(lines, number + len(gone), "+")
        if not gone and not come:
            line = lines[number]
            yield line[:1], [(False, line if line.startswith("@@") else line[1:])]
            number += 1
            continue
        pairs = [_compared(one[1:], other[1:]) for one, other in zip(gone, come, strict=False)]
        for mark, side, group in (("-", 0, gone), ("+", 1, come)):
            for place, line in enumerate(group):
                yield mark, pairs[place][side] if place < len(pairs) else [(False, line[1:])]
        number += len(gone) + len(come)


def _run(lines: Sequence[str], start: int, mark: str) -> list[str]:
    return list(takewhile(lambda line: line.startswith(mark), islice(lines, start, None)))


def _compared(one: str, other: str) -> tuple[list[MarkedText], list[MarkedText]]:
    """Return the parts of a removed line, and the parts of the added line that replaces it."""
    words = _WORD.findall(one), _WORD.findall(other)
    whole = [(False, one)], [(False, other)]
    if max(map(len, words)) > _MOST:
        return whole
    found = difflib.SequenceMatcher(None, *words, autojunk=False)
    if found.ratio() < _ALIKE:
        return whole
    codes = found.get_opcodes()
    return _joined((tag, words[0][i:i_end]) for tag, i, i_end, _, _ in codes), _joined(
        (tag, words[1][j:j_end]) for tag, _, _, j, j_end in codes
    )


def _joined(parts: Iterable[tuple[str, Sequence[str]]]) -> list[MarkedText]:
    return [(tag != "equal", "".join(words)) for tag, words in parts if words]
