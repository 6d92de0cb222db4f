"""Recorded texts as the view shows them: nothing in them is markup, and no control character reaches the terminal."""

from __future__ import annotations

from rich.text import Text

from crewlite.cli.checkpoint.screen import Part
from crewlite.console.text import MARKS
from crewlite.wording import escaped

LONGEST = 20_000
"""Characters of a value that are shown."""


def plain(text: str) -> str:
    """Return a text with its lines kept and everything else that is not printable escaped."""
    return "\n".join(escaped(line.replace("\t", "    ")) for line in text.splitlines())


def shown(text: str) -> str:
    """Return the part of a text that is shown, and how much more there is."""
    if len(text) <= LONGEST:
        return plain(text)
    return f"{plain(text[:LONGEST])}\n... {len(text) - LONGEST:,} more characters"


def line(*parts: Part) -> Text:
    """Build one line of texts and (text, style) pairs."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        words, style = part if isinstance(part, tuple) else (part, "")
        text.append(escaped(words), style)
    return text


def mark(status: str) -> tuple[str, str]:
    """Return the mark of a status, with its style."""
    fancy, _, style = MARKS.get(status, MARKS["open"])
    return fancy, style
