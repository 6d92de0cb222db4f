"""Lines for people: what came from a model, a tool or a user is text only, with no markup and no control characters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import lazy

if TYPE_CHECKING:
    from rich.console import Console

rich_text = lazy("rich.text")

_MARKS = {  # as it should be, where it cannot be shown, colour
    "begun": ("▸", ">", "cyan"),
    "done": ("✓", "+", "green"),
    "reused": ("↺", "=", "yellow"),
    "saved": ("●", "*", "blue"),
    "said": ("»", ">", "dim"),
    "waits": ("◇", "~", "magenta"),
    "failed": ("✗", "x", "red"),
}


def say(console: Console, mark: str, text: str, *, depth: int = 0, whole: bool = False) -> None:
    """Print a line with a mark: a name in `_MARKS`, shown in ASCII where need be. A terminal cuts it unless `whole`."""
    fancy, plain, colour = _MARKS[mark]
    sign = fancy if encodable(fancy, console) else plain
    line = rich_text.Text.assemble("  " * depth, (sign, colour), f" {printable(text, console)}")
    if console.is_terminal and not whole:
        console.print(line, no_wrap=True, overflow="ellipsis" if encodable("…", console) else "crop")
    else:
        console.print(line, soft_wrap=True)  # nobody reads a pipe at 80 columns


def printable(text: str, console: Console) -> str:
    """The text with everything escaped that the stream cannot take, or that would do something and not be seen."""
    seen = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return seen.encode(console.encoding, "backslashreplace").decode(console.encoding)


def encodable(text: str, console: Console) -> bool:
    """Whether the console's stream can take a text."""
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return True
