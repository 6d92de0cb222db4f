"""Print lines for people. Texts of models, tools and users are printed without markup and control characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.escaping import escaped
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from rich.console import Console

rich_text = lazy("rich.text")

_MARKS = {  # the mark, its replacement on streams that cannot encode it, its colour
    "begun": ("▸", ">", "cyan"),
    "done": ("✓", "+", "green"),
    "reused": ("↺", "=", "yellow"),
    "saved": ("●", "*", "blue"),
    "said": ("»", ">", "dim"),
    "waits": ("◇", "~", "magenta"),
    "failed": ("✗", "x", "red"),
}


def say(console: Console, mark: str, text: str, *, depth: int = 0, whole: bool = False) -> None:
    """Print a line with a mark, which is a name in `_MARKS`. On a terminal the line is cut unless `whole`."""
    fancy, plain, colour = _MARKS[mark]
    sign = fancy if encodable(fancy, console) else plain
    line = rich_text.Text.assemble("  " * depth, (sign, colour), f" {printable(text, console)}")
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
