"""Recorded texts as the view shows them, and its colours.

Nothing in a text is markup, and no control character reaches the terminal. The named colours of the command line have
enough contrast on the two backgrounds of the view.
"""

from __future__ import annotations

from rich.terminal_theme import TerminalTheme
from rich.text import Text

from crewlite.cli.checkpoint.screen import Part
from crewlite.console.text import MARKS
from crewlite.texts.wording import escaped, escaped_lines

LONGEST = 20_000
"""Characters of a value that are shown."""


def shown(text: str) -> str:
    """Return the part of a text that is shown, and how much more there is."""
    if len(text) <= LONGEST:
        return escaped_lines(text)
    return f"{escaped_lines(text[:LONGEST])}\n... {len(text) - LONGEST:,} more characters"


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


_Colour = tuple[int, int, int]


def _theme(background: _Colour, foreground: _Colour, colours: list[_Colour]) -> TerminalTheme:
    return TerminalTheme(background, foreground, colours, colours)


DARK = _theme(
    (18, 18, 18),
    (224, 224, 224),
    [
        (88, 88, 88),  # black
        (242, 119, 122),  # red
        (129, 199, 132),  # green
        (240, 198, 116),  # yellow
        (124, 178, 242),  # blue
        (206, 158, 232),  # magenta
        (110, 203, 214),  # cyan
        (224, 224, 224),  # white
    ],
)
LIGHT = _theme(
    (224, 224, 224),
    (32, 32, 32),
    [
        (32, 32, 32),
        (176, 24, 40),
        (22, 106, 46),
        (136, 84, 0),
        (22, 84, 168),
        (124, 44, 150),
        (0, 102, 118),
        (96, 96, 96),
    ],
)
