"""Dialogs: a question with one line to type, and what a fork is to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, Static

from crewlite.tui.command import Command, Fork
from crewlite.tui.words import line, plain

TARGET = "definition MODULE:ATTRIBUTE; if empty, of pyproject.toml or the record"
_BRANCH = "name of the branch; made up if empty"


class Ask(ModalScreen[str | None]):
    """Asks for one line, or, without `wanted`, for a yes. The result is the line; None if the user leaves it."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "OK", priority=True),
        Binding("escape", "leave", "Cancel"),
    ]

    def __init__(self, title: str, body: str = "", *, wanted: str = "", given: str = "") -> None:
        super().__init__()
        self._title, self._body, self._wanted, self._given = title, body, wanted, given

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical(classes="box"):
            yield Label(line((self._title, "bold")), classes="title")
            with VerticalScroll(classes="body"):
                yield Static(Text(plain(self._body)))
            if self._wanted:
                yield Input(self._given, placeholder=self._wanted, compact=True, select_on_focus=False)
            yield Footer(show_command_palette=False)

    def action_take(self) -> None:
        """Close with the line."""
        self.dismiss(self.query_one(Input).value if self._wanted else "")

    def action_leave(self) -> None:
        """Close without one."""
        self.dismiss(None)


class ForkDialog(ModalScreen[tuple[Fork, bool] | None]):
    """Shows what a fork would run again. The result is the fork and whether to run it; None for no fork."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "fork(True)", "Fork and run", priority=True),
        Binding("ctrl+n", "fork(False)", "Only fork"),
        Binding("ctrl+p", "preview", "Preview again"),
        Binding("ctrl+o", "allow_effects", "Allow effects"),
        Binding("escape", "leave", "Cancel"),
    ]

    def __init__(self, fork: Fork, location: str, where: str, changes: Sequence[str], *, runs: bool) -> None:
        super().__init__()
        self._fork, self._location, self._where, self._changes = fork, location, where, changes
        self._runs = runs

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical(classes="box"):
            yield Label(line((f"Fork {self._where}", "bold")), classes="title")
            none = "no edits: the branch begins as the run was there"
            yield Static(Text("\n").join(line(one) for one in self._changes or [none]), classes="changes")
            for name, value, wanted in (("branch", "", _BRANCH), ("target", self._fork.target, TARGET)):
                yield Input(value, placeholder=wanted, compact=True, select_on_focus=False, id=name)
            yield Static(id="effects")
            with VerticalScroll(classes="body"):
                yield Static(id="preview")
            yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show the preview."""
        self.action_preview()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide what this run cannot do."""
        return self._runs or action not in ("fork", "preview") or parameters == (False,)

    @work(exclusive=True)
    async def action_preview(self) -> None:
        """Have the command foresee what would run."""
        if not self._runs:
            return
        shown = self.query_one("#preview", Static)
        shown.update(Text("working out what would run again …", "dim"))
        lines: list[Text] = []
        words = replace(self._named(), branch="", allow_effects=False).words(self._location, "--preview")
        await Command(words).run(lambda text, is_answer: lines.append(foreseen(text) if is_answer else line(text)))
        shown.update(Text("\n").join(lines))

    def action_fork(self, run: bool) -> None:
        """Close with the fork."""
        self.dismiss((self._named(), run))

    def action_allow_effects(self) -> None:
        """Let calls with effect="once" be made again, or not."""
        self._fork = replace(self._fork, allow_effects=not self._fork.allow_effects)
        allowed = "calls with effect='once' may be made again" if self._fork.allow_effects else ""
        self.query_one("#effects", Static).update(Text(allowed, "yellow"))

    def action_leave(self) -> None:
        """Close without a fork."""
        self.dismiss(None)

    def _named(self) -> Fork:
        branch, target = (self.query_one(name, Input).value.strip() for name in ("#branch", "#target"))
        return replace(self._fork, branch=branch, target=target)


def foreseen(text: str) -> Text:
    """Return a line of a preview, with the steps that run in colour."""
    style = "dim" if text.startswith("reused") else "yellow" if text.startswith(("runs", "may run", "again")) else ""
    return Text(plain(text), style)
