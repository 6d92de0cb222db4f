"""The terminal view: browsing, and what a key does to the place under the cursor.

Runs are started as the commands `resume` and `fork`; everything else is a verb of History.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.widgets import RichLog, TabbedContent

from crewlite import kinds
from crewlite.cli.checkpoint.files import write_page
from crewlite.cli.error_text import of_answer
from crewlite.cli.exits import OK, WAITS, Failed
from crewlite.cli.shell import Again
from crewlite.errors import AnswerRefused, CrewliteError, EffectsRepeat
from crewlite.ids import short
from crewlite.state.format.entry import STATE
from crewlite.state.history import History
from crewlite.state.reading.fitting import Typed, what_fits
from crewlite.state.run_history import RunHistory
from crewlite.texts.resuming import branch_ref
from crewlite.texts.wording import escaped_lines
from crewlite.tui.app import PANELS, Browser
from crewlite.tui.command import Command, Fork
from crewlite.tui.dialogs import TARGET, Ask, ForkDialog
from crewlite.tui.panels import Comparison, Fields
from crewlite.tui.places import Place
from crewlite.tui.tree import RunTree
from crewlite.tui.words import line

_Verb = Callable[[History, RunHistory, str], object]
"""What is done to a run with a line that was asked for."""
_WHERE = {
    "resume": "r goes on with a run that is neither finished nor at work",
    "answer": "a answers a question, and this run waits for none",
    "rewind": "w goes back to a checkpoint: go to one below a branch first",
    "label": "l names a checkpoint: go to one below a branch first",
    "stop": "x stops a run that is at work",
}
"""What a key is for, to be told where it does nothing."""


class View(Browser):
    """Browses a location, and resumes, forks, rewinds, labels, compares, answers and stops."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "resume", "Resume"),
        Binding("f", "fork", "Fork"),
        Binding("a", "answer", "Answer"),
        Binding("w", "rewind", "Rewind"),
        Binding("l", "label", "Label"),
        Binding("c", "compare", "Compare"),
        Binding("x", "stop", "Stop"),
        Binding("f5", "refresh", "Refresh", show=False),
        Binding("h", "page", "HTML"),
        Binding("t", "toggle_theme", "Theme", show=False),
        Binding("q", "quit", "Quit"),
        Binding("escape", "to_tree", "Runs", show=False),
        *(Binding(str(n), f"tab('{name}')", name, show=False) for n, name in enumerate(PANELS, 1)),
    ]

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._targets: dict[str, str] = {}
        """The definitions that the user named, by run_id."""
        self._command: Command | None = None
        """The run that the view has started and that is still at work."""
        self._marked: Place | None = None
        """The place to compare others with."""
        self._forked: tuple[str, set[str]] | None = None
        """The run that is being forked, and the branches it had before."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that do nothing at this place."""
        shown = self.shown
        if action in ("resume", "fork", "answer", "compare", "page") and shown is None:
            return False
        if action == "resume":
            return bool(shown and shown.status not in ("finished", "at work") and shown.kind != STATE)
        if action == "answer":
            return bool(shown and shown.waiting)
        if action in ("rewind", "label"):
            return bool(shown and shown.place != shown.place.head and (shown.place.checkpoint or action == "rewind"))
        if action == "stop":
            return bool(self._command or (shown and shown.status == "at work"))
        return True

    @work
    async def on_key(self, event: Key) -> None:
        """Say where a key works that does nothing at this place; do its action if the place was not read yet."""
        action = next((one.action for one in self.BINDINGS if isinstance(one, Binding) and one.key == event.key), "")
        if action not in _WHERE or self.check_action(action, ()) or len(self.screen_stack) > 1:
            return
        await self._looked.wait()
        if self.check_action(action, ()):
            await self.run_action(action)
        else:
            self.notify(_WHERE[action], markup=False)

    @work
    async def action_resume(self) -> None:
        """Go on with the run, after a look at what it stands at."""
        if (shown := await self.here("resume")) is None:
            return
        body = f"It is {shown.status}. What is recorded is not paid again."
        title = f"Resume {shown.place.name}"
        run_id = shown.place.run_id
        target = await self.push_screen_wait(Ask(title, body, wanted=TARGET, given=self._targets.get(run_id, "")))
        if target is None:
            return
        words = Again(self.location, target.strip() or None).words("resume", shown.place.name)
        if await self._run(title, words):
            self._targets[run_id] = target.strip()

    @work
    async def action_fork(self) -> None:
        """Make a branch at this place with the edits of its inputs and outputs, and run it."""
        if (shown := await self.here("fork")) is None:
            return None
        edits = [edit for editor in self._editors(shown) for edit in editor.edits()]
        try:
            words = tuple(word for field, text in edits for word in field.word(text))
        except (ValueError, RecursionError) as error:
            return self.notify(f"the edit is no JSON: {error}", severity="error", markup=False)
        place = shown.place
        where = _name(place)
        changes = [f"{field.name}: {text.strip().partition(chr(10))[0]}" for field, text in edits]
        fork = Fork(place.ref, words, target=self._targets.get(place.run_id, ""))
        runs = shown.kind != STATE and kinds.of(shown.kind) is not kinds.TRIAL
        chosen = await self.push_screen_wait(ForkDialog(fork, self.location, where, changes, runs=runs))
        if chosen is None:
            return None
        fork, run = chosen
        branches = {info.branch for info in self._listing.branches if info.run_id == place.run_id}
        self._forked = place.run_id, branches
        if await self._run(f"Fork {where}", fork.words(self.location, *([] if run else ["--no-run"]))):
            self._targets[place.run_id] = fork.target
        return None

    async def _run(self, title: str, words: list[str]) -> bool:
        """Run a command, and show its lines as they come. Returns whether it has ended well."""
        if self._command:
            self.notify("A run that was started here is still running: x stops it", severity="warning")
            return False
        live = self.query_one("#live", RichLog)
        live.add_class("seen")
        live.clear()
        live.border_title = f"{title}, escape closes this"
        self._command = Command(words)
        self.clear_notifications()
        self.refresh_bindings()
        try:
            code = await self._command.run(
                lambda text, answer: live.write(Text(escaped_lines(text), "bold" if answer else ""))
            )
        finally:
            self._command = None
        known = {OK: ("finished", "green"), WAITS: ("it waits for an answer: a answers, r goes on", "magenta")}
        ended = known.get(code, (f"it has stopped (exit {code}); what is recorded stays", "yellow"))
        live.write(line(ended))
        if not live.has_class("seen"):
            self.notify(f"{title}: {ended[0]}", severity="information" if code in known else "warning", markup=False)
        self.refresh_bindings()
        self.action_refresh()
        return code in known

    @work
    async def action_answer(self) -> None:
        """Answer the first question that the run waits with."""
        if (shown := await self.here("answer")) is None:
            return
        asked = shown.waiting[0]
        body = f"{asked.question.strip()}\n\nwanted: {what_fits(asked.schema)}"

        def answer(history: History, run: RunHistory, said: str) -> object:
            return history.answer(run, asked.address, Typed(said), ahead=False)

        title = f"Answer {asked.address}"
        if await self._ask(title, body, answer, shown.place.head, wanted="the answer") is not None:
            then = "the run goes on with it" if shown.status == "at work" else "r resumes the run"
            self.notify(f"The answer is recorded: {then}", markup=False)

    @work
    async def action_rewind(self) -> None:
        """Have the branch go on from this place when it is resumed."""
        if (shown := await self.here("rewind")) is None:
            return
        place = shown.place
        body = "The run goes on from here when it is resumed. What came after stays readable, and can be forked."
        why = await self.push_screen_wait(Ask(f"Rewind to {_name(place)}?", body, wanted="the reason, or nothing"))
        if why is not None:
            await self._rewind(place, why.strip())

    async def _rewind(self, place: Place, why: str) -> None:
        """Go back, after a question if calls with effect="once" may be made again because of it."""
        history = self.reading.history
        try:
            await self.read(lambda: history.rewind(place.ref, reason=why))
        except EffectsRepeat as error:
            calls = "\n".join(map(str, error.effects))
            title = "These calls may be made again: go back all the same?"
            await self._ask(
                title, calls, lambda history, *_: history.rewind(place.ref, reason=why, allow_effects=True), place.head
            )
        except (CrewliteError, OSError) as error:
            self.notify(escaped_lines(str(error)), severity="error", timeout=15, markup=False)
        else:
            self._done()

    @work
    async def action_label(self) -> None:
        """Give this checkpoint a name."""
        if (shown := await self.here("label")) is None:
            return
        place, given = shown.place, shown.label or ""
        body = f"{place.name}@label:NAME names this place from then on, and pruning keeps it."

        def label(history: History, run: RunHistory, name: str) -> object:
            return history.label(place.ref, name.strip())

        await self._ask(f"Label {_name(place)}", body, label, place.head, wanted="the name", given=given)

    @work
    async def action_page(self) -> None:
        """Write the run to a page of HTML."""
        if (shown := await self.here("page")) is None:
            return
        run_id, place = shown.place.run_id, shown.place.head
        body = "A page with all branches of the run: timelines, prompts, costs. It holds what the run recorded."
        title, given = f"Write {run_id} to a page", f"{run_id}.html"
        if (name := await self._ask(title, body, _write, place, wanted="the file", given=given)) is not None:
            self.notify(f"{name.strip()} is written", markup=False)

    @work
    async def action_stop(self) -> None:
        """Stop the run that was started here, or cancel the one under the cursor."""
        if self._command:
            self._command.stop()
        elif shown := await self.here("stop"):
            body = "Another process runs it. It ends within about a second, and can be resumed: what is recorded stays."
            title, place = f"Cancel {shown.place.name}?", shown.place.head
            await self._ask(title, body, lambda history, run, _: history.cancel(run), place)

    @work(exclusive=True, group="compare")
    async def action_compare(self) -> None:
        """Mark this place, or compare it with the marked one."""
        if (shown := await self.here("compare")) is None:
            return None
        place, marked = shown.place, self._marked
        if marked is None or marked == place:
            self._marked = None if marked else place
            text = f"{_name(place)} is {'no longer marked' if marked else 'marked: go to another place, and press c'}"
            return self.notify(text, markup=False)
        try:
            lines = await self.read(lambda: self.reading.diff(marked, place))
        except (CrewliteError, OSError) as error:
            return self.notify(escaped_lines(str(error)), severity="error", markup=False)
        self.query_one(Comparison).show(lines)
        self.query_one(TabbedContent).active = "tab-diff"
        return None

    async def action_quit(self) -> None:
        """Quit; before a run that was started here is stopped, or edits are dropped, the user has to say so."""
        if self._command:
            self._quit_anyway(
                "Stop the run and quit?", "The run that was started here is at work. It is stopped, and can be resumed."
            )
        elif any(editor.edited for editor in self.query(Fields)):
            self._quit_anyway("Quit and drop the edits?", "Values were edited, and no fork has taken the edits.")
        else:
            self.exit()

    @work
    async def _quit_anyway(self, title: str, body: str) -> None:
        if await self.push_screen_wait(Ask(title, body)) is not None:
            self.exit()

    def action_to_tree(self) -> None:
        """Close what a run has printed, and go to the tree."""
        self.query_one("#live").remove_class("seen")
        super().action_to_tree()

    async def _look_around(self) -> None:
        """Go to a new fork as soon as it is there."""
        await super()._look_around()
        if self._forked and (new := self._new_branch(*self._forked)) and self.query_one(RunTree).go_to(new):
            self._forked = None
            if shown := self.shown:
                for editor in self._editors(shown):
                    editor.forget()

    def _new_branch(self, run_id: str, before: set[str]) -> Place | None:
        new = (info for info in self._listing.branches if info.run_id == run_id and info.branch not in before)
        return next((Place(info.run_id, info.branch) for info in new), None)

    async def _ask(
        self, title: str, body: str, verb: _Verb, place: Place, *, wanted: str = "", given: str = ""
    ) -> str | None:
        """Ask for a line, or for a yes, and do a verb with it. Returns the line once it is done; None if it is not."""
        act = partial(self._do, verb, place)
        return await self.push_screen_wait(Ask(title, body, wanted=wanted, given=given, act=act))

    async def _do(self, verb: _Verb, place: Place, said: str) -> str:
        """Do a verb of History on the thread of the location. Returns why it was not done; "" if it was."""
        try:
            await self.read(lambda: verb(self.reading.history, self.reading.run(place), said))
        except AnswerRefused as error:
            return of_answer(error, branch_ref(place.run_id, place.branch), Again(self.location))
        except (CrewliteError, Failed, OSError) as error:
            return str(error)
        self._done()
        return ""

    def _done(self) -> None:
        """Take away what was said of earlier attempts, and show what has changed."""
        self.clear_notifications()
        self.action_refresh()


def _write(history: History, run: RunHistory, name: str) -> None:
    """Write the page of a run to a new file. Raises Failed."""
    name = name.strip()
    path = Path(name).expanduser()
    if not name or path.exists():
        raise Failed(f"{name} exists already: choose another name" if name else "wanted the name of a file")
    write_page(history.as_html(run), str(path))


def _name(place: Place) -> str:
    return f"{place.name} at {short(place.checkpoint)}" if place.checkpoint else place.ref
