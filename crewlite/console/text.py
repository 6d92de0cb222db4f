"""Print lines for people. Texts of models, tools and users are printed without markup and control characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import lazy
from crewlite.texts.wording import escaped

if TYPE_CHECKING:
    from rich.console import Console

rich_text = lazy("rich.text")

MARKS = {  # the mark, its replacement on streams that cannot encode it, and the style of what it stands for
    "begun": ("▸", ">", "cyan"),
    "at work": ("▸", ">", "bold cyan"),
    "unfinished": ("▸", ">", "yellow"),
    "not run yet": ("▸", ">", "yellow"),
    "finished": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "waiting": ("◇", "~", "magenta"),
    "cancelled": ("■", "=", "yellow"),
    "in_doubt": ("?", "?", "yellow"),
    "damaged": ("!", "!", "bold red"),
    "unreadable": ("!", "!", "bold red"),
    "reused": ("↺", "=", "yellow"),
    "edited": ("✎", "=", "magenta"),
    "checkpoint": ("●", "*", "blue"),
    "said": ("»", ">", "dim"),
    "open": ("○", "-", "dim"),
}


def mark_of(name: str, console: Console) -> tuple[str, str]:
    """Return the mark of a status or an event that this console can show, and its style."""
    fancy, plain, style = MARKS[name]
    return (fancy if encodable(fancy, console) else plain), style


def style_of(status: str) -> str:
    """Return the style of a status as text."""
    return MARKS.get(status, MARKS["open"])[2]


def say(console: Console, mark: str, text: str, *, depth: int = 0, whole: bool = False) -> None:
    """Print a line with a mark, which is a name in `MARKS`. On a terminal the line is cut unless `whole`."""
    line = rich_text.Text.assemble("  " * depth, mark_of(mark, console), f" {printable(text, console)}")
    if console.is_terminal and not whole:
        console.print(line, no_wrap=True, overflow="ellipsis" if encodable("…", console) else "crop")
    else:
        console.print(line, soft_wrap=True)  # a pipe has no width to fit


def printable(text: str, console: Console) -> str:
    """Return the text with control characters escaped, and characters that the stream cannot encode."""
    shown = escaped(text)
    return shown if shown.isascii() else shown.encode(console.encoding, "backslashreplace").decode(console.encoding)


def encodable(text: str, console: Console) -> bool:
    """Return whether the console's stream can encode a text."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return True
