"""Output for people: lines, fields, tables and trees.

On a terminal the output fits the width. Elsewhere it is plain and not cut, one item on each line, for grep and awk.
Recorded texts are printed with control characters escaped, and in ASCII if the stream takes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from crewlite.cli.checkpoint.words import ago, iso
from crewlite.cli.exits import writing
from crewlite.console import text as console_text
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from rich import console as rich, segment as rich_segment, text as rich_text
else:
    rich, rich_segment, rich_text = map(lazy, ("rich.console", "rich.segment", "rich.text"))

Part = str | tuple[str, str]
"""A text, or a text and its style."""

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. On a terminal that is too narrow, a column with a `least` shrinks to that many characters.

    If that is not enough, columns with a `spare` are left out, the greatest first. Empty columns are always left out.
    """

    name: str
    right: bool = False
    least: int = 0
    spare: int = 0


@dataclass(slots=True)
class Node:
    """A line of a tree, and the lines below it."""

    parts: Sequence[Part]
    below: list[Node] = field(default_factory=list)


class Screen:
    """Standard output, or with `stderr` standard error."""

    def __init__(self, *, stderr: bool = False) -> None:
        self._console = rich.Console(highlight=False, stderr=stderr)
        self.terminal: bool = self._console.file.isatty()  # not what FORCE_COLOR makes of a pipe
        self.width: int = self._console.width

    def line(self, *parts: Part, whole: bool = False) -> None:
        """Print a line, cut to the width of a terminal. With `whole` it is not cut, for lines to be copied."""
        if not self.terminal or whole:
            return self.lines([parts])
        return self._print(self._text(parts), no_wrap=True, overflow="ellipsis" if self._takes("…") else "crop")

    def lines(self, lines: Iterable[Sequence[Part]]) -> None:
        """Print lines that are not cut. Rich takes about 100 µs for each call, so thousands are printed in one."""
        segments: list[rich_segment.Segment] = []
        for parts in lines:
            segments += self._segments(parts)
            segments.append(rich_segment.Segment.line())
        self._print(rich_segment.Segments(segments), soft_wrap=True, end="")

    def block(self, text: str, indent: int = 0) -> None:
        """Print a text of any length, line by line, without cutting or wrapping the lines."""
        self.lines([" " * indent + line.replace("\t", "    ")] for line in text.splitlines() or [""])

    def mark(self, name: str) -> Part:
        """Return the mark of a status, with its style."""
        return console_text.mark_of(name, self._console)

    def when(self, moment: datetime) -> str:
        """Return a time as text: how long ago it was on a terminal, else in ISO 8601."""
        return ago(moment) if self.terminal else iso(moment)

    def fields(self, rows: Iterable[tuple[str, Part]], indent: int = 0) -> None:
        """Print names and values. A long value is wrapped below its beginning."""
        found = [(name, value) for name, value in rows if value]
        width = max((len(name) for name, _ in found), default=0)
        for name, value in found:
            head = f"{' ' * indent}{name:<{width}}{_GAP}"
            self._field(head, self._text([value]))

    def _field(self, head: str, value: rich_text.Text) -> None:
        room = self.width - len(head)
        if not self.terminal or room < 20 or (" " not in value.plain and value.cell_len > room):
            return self.line((head, "dim"), value.plain, whole=True)
        for number, part in enumerate(value.wrap(self._console, room)):
            part.rstrip()
            shown = rich_text.Text.assemble((head if number == 0 else " " * len(head), "dim"), part)
            self._print(shown, no_wrap=True, overflow="ignore", crop=False)
        return None

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Print a table with a header line."""
        cells = [[self._text([cell]) for cell in row] for row in rows]
        widths = self._widths(columns, cells)
        heads = [rich_text.Text(column.name, style="bold") for column in columns]
        for row in [heads, *cells]:
            parts = [self._fit(row[n], width, columns[n]) for n, width in widths.items()]
            line = rich_text.Text(_GAP).join(parts)
            line.rstrip()
            if self.terminal:
                self._print(line, no_wrap=True, overflow="crop")
            else:
                self._print(line, soft_wrap=True)

    def tree(self, roots: Sequence[Node]) -> None:
        """Print trees."""
        fork, last, through = ("├─ ", "└─ ", "│  ") if self._takes("├─└│") else ("|- ", "`- ", "|  ")
        waiting: list[tuple[Node, str, str]] = [(root, "", "") for root in reversed(roots)]
        while waiting:
            node, before, beside = waiting.pop()
            self.line((before, "dim"), *node.parts)
            for number, below in enumerate(reversed(node.below)):
                waiting.append((below, beside + (fork if number else last), beside + (through if number else "   ")))

    def _print(self, shown: rich_text.Text | rich_segment.Segments, **how: Any) -> None:
        with writing():
            self._console.print(shown, **how)

    def _segments(self, parts: Sequence[Part]) -> list[rich_segment.Segment]:
        """Return the parts of a line as rich prints them, without white space at its end."""
        shown = self._shown(parts)
        while shown and not (end := shown[-1][0].rstrip()):
            shown.pop()
        if shown:
            shown[-1] = end, shown[-1][1]
        style = self._console.get_style
        return [rich_segment.Segment(text, style(name) if name else None) for text, name in shown]

    def _text(self, parts: Sequence[Part]) -> rich_text.Text:
        return rich_text.Text.assemble(*self._shown(parts))

    def _shown(self, parts: Sequence[Part]) -> list[tuple[str, str]]:
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        return [(console_text.printable(text, self._console), style) for text, style in pairs]

    def _takes(self, text: str) -> bool:
        return console_text.encodable(text, self._console)

    def _widths(self, columns: Sequence[Column], cells: Sequence[Sequence[rich_text.Text]]) -> dict[int, int]:
        """Return the width of each column that is shown, by its number."""
        widths = {n: max([len(one.name), *(row[n].cell_len for row in cells)]) for n, one in enumerate(columns)}
        if not self.terminal:
            return widths
        widths = {n: width for n, width in widths.items() if any(row[n].plain for row in cells)} or widths
        least = {n: min(width, columns[n].least or width) for n, width in widths.items()}
        room = self.width + len(_GAP)  # each column counts with a gap behind it
        while sum(least[n] + len(_GAP) for n in widths) > room:
            out = max(widths, key=lambda n: columns[n].spare)
            if not columns[out].spare:
                break
            del widths[out]
        while sum(width + len(_GAP) for width in widths.values()) > room:
            wide = max((n for n in widths if widths[n] > least[n]), key=lambda n: widths[n] - least[n], default=None)
            if wide is None:
                break
            widths[wide] -= 1
        return widths

    def _fit(self, cell: rich_text.Text, width: int, column: Column) -> rich_text.Text:
        cell = cell.copy()
        if not self.terminal and not cell.plain:
            cell.append("-")  # so that awk finds the same number of words on each line
        if cell.cell_len > width:
            dots = "…" if self._takes("…") else "..."
            cell.truncate(width - len(dots))
            cell.append(dots)
        space = " " * (width - cell.cell_len)
        return rich_text.Text.assemble(*((space, cell) if column.right else (cell, space)))
