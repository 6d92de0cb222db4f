"""What the view reads of a location, and what it writes there: always on one thread, so that the screen never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from crewlite import kinds
from crewlite.cli.checkpoint.document import status_of_unreadable
from crewlite.cli.checkpoint.words import sums_of
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.outcome import LightEvent
from crewlite.state.history import History
from crewlite.state.journal.lineage import UNREADABLE
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.steps import StepView
from crewlite.state.run_history import RunHistory, Waiting
from crewlite.system.steady_clock import steady
from crewlite.tui.contents import Field, Row, Rows, inputs_of, outputs_of, overview, timeline
from crewlite.tui.places import PAGE, Line, Listing, Place

T = TypeVar("T")
_LINES = 5_000  # of a difference
_KEPT = 8  # branches whose records are kept in memory


@dataclass(frozen=True, slots=True)
class Shown:
    """What the panels show of a place."""

    place: Place
    label: str | None
    kind: str
    status: str
    sections: list[tuple[str, Rows]]
    rows: list[Row]
    steps: dict[str, StepView]
    inputs: list[Field]
    outputs: list[Field]
    events: list[LightEvent]
    waiting: list[Waiting]


class Reading:
    """A location that is read on a thread of its own: every call is made there by `do`."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crewlite-tui")
        self._history: History | None = None
        self._records: dict[Place, tuple[float, RunHistory]] = {}
        self._listing = Listing()
        self._listed = (0.0, 0.0)
        """When the branches were listed last, and how many seconds it took."""

    async def do(self, work: Callable[[], T]) -> T:
        """Do some work on the thread, after what it was asked to do before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Close the location, after the work at hand."""
        self._thread.submit(self._close)
        self._thread.shutdown(cancel_futures=False)

    @property
    def history(self) -> History:
        """The history, opened at the first use. Raises what opening it raises."""
        if self._history is None:
            self._history = History(self.location)
        return self._history

    def listing(self, *, new: bool = True) -> Listing:
        """Return the branches. Without `new`, they are listed again only if that takes a small part of the time."""
        when, took = self._listed
        if new or steady() - when > 10 * took:
            began = steady()
            self._listing = Listing(tuple(self.history.branches()))
            self._listed = began, steady() - began
        return self._listing

    def run(self, place: Place) -> RunHistory:
        """Return the branch of a place, read anew if it has changed since. Raises RefError if it is not listed."""
        head = place.head
        known = self._records.pop(head, None)
        run = known[1] if known else self._unread(head)
        now = run.touched()
        if known and (known[0] != now or run.at_work):  # a process that is killed leaves no sign
            run = self._unread(head)
        self._records[head] = now, run
        if len(self._records) > _KEPT:
            del self._records[next(iter(self._records))]
        return run.abandoned[place.abandoned - 1] if place.abandoned else run

    def touched(self, places: list[Place]) -> dict[Place, float]:
        """Return the time of the last sign of life of each branch."""
        return {place: self._unread(place.head).touched() for place in places if place.head in self._listing}

    def below(self, branch: Place, count: int = PAGE) -> list[Line]:
        """Return the lines below a branch."""
        run = self.run(branch)
        if not branch.abandoned:
            left = {one.id for one in run.checkpoints(abandoned=True) if one.abandoned} if run.rewinds else ()
            return self._listing.below(branch, run.checkpoints(), count, [one.reason for one in run.rewinds], left)
        kept = {one.id for one in self.run(branch.head).checkpoints()}
        return self._listing.below(branch, [one for one in run.checkpoints() if one.id not in kept], count)

    def status(self, place: Place) -> str:
        """Return the status of a branch, or "damaged" or "unreadable" if it cannot be read."""
        try:
            return self._unread(place.head).status_text
        except UNREADABLE as problem:
            return status_of_unreadable(problem)

    def look(self, place: Place) -> Shown:
        """Read what the panels show of a place."""
        run = self.run(place)
        checkpoint = self._checkpoint(run, place)
        at = checkpoint.seq if checkpoint else None
        steps = run.steps
        beginning = BEGINNING if kinds.has_methods(run.definition) else ""  # it sets the state, and has no outcome
        return Shown(
            place,
            checkpoint.label if checkpoint else None,
            str(run.definition["kind"]),
            run.status_text,
            overview(run, checkpoint),
            timeline(run, steps, sums_of(run), at),
            {one.address: one for one in steps},
            inputs_of(run),
            outputs_of([one for one in steps if one.address != beginning], at),
            list(checkpoint.events()) if checkpoint else run.events(),
            run.waiting,
        )

    def diff(self, a: Place, b: Place) -> list[tuple[str, str]]:
        """Return the lines of the difference between two places, each with its mark; at most so many."""
        found = self.history.diff(*(self.named(place) for place in (a, b)))
        lines = list(islice(found.marked_lines(), _LINES + 1))
        return [*lines[:_LINES], *([("", f"... cut after {_LINES:,} lines")] if lines[_LINES:] else [])]

    def named(self, place: Place) -> RunHistory | Checkpoint:
        """Return the checkpoint or the branch of a place."""
        run = self.run(place)
        return self._checkpoint(run, place) or run

    def _unread(self, head: Place) -> RunHistory:
        return self.history.run(self._listing.info(head))

    def _checkpoint(self, run: RunHistory, place: Place) -> Checkpoint | None:
        found = (one for one in run.checkpoints() if one.id == place.checkpoint)
        return next(found, None) if place.checkpoint else None

    def _close(self) -> None:
        if self._history is not None:
            self._history.close()
