"""The writing side of a run: its commits are saved as durably as is asked, by the one process that has its branch.

A run always has a journal, also without a store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

from crewlite.concurrency.blocked_loops import Turns
from crewlite.concurrency.unawaited import of_thread
from crewlite.errors import BranchConflictError, NotCodable, RunCancelled, StoreError, text_of
from crewlite.state.format.commit import Claim, CommitParts
from crewlite.state.format.entry import next_entry
from crewlite.state.journal.claim import claim, release
from crewlite.state.journal.commits import Commits
from crewlite.state.journal.letters import Letter
from crewlite.state.journal.mailbox import Mailbox
from crewlite.state.journal.opening import settling
from crewlite.state.journal.writer import WriteQueue
from crewlite.state.providers.locations import real_path
from crewlite.system.forked import in_child

_FARTHEST_BEHIND = 512  # commits that a run with durability="async" may be ahead of the disk


@dataclass(eq=False)
class Journal(Commits):
    """The journal of one branch of one run. Call its methods on the run's loop; manual.py serves other threads."""

    durability: str = "sync"
    """"async": `save` does not wait for the disk, unless its caller needs that."""
    receive: Callable[[Journal, Letter], Future[bool]] | None = None  # records an answer; None: it takes none
    broken: BaseException | None = None
    """The error of a save in the background that must stop the run, if any; the next save raises it."""
    delayed: bool = False  # whether commits could not be stored at first
    _behind: int = 0  # commits that are being written while the run continues
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """The event loop of the run."""
    loop_turns: Turns = field(default_factory=Turns)
    """The turns of the loop while the run waits for nothing: without a store, and while the record answers."""
    mailbox: Mailbox = field(init=False)
    fenced: asyncio.Future[BaseException] = field(init=False)
    """Done once another process has acquired the branch or cancelled the run; its result is the error to raise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mailbox, self.fenced = Mailbox(self.loop), self.loop.create_future()
        self.listen()

    def make_claim(self) -> Claim:
        """Build a claim of this process, to be committed. `journal_of` finds this journal by the claim."""
        self.claim = claim(self.loop)
        _journals[self.claim["id"]] = self
        return self.claim

    def give_up_claim(self, *, owes: bool) -> None:
        """Drop a claim and the queued entries: the run has not started. `owes`: the claim may be stored; release it."""
        self._drop_claim()
        self.claim = None
        if self.queue:
            self.queue.backlog, self.queue.owed = (), {"released": True} if owes else None

    def store(self, parts: CommitParts) -> Awaitable[None] | None:
        """Commit. Returns an awaitable that ends once the commit is durable, or raises the error of the store.

        Without a store it returns None, or an awaitable turn of the loop if one is due.
        """
        if not self.queue:
            self.commit(parts, lambda error: None)
            return self.loop_turns.due()
        waiting = self.loop.create_future()

        def settle(error: BaseException | None) -> None:
            if not waiting.done():  # else the caller was cancelled
                waiting.set_result(None) if error is None else waiting.set_exception(error)

        self.commit(parts, settle, self.loop)
        return waiting

    def save(self, parts: CommitParts, *, now: bool = False) -> Awaitable[None]:
        """Commit at once, and return the wait until it is durable: with durability="async", only if `now`.

        The wait emits the events of a checkpoint and of a failure. When it ends, there may be later commits already.
        Raises StoreError, as the wait does, if the journal is closed or a failed save must stop the run.
        """
        if self.closed:  # a save by abandoned work is not a failed save of the run
            raise self.ended()
        if self.broken is not None:
            raise self.broken
        started = time.perf_counter()
        try:
            if self.durability == "async" and not now:
                return self._behind_disk(parts, self._commit_behind(parts, started))
            return self._durable(parts, started, self.store(parts))
        except Exception as error:  # nothing is committed, so there is nothing to wait for
            self._not_saved(error)
            return asyncio.sleep(0)

    async def _durable(self, parts: CommitParts, started: float, stored: Awaitable[None] | None) -> None:
        """Emit the events of a commit, and wait until it is durable."""
        try:
            self.announce(parts)
            if stored:
                await stored
        except Exception as error:  # whatever storage raises is announced, and raised if it must stop the run
            self._not_saved(error)
            return
        if "place" in parts:
            self.announce_saved(parts, started)

    async def _behind_disk(self, parts: CommitParts, commits: int) -> None:
        """Emit the events of a commit. Wait only if too many `commits` are being written."""
        self.announce(parts)
        if commits >= _FARTHEST_BEHIND:
            await self.flush()

    def _commit_behind(self, parts: CommitParts, started: float) -> int:
        """Commit, without a wait for the disk. Returns the number of commits that are being written."""

        def settle(error: BaseException | None) -> None:
            self._behind -= 1
            try:
                if error is not None:
                    self._not_saved(error)
                elif "place" in parts:
                    self.announce_saved(parts, started)
            except Exception as stop:  # raised by the next save of the run
                self.broken = stop

        self._behind += self.commit(parts, settle, self.loop, behind=True)
        return self._behind

    async def flush(self) -> BaseException | None:
        """Wait until all commits are durable. A failure is raised, or announced and returned: see `on_save_error`."""
        problem = await asyncio.wrap_future(settling(self.queue)) if self.queue and self._is_ahead(self.queue) else None
        if problem is not None:
            self._not_saved(problem)
        if self.broken is not None:
            raise self.broken
        return problem

    async def assured(self, problem: str) -> None:
        """Wait until all commits are durable. If they are not, raise StoreError with `problem`, also with "warn"."""
        failure = await self.flush()
        if self.queue and self.queue.backlog:
            raise StoreError(self.location or "", problem + (f". What failed: {text_of(failure)}" if failure else ""))

    def _not_saved(self, error: BaseException) -> None:
        """Announce a failed save, or raise the error that stops the run, as on_save_error says."""
        if isinstance(error, BranchConflictError | RunCancelled):
            raise error
        self.delayed |= bool(self.queue and self.queue.backlog)
        self.degrade(error)
        if self.on_save_error == "raise":
            raise StoreError(self.location or "", f"a save failed: {text_of(error)}") from error

    def _is_ahead(self, queue: WriteQueue) -> bool:
        """Return whether there are commits that are not stored, or whose events are not emitted yet."""
        return self._behind > 0 or queue.head[0] != self.record.seq

    async def aclose(self, *, cancelled: bool = False, last_values: bool = True) -> None:
        """Release the branch and the store, once all queued commits are stored. Retries failed ones once.

        With `cancelled`, marks the branch as cancelled. With `last_values`, first commits the last changes of values.
        """
        if self.closed:
            return
        if last_values and self.states.common.used and self.claim and not (self.queue and self.queue.fenced):
            self._last_values()
        self.closed, self.states.common.closed = True, self._why_ended()
        self.mailbox.close()
        if not (queue := self.queue):
            self._drop_claim()
            return
        queue.receive = None  # a letter is for whoever has the branch next
        back: CommitParts = {"released": True, "cancelled": True} if cancelled else {"released": True}
        try:
            if queue.fenced:  # the store accepts no more commits of this run
                queue.backlog = ()
            elif self.claim and self.record.claim and not queue.backlog:
                entry = next_entry(back, after=self.record.head)  # the run has not ended: this process stops running it
                self.record.apply(entry)
                queue.put((entry,), lambda error: None)
            if self.delayed or self._is_ahead(queue):
                await self._settle_and_warn(queue)
        finally:
            self._drop_claim()
            if self.claim and (self.record.claim or queue.head[0] != self.record.seq) and not queue.fenced:
                queue.owed = back
            ended = queue.leave()
        if ended:
            await of_thread(ended, self.loop)

    def _last_values(self) -> None:
        """Commit the changes of values after the last commit, if there are any."""
        try:
            if self.states.waiting:
                self.commit({}, lambda error: None)
                self.announce({})
        except NotCodable as error:
            self.degrade(error)

    async def _settle_and_warn(self, queue: WriteQueue) -> None:
        delayed = self.delayed or bool(queue.backlog)
        problem = await of_thread(settling(queue), self.loop)
        if (problem is not None or delayed) and not queue.fenced:
            self.warn("what had failed is saved now" if problem is None else f"still not saved: {text_of(problem)}")

    def _drop_claim(self) -> None:
        if self.claim:
            _journals.pop(self.claim["id"], None)
            release(self.claim)

    def forget(self) -> None:
        """Close this copy of the journal, in a forked child: the threads that write are those of the parent."""
        self.closed, self.states.common.closed = True, self._why_ended()
        self.mailbox.forget()

    def listen(self) -> None:
        """Have the writer say that another process has written to the branch, and pass letters on."""
        if self.queue:
            self.queue.on_fenced = self.fenced
            self.queue.receive = partial(self.receive, self) if self.receive else None


_journals: WeakValueDictionary[str, Journal] = WeakValueDictionary()  # of this process, by the id of the claim


def journal_of(claim: Claim | None, location: str) -> Journal | None:
    """Return the journal with which this process writes the branch under this claim; None if it writes no more."""
    journal = _journals.get(claim["id"]) if claim else None  # compare locations too, as a copy has the same claim
    if journal is None or journal.closed or journal.loop.is_closed() or (journal.queue and journal.queue.fenced):
        return None
    return journal if real_path(str(journal.location)) == real_path(location) else None


@in_child
def _forget() -> None:
    """Close all journals in a forked child, which has none of the threads of its parent's runs."""
    while _journals:
        _journals.popitem()[1].forget()
