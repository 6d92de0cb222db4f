"""Dialogs: a question with one line to type, and what a fork is to be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Label, Static

from crewlite.cli.exits import OK
from crewlite.texts.wording import escaped_lines
from crewlite.tui.command import Command, Fork
from crewlite.tui.words import line

TARGET = "--crew: MODULE:ATTRIBUTE; if empty, of pyproject.toml or the record"
_BRANCH = "name of the branch; made up if empty"


class Ask(ModalScreen[str | None]):
    """Asks for one line, or, without `wanted`, for a yes. The result is the line; None if the user leaves it.

    `act` does what the line is wanted for. If it returns why it was not done, the dialog says so and stays.
    """

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "OK", priority=True),
        Binding("escape", "leave", "Cancel"),
    ]

    def __init__(
        self,
        title: str,
        body: str = "",
        *,
        wanted: str = "",
        given: str = "",
        act: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        super().__init__()
        self._title, self._body, self._wanted, self._given = title, body, wanted, given
        self._act, self._acts = act, False

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical(classes="box"):
            yield Label(line((self._title, "bold")), classes="title")
            with VerticalScroll(classes="body"):
                yield Static(Text(escaped_lines(self._body)))
            if self._wanted:
                yield Input(self._given, placeholder=self._wanted, compact=True, select_on_focus=bool(self._given))
            yield Static(classes="problem")
            yield Footer(show_command_palette=False)

    @work
    async def action_take(self) -> None:
        """Close with the line, if what it is wanted for can be done."""
        if self._acts:  # enter was pressed twice
            return
        self._acts, said = True, self.query_one(Input).value if self._wanted else ""
        problem = await self._act(said) if self._act else ""
        self._acts = False
        if problem:
            self.query_one(".problem", Static).update(Text(escaped_lines(problem)))
        else:
            self.dismiss(said)

    def action_leave(self) -> None:
        """Close without one."""
        self.dismiss(None)


class ForkDialog(ModalScreen[tuple[Fork, bool] | None]):
    """Shows what a fork would run again. The result is the fork and whether to run it; None for no fork."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "fork(True)", "Fork and run", priority=True),
        Binding("ctrl+n", "fork(False)", "Only fork"),
        Binding("ctrl+p", "preview", "Preview"),
        Binding("ctrl+o", "allow_effects", "Allow effects"),
        Binding("escape", "leave", "Cancel"),
    ]

    def __init__(self, fork: Fork, location: str, where: str, changes: Sequence[str], *, runs: bool) -> None:
        super().__init__()
        self._fork, self._location, self._where, self._changes = fork, location, where, changes
        self._runs = runs
        self._failed: list[str] | None = None
        """The words of the last preview, if that has failed."""

    def compose(self) -> ComposeResult:
        """Make the box."""
        with Vertical(classes="box"):
            yield Label(line((f"Fork {self._where}", "bold")), classes="title")
            none = "no edits: the branch begins as the run was there"
            yield Static(Text("\n").join(line(one) for one in self._changes or [none]), classes="changes")
            for name, value, wanted in (("branch", "", _BRANCH), ("target", self._fork.target, TARGET)):
                yield Input(value, placeholder=wanted, compact=True, select_on_focus=bool(value), id=name)
            yield Static(id="effects")
            with VerticalScroll(classes="body"):
                yield Static(id="preview")
            yield Static(classes="problem")
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
        words = self._to_preview()
        code = await Command(words).run(
            lambda text, is_answer: lines.append(foreseen(text) if is_answer else line(text))
        )
        self._failed = None if code == OK else words
        shown.update(Text("\n").join(lines))

    def action_fork(self, run: bool) -> None:
        """Close with the fork, unless the preview has shown that it would fail in the same way."""
        if run and self._failed == self._to_preview():
            said = "It would fail like the preview: change something, ctrl+n forks without running, escape leaves."
            self.query_one(".problem", Static).update(Text(said))
        else:
            self.dismiss((self._named(), run))

    def action_allow_effects(self) -> None:
        """Let calls with effect="once" be made again, or not."""
        self._fork = replace(self._fork, allow_effects=not self._fork.allow_effects)
        allowed = "calls with effect='once' may be made again" if self._fork.allow_effects else ""
        self.query_one("#effects", Static).update(Text(allowed, "yellow"))

    def action_leave(self) -> None:
        """Close without a fork."""
        self.dismiss(None)

    def _to_preview(self) -> list[str]:
        return replace(self._named(), branch="", allow_effects=False).words(self._location, "--preview")

    def _named(self) -> Fork:
        branch, target = (self.query_one(name, Input).value.strip() for name in ("#branch", "#target"))
        return replace(self._fork, branch=branch, target=target)


def foreseen(text: str) -> Text:
    """Return a line of a preview, with the steps that run in colour."""
    style = "dim" if text.startswith("reused") else "yellow" if text.startswith(("runs", "may run", "again")) else ""
    return Text(escaped_lines(text), style)
