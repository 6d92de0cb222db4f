"""The panels on the right: each shows one aspect of a place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import DataTable, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from crewlite.cli.checkpoint.files import LINE_STYLES
from crewlite.cli.checkpoint.words import compact, spent
from crewlite.console.text import style_of
from crewlite.pages.rendering import cost, duration
from crewlite.state.format.outcome import LightEvent
from crewlite.state.reading.steps import StepView
from crewlite.texts.wording import escaped, escaped_lines
from crewlite.tui.contents import Field, Row, Rows, bar
from crewlite.tui.places import Place
from crewlite.tui.words import line, mark, shown

ROWS = 1_000
"""The most rows of a table; of events, the last ones."""
_COLUMNS = ["step", "time", "timeline", "tokens"]
_WIDE = 56  # characters from which a table has room for the cost too
_TITLE = "bold blue"


class Overview(VerticalScroll):
    """The sections of the overview."""

    def __init__(self) -> None:
        super().__init__()
        self._sections: Sequence[tuple[str, Rows]] = ()

    def compose(self) -> ComposeResult:
        """Make the text."""
        yield Static(id="overview-text")

    def show(self, sections: Sequence[tuple[str, Rows]]) -> None:
        """Show these sections."""
        self._sections = sections
        parts: list[Any] = []
        width = max((len(name) for _, rows in sections for name, _ in rows), default=0)
        for title, rows in sections:
            if parts:
                parts.append(Text())
            if title:
                parts.append(Text(title, _TITLE))
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(style="dim", width=min(width, 16), overflow="ellipsis", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value in rows:
                grid.add_row(Text(name), value)
            parts.append(grid)
        self.query_one(Static).update(Group(*parts))

    def again(self) -> None:
        """Show the same sections, as time has passed."""
        self.show(self._sections)


class Sheet(DataTable[Text]):
    """A table of rows with keys; a refresh leaves the cursor where it is."""

    def __init__(self, *, name: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=False)

    def fill(self, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Text]]]) -> None:
        """Show these rows, each with its key."""
        row = self.cursor_row
        self.clear(columns=True)
        for number, name in enumerate(columns):
            widths = [len(name), *(cells[number].cell_len for _, cells in rows)]
            self.add_column(
                name, width=max(widths)
            )  # given, as a table that is not laid out yet does not measure its cells
        for key, cells in rows:
            self.add_row(*cells, key=key)
        self.move_cursor(row=min(row, len(rows) - 1), animate=False)


class Steps(Vertical):
    """The steps along the time, and the outcome of the one with the cursor."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: Sequence[Row] = ()
        self._steps: dict[str, StepView] = {}

    def compose(self) -> ComposeResult:
        """Make the table and the outcome below it."""
        yield Sheet(name="steps")
        with VerticalScroll(id="outcome"):
            yield Static()

    def show(self, rows: Sequence[Row], steps: dict[str, StepView]) -> None:
        """Show these steps."""
        self._rows, self._steps = rows, steps
        columns = [*_COLUMNS, "cost"] if self.size.width >= _WIDE else _COLUMNS
        along = 8 if self.size.width < _WIDE else 16
        room = max(14, self.size.width - along - (33 if len(columns) > len(_COLUMNS) else 22))
        cells = [(row.address, _step(row, room, along)[: len(columns)]) for row in rows[:ROWS]]
        self.query_one(Sheet).fill(columns, cells)
        if not rows:
            self._tell("no step has finished yet")

    def on_resize(self) -> None:
        """Fit the columns to the new size, also to the first one: the steps may be shown before there is one."""
        if self._rows:
            self.show(self._rows, self._steps)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the outcome of the step."""
        step = self._steps.get(str(event.row_key.value)) if event.row_key else None
        if step is None:
            return self._tell("only steps inside it are recorded")
        head = line((step.address or "the run", "bold"), "  ", mark(step.status), " ", (step.status, "dim"))
        used = f"\n{spent(step.usage)}" if step.usage.requests else ""
        said = Text(shown(outcome_of(step)))
        return self.query_one(Static).update(Text.assemble(head, (used, "dim"), "\n\n", said))

    def _tell(self, text: str) -> None:
        self.query_one(Static).update(Text(text, "dim"))


def _step(row: Row, room: int, width: int) -> list[Text]:
    style = "dim" if row.later else ""
    sign, colour = mark(row.status)
    name = Text("  " * row.depth, style)
    name.append(f"{sign} ", colour).append(escaped(row.name), style)
    name.truncate(room, overflow="ellipsis")
    before, along, after = bar(row, width)
    line_of_time = Text(before).append(along, style_of(row.status) if not row.later else "dim").append(after)
    numbers = [f"{row.tokens:,}" if row.tokens else "", cost(row.cost)]
    took = Text(duration(row.seconds), style, justify="right")
    return [name, took, line_of_time, *(Text(number, style, justify="right") for number in numbers)]


def outcome_of(step: StepView) -> str:
    """The failed attempts at a step, each with its model, and what the step came to."""
    tries = (
        f"{', '.join(filter(None, (f'try {one.number}', one.model)))}: {one.error_type}: {one.message}"
        for one in step.attempts
    )
    return "\n\n".join(filter(None, ("\n".join(tries), _ending(step))))


def _ending(step: StepView) -> str:
    if step.status == "finished":
        value = step.value
        if isinstance(value, dict) and value.keys() in ({"text"}, {"raw"}):
            (value,) = value.values()
        if isinstance(value, dict):
            return "\n".join(
                f"{name}: {item if isinstance(item, str) else compact(item)}" for name, item in value.items()
            )
        return value if isinstance(value, str) else compact(value)
    if step.attempts:
        return ""
    if step.asks:
        return "It waits for the answer of a person to a question inside it."
    return "It was cut in the middle: a resume makes it again." if step.repeatable else "It was cut in the middle."


class Events(Vertical):
    """The recorded events."""

    def compose(self) -> ComposeResult:
        """Make the table and the line that says what it leaves out."""
        yield Static(id="events-left-out")
        yield Sheet(name="events")

    def show(self, events: Sequence[LightEvent]) -> None:
        """Show these events."""
        left = len(events) - ROWS
        note = (
            f"the last {ROWS:,} of {len(events):,} events" if left > 0 else "" if events else "no events are recorded"
        )
        left_out = self.query_one("#events-left-out", Static)
        left_out.update(Text(note, "dim"))
        left_out.display = bool(note)
        rows = []
        for number, one in enumerate(events[-ROWS:]):
            when = Text(escaped(one.timestamp[11:19]), "dim")
            commit = Text(str(one.seq), "dim", justify="right")
            rows.append((str(number), [when, Text(escaped(one.type)), Text(escaped(one.address)), commit]))
        self.query_one(Sheet).fill(["time", "event", "address", "commit"], rows)


class Comparison(VerticalScroll):
    """How two places differ."""

    def compose(self) -> ComposeResult:
        """Make the text."""
        hint = "Press c to mark the place under the cursor, and c again on another place to compare that with it."
        yield Static(Text(hint, "dim"), id="comparison")

    def show(self, lines: Sequence[tuple[str, str]]) -> None:
        """Show the lines of a difference, each with its mark."""
        text = Text("\n").join(Text(escaped_lines(line_), LINE_STYLES.get(mark_, "")) for mark_, line_ in lines)
        self.query_one(Static).update(text)
        self.scroll_home(animate=False)


class Fields(Vertical):
    """Values with names: the list of them, and the value of the chosen one, which can be edited."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._place: Place | None = None
        self._fields: list[Field] = []
        self._at = 0
        self._chosen = ""
        """The name that the user has chosen. It stays chosen at other places that have it, such as a fork of it."""
        self._edits: dict[tuple[Place, str], str] = {}
        """Texts that differ from the recorded ones. They stay while another place is shown."""

    def compose(self) -> ComposeResult:
        """Make the list and the editor."""
        yield OptionList(markup=False, compact=True)
        yield TextArea(soft_wrap=True, show_line_numbers=False, compact=True)
        yield Static(id=f"note-{self._what}", classes="note", markup=False)

    def show(self, place: Place, fields: Sequence[Field]) -> None:
        """Show these values of a place, with the edits that were made to them before."""
        self._keep()
        self._place, self._fields = place, list(fields)
        self._fill()

    def _fill(self) -> None:
        fields = self._fields
        self._at = next((at for at, one in enumerate(fields) if one.name == self._chosen), 0)
        names = self.query_one(OptionList)
        names.clear_options()
        names.add_options([Option(self._prompt(one)) for one in fields])
        self.query_one(TextArea).display = names.display = bool(fields)
        if fields:
            names.highlighted = self._at
        self._load()

    def edits(self) -> list[tuple[Field, str]]:
        """Return the values of this place that were changed, with their new texts."""
        found = [(one, self._edits.get((self._place, one.name))) for one in self._fields] if self._place else []
        return [(one, text) for one, text in found if text is not None]

    @property
    def edited(self) -> bool:
        """Whether a value of any place was changed, and no fork has taken the edit."""
        return bool(self._edits)

    def forget(self) -> None:
        """Drop the edits of this place."""
        for one, _ in self.edits():
            assert self._place
            del self._edits[self._place, one.name]
        if self._place:
            self._fill()

    def on_option_list_option_highlighted(self) -> None:
        """Show the value of the chosen name."""
        if self.query_one(OptionList).highlighted not in (None, self._at):
            self._keep()
            self._at = next(at for at, one in enumerate(self._fields) if one.name == self._chosen)
            self._load()

    def on_option_list_option_selected(self) -> None:
        """Go to the editor."""
        self.query_one(TextArea).focus()

    def on_text_area_changed(self) -> None:
        """Keep the edit."""
        self._keep()

    def _keep(self) -> None:
        """Keep the text and the choice as they are in the widgets, also if the message of a key has yet to come."""
        if not (self._place and self._fields):
            return
        one, text, names = self._fields[self._at], self.query_one(TextArea).text, self.query_one(OptionList)
        if not one.fixed and text != self._text(one):
            self._chosen = one.name
            if text == one.text:
                self._edits.pop((self._place, one.name), None)
            else:
                self._edits[self._place, one.name] = text
            names.replace_option_prompt_at_index(self._at, self._prompt(one))
            self._note()
        if (at := names.highlighted) is not None and at != self._at:
            self._chosen = self._fields[at].name

    def _load(self) -> None:
        if self._fields:
            one, editor = self._fields[self._at], self.query_one(TextArea)
            editor.read_only = bool(one.fixed)
            if editor.text != self._text(one):
                editor.load_text(self._text(one))
        self._note()

    def _note(self) -> None:
        if not self._fields:
            note = f"no {self._what} at this place"
        else:
            one = self._fields[self._at]
            kind = "as JSON" if one.is_json else "as text"
            changed = (self._place, one.name) in self._edits
            note = one.fixed or (
                f"edited {kind}; escape, then f forks with it" if changed else f"{kind}; enter edits it, for a fork"
            )
        self.query_one(Static).update(Text(escaped(note), "dim"))

    def _text(self, one: Field) -> str:
        return self._edits.get((self._place, one.name), one.text) if self._place else one.text

    def _prompt(self, one: Field) -> Text:
        changed = self._place and (self._place, one.name) in self._edits
        first = self._text(one).strip().partition("\n")[0][:200]
        sign = ("✎ ", "magenta") if changed else "  "
        return line(sign, (one.name, "bold"), (f"  {first}", "dim"))
