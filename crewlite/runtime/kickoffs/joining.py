"""Join a run that is running, here or in another process: wait until it ends, then return its result.

The wait checks the time of the last commit twice a second, and reads the commits only once the run pauses. If the
process of the run dies, a waiting kickoff resumes the run; if several wait, the one whose claim is stored first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from crewlite.concurrency import background
from crewlite.errors import BranchConflictError, OnLoopThread, RefError, RunCancelled, RunEnded
from crewlite.runtime.kickoffs.request import Progress
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.main_thread.handlers import blocked_loop
from crewlite.runtime.steps.failures import raised
from crewlite.state.format.commit import Claim
from crewlite.state.format.record import Record
from crewlite.state.journal.cancel import cancel
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.journal.opening import open_writer, queue_here
from crewlite.state.journal.writer import Writer
from crewlite.state.providers import Store
from crewlite.state.reading.located import Located
from crewlite.system.steady_clock import steady
from crewlite.texts import tracebacks

T = TypeVar("T")
_SOONEST, _LATEST = 0.05, 0.5  # seconds between two looks at the run
_SETTLED = 2.0  # seconds between two commits whose times differ on every file system


async def when_free(
    begin: Callable[[], Awaitable[T]], check: Callable[[Located, Record], None], root: Root[Any], progress: Progress
) -> T:
    """Begin a kickoff with `begin()`. While a live process runs the branch, wait and try again.

    `check(branch, record)` raises if this kickoff can never have the result of that run.

    If the caller is cancelled, it stops waiting and the run goes on, unless `RunHandle.cancel` was called: that cancels
    the run itself.
    """
    before, clash = root.again(), tuple[object, ...]()
    while True:
        try:
            return await begin()
        except BranchConflictError as conflict:
            found, clash = clash, (conflict.expected, conflict.found)
            if conflict.problem or progress.target is None or (conflict.found is not None and found == clash):
                raise
        if not progress.waited:
            check(progress.target, await background.in_thread(progress.target.record))
        root.reset(before)
        await _until_free(progress.target, progress)
        progress.joined = ""


def check_joined(root: Root[Any], journal: Journal) -> None:
    """If this kickoff waited for a run that was then cancelled or failed, raise RunCancelled or the failure."""
    record = journal.record
    if root.address or record.finished:
        return
    if record.cancelled:
        raise RunCancelled(journal.run_id, journal.branch, kind=root.kind)
    if record.failed and (failure := record.last_attempt("")):
        first = failure
        while first.cause and (inner := record.last_attempt(first.cause)):
            first = inner
        error = raised(root.name, replace(failure, traceback=first.traceback))
        tracebacks.name_step(error, first.address)
        raise error


async def _until_free(target: Located, progress: Progress) -> None:
    """Wait until no live process runs a branch, as far as this process can tell."""
    writer = await background.acquire(lambda: open_writer(target.provider, target.location), Writer.release)
    try:
        watch, pause = _Watch(writer.store, target.run_id, target.branch), _SOONEST
        while holder := await background.in_thread(watch.holder):
            progress.join(target.run_id, target.branch, holder)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LATEST)
    except asyncio.CancelledError:
        if progress.cancelled:
            await background.in_thread(_cancel, target)
        raise
    finally:
        if closed := writer.release():
            await asyncio.wrap_future(closed)


@dataclass(slots=True)
class _Watch:
    """Tells, whenever it is asked, which live process runs a branch. For one thread at a time."""

    store: Store
    run_id: str
    branch: str
    _record: Record | None = None
    _of: float = 0.0
    """The time of the last commit or sign of life, as it was before the record was read."""
    _touched: float = 0.0
    _changed: float = field(default_factory=steady)
    """The time at which `_touched` changed last."""
    _settled: bool = False
    """Whether no commit can have been stored since the record was read."""

    def holder(self) -> str | None:
        """Return the live process that runs the branch; None if there is none.

        Raises OnLoopThread if the run is on the event loop that the waiting kickoff blocks, so that neither would end.
        """
        if queue := queue_here(self.store.location, self.run_id, self.branch):
            if queue.loop and queue.loop is blocked_loop():
                instead = (
                    f"run {self.run_id!r}, for which it waits, is at work on that loop. Write `await akickoff(...)`"
                )
                raise OnLoopThread("kickoff(wait=True)", instead)
            return "this process"
        touched = self.store.touched(self.run_id, self.branch)
        return held_by(self._claim(touched), touched)

    def _claim(self, touched: float) -> Claim | None:
        """Return the claim on the branch. Reads the branch only if the run has paused after a commit."""
        now, record = steady(), self._record
        if touched != self._touched:
            self._touched, self._changed, self._settled = touched, now, False
        elif record and not self._settled:
            self._settled = now - self._changed > _SETTLED
            # in a compacted journal, the next commit may be part of a later one
            if self._of != touched or self.store.sum_at(self.run_id, self.branch, record.seq + 1):
                record = None
        if record is None:
            self._of, record = touched, find_lineage(self.store, self.run_id, self.branch).record()
            self._record = record
        return record.claim


def _cancel(target: Located) -> None:
    with target.opened() as store, contextlib.suppress(RunEnded, RefError):
        cancel(store, target.run_id, target.branch)
