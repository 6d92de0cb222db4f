"""The writing side of a run: commits become entries, entries become durable, in one total order.

A run always has a journal. Without a store it stays in memory; the first manual checkpoint with a location writes all
of it there and every commit after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from crewlite import events
from crewlite.errors import BranchConflictError, NotCodable, RunCancelled, StoreError
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.forked import in_child
from crewlite.ids import now
from crewlite.secrets import Secrets
from crewlite.state.format.commit import CheckpointRecord, Claim, Commit, CommitParts, StepRecord, invalidated
from crewlite.state.format.entry import SCHEMA, Entry, next_entry, seal
from crewlite.state.format.fields import Event
from crewlite.state.format.kept import Order
from crewlite.state.format.record import Record
from crewlite.state.journal.claim import claim, release
from crewlite.state.journal.mailbox import Mailbox
from crewlite.state.journal.states import States
from crewlite.state.journal.writer import Done, WriteQueue

log = logging.getLogger("crewlite.state")
_FARTHEST_BEHIND = 512  # commits that an asynchronous run may be ahead of its disk


@dataclass(eq=False)
class Journal:
    """The journal of one branch of one run. Its verbs are for the run's loop; manual.py has those for all threads."""

    run_id: str
    branch: str
    record: Record
    secrets: Secrets
    on_save_error: str = "warn"
    durability: str = "sync"
    """"async": commits do not wait for the disk, unless they must."""
    queue: WriteQueue | None = None
    """Writes to its store; None while the record is in memory alone."""
    degraded: bool = False
    """Something could not be saved."""
    broken: BaseException | None = None
    """What a save that nobody waited for ended with, if it must stop the run."""
    claim: Claim | None = None
    """The claim under which this process writes the branch."""
    closed: bool = False
    entries: list[Entry] = field(default_factory=list)
    """Kept only while there is no store, and without their bytes, to save memory."""
    on_conflict: str = "last"
    """"error": of two steps side by side that change one place of the state, the later fails."""
    states: States = field(init=False)
    """What is kept beside the run, as its running steps and others see it."""
    _buffered_events: list[Event] = field(default_factory=list)
    _tombstones: list[StepRecord] = field(default_factory=list)
    unsettled: int = 0
    """Commits that nobody waited for to the end, as they were cancelled, failed or named manually."""
    _behind: int = 0
    """Commits that are on their way to the disk while the run goes on."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """The run's own."""
    mailbox: Mailbox = field(init=False)
    fenced: asyncio.Future[BaseException] = field(init=False)
    """Done when somebody else has the branch, or has stopped the run: with the error that says so."""

    def __post_init__(self) -> None:
        self.mailbox, self.fenced = Mailbox(self.loop), self.loop.create_future()
        self.states = States(self.record, lambda: self.secrets, self._check)
        self.listen()

    @property
    def location(self) -> str | None:
        """Where it is stored."""
        return self.queue.store.location if self.queue else None

    @property
    def bases(self) -> frozenset[str]:
        """Places of this branch that forks stand on, as far as known."""
        return self.queue.bases if self.queue else frozenset()

    @property
    def next_seq(self) -> int:
        """The number the next commit will have."""
        return self.record.seq + 1

    @property
    def next_order(self) -> Order:
        """Where the changes of the next outcome will stand."""
        return self.next_seq, len(self._tombstones)

    def buffer_event(self, event: BaseEvent) -> None:
        """Buffer an event: the next commit records it."""
        if event.fleeting:
            return
        self._buffered_events.append((event.type, event.event_id, event.timestamp.isoformat(), event.address or ""))

    def invalidate(self, address: str, kind: str) -> None:
        """Queue a tombstone for a finished step. The next outcome writes it; until then the old result counts."""
        self._tombstones.append(invalidated(address, kind))

    def commit(
        self,
        parts: CommitParts,
        done: Done,
        loop: asyncio.AbstractEventLoop | None = None,
        sealed: Callable[[], None] | None = None,
    ) -> bool:
        """Seal a commit and hand it to the store, if there is one; then `done` is called: see Writer.put.

        In between `sealed` is called, while the record stands at this commit. Events are announced last: a handler may
        commit, and the numbers in `parts` belong to this commit.
        """
        if self.closed:
            raise self.ended()
        at = now().isoformat()
        if checkpoint := parts.get("place"):
            checkpoint["at"] = at
        whole: Commit = {"schema": SCHEMA, "seq": self.next_seq, "at": at, **parts}
        if self._buffered_events:
            whole["events"], self._buffered_events = [*self._buffered_events, *parts.get("events", ())], []
        if self._tombstones and _is_news(parts):
            whole["steps"], self._tombstones = [*self._tombstones, *parts.get("steps", ())], []
        states = self.states
        refused = states.add_to(whole, strict=self.on_save_error == "raise") if states.shared.used else ()
        entry = seal(whole, after=self.record.sum)
        self.record.apply(entry)
        if sealed:
            sealed()
        queue = self.queue
        if queue:
            queue.put((entry,), done, loop)
        else:
            self.entries.append(Entry(entry.seq, entry.seal, b"", whole))
        if checkpoint and queue:
            self.emit(events.CheckpointStartedEvent, **naming(checkpoint))
        for error in refused:
            self.failed(error)
        return queue is not None

    async def store(self, parts: CommitParts, sealed: Callable[[], None] | None = None) -> None:
        """Commit and wait until it is durable. Raises what the store raises. `sealed` is called as by `commit`."""
        waiting = self.loop.create_future()

        def settle(error: BaseException | None) -> None:
            if waiting.done():  # whoever waited was cancelled
                return
            if error:
                waiting.set_exception(error)
            else:
                waiting.set_result(None)

        if self.commit(parts, settle, self.loop, sealed):
            self.unsettled += 1
            await waiting
            self.unsettled -= 1

    async def save(self, parts: CommitParts, *, now: bool = False, sealed: Callable[[], None] | None = None) -> None:
        """Commit, and wait until it is durable, unless the run is asynchronous and this needs not be so `now`.

        Announces the checkpoint it names, and failures. `sealed` is called as by `commit`: when this returns, later
        commits may have been made.
        """
        if self.closed:  # what was left behind is no failed save of the run
            raise self.ended()
        started = time.perf_counter()
        if self.durability == "async" and not now:
            await self._save_behind(parts, started, sealed)
            return
        try:
            await self.store(parts, sealed)
        except Exception as error:  # noqa: BLE001 - whatever storage raises is announced, and raised if it must stop the run
            self._not_saved(error)
            return
        if self.queue and "place" in parts:
            self.completed(parts, started, self.queue)

    def take_claim(self) -> Claim:
        """Make a claim. Until it is dropped, `at_work_on` finds this journal by it."""
        self.claim = claim()
        _journals[self.claim["id"]] = self
        return self.claim

    def give_up_claim(self) -> None:
        """Drop a claim that could not be stored, with what waits to be written: nothing was begun."""
        self._drop_claim()
        self.claim = None
        if self.queue:
            self.queue.backlog = ()

    async def flush(self) -> None:
        """Wait until all that was committed is durable. Raises what the store raises, StoreError if it still fails."""
        unsettled = self._behind or self.unsettled or (self.queue and self.queue.backlog)
        if self.queue and unsettled and (problem := await self._settle(self.queue)):
            self._not_saved(problem)
        if self.broken:
            raise self.broken

    async def assured(self) -> None:
        """Make sure that all is durable before something is done that may happen only once. Raises StoreError."""
        if self.queue and self.queue.backlog:
            await self.flush()
            if self.queue.backlog:
                raise StoreError(
                    self.location or "", "what may happen only once is not done while nothing can be saved; try again"
                )

    async def _save_behind(self, parts: CommitParts, started: float, sealed: Callable[[], None] | None) -> None:
        """Commit without waiting, except for those before it when too many are under way."""
        if self.broken:
            raise self.broken

        def settle(error: BaseException | None) -> None:
            self._behind -= 1
            if error is None:
                if self.queue and "place" in parts:
                    self.completed(parts, started, self.queue)
                return
            try:
                self._not_saved(error)
            except Exception as stop:  # noqa: BLE001 - raised where the run asks for the next save
                self.broken = stop

        try:
            stored = self.commit(parts, settle, self.loop, sealed)
        except NotCodable as error:
            self._not_saved(error)
            return
        if stored:
            self._behind += 1
            if self._behind >= _FARTHEST_BEHIND:
                await self.flush()

    def _not_saved(self, error: BaseException) -> None:
        """A save failed: go on and say so, or raise what stops the run."""
        if isinstance(error, BranchConflictError | RunCancelled):
            raise error
        self.failed(error)
        if self.on_save_error == "raise":
            raise StoreError(self.location or "", f"a save failed: {error}") from error

    def warn(self, message: str) -> None:
        """Tell the log."""
        log.warning("%s/%s: %s", self.run_id, self.branch, self.secrets.mask(message))

    def failed(self, error: BaseException) -> None:
        """Remember and announce that something was not saved."""
        if not self.degraded:
            self.warn(f"the run goes on, but not everything is saved: {error}")
        self.degraded = True
        message = self.secrets.mask(str(error))
        self.emit(events.CheckpointFailedEvent, error=message, error_type=type(error).__name__)

    def _check(self) -> None:
        """Raises StoreError if nothing more can be recorded."""
        if self.closed:
            raise self.ended()

    def ended(self) -> StoreError:
        """What to raise when somebody still asks something of a run that is over."""
        state = self.record.run.get("definition", {}).get("kind") == "state"
        why = "the state was closed; open it again" if state else "the run has ended"
        return StoreError(self.location or self.run_id, f"nothing more of {self.run_id!r} can be recorded: {why}")

    def completed(self, parts: CommitParts, started: float, queue: WriteQueue) -> str:
        """Announce a checkpoint that is durable, `started` being when it was asked for. Returns its ref."""
        ref = queue.store.ref(parts["place"])
        elapsed = (time.perf_counter() - started) * 1000
        self.emit(events.CheckpointCompletedEvent, **naming(parts["place"]), ref=ref, duration_ms=elapsed)
        if drops := parts.get("drops"):
            self.emit(events.CheckpointPrunedEvent, removed_count=len(drops), max_checkpoints=parts["keep"])
        return ref

    async def aclose(self, *, cancelled: bool = False, last_values: bool = True) -> None:
        """Release the store, once all that was handed to it is settled. What failed is tried once more.

        `cancelled` says that somebody wanted the run to be stopped where it is. With `last_values`, what was done to
        the values after the last commit is recorded.
        """
        if self.closed:
            return
        if last_values and self.states.shared.used and self.claim and not (self.queue and self.queue.fenced):
            self._last_values()
        self.closed = True
        self.mailbox.close()
        if not (queue := self.queue):
            self._drop_claim()
            return
        try:
            if queue.fenced:  # nothing of it can be saved any more
                queue.backlog = ()
            elif self.claim and self.record.claim and not queue.backlog:
                self._give_back(queue, {"cancelled": True} if cancelled else {})
            if self.unsettled or self._behind or queue.backlog:
                await self._settled(queue)
        finally:
            ended = self.leave(queue)
        if ended:
            await asyncio.wrap_future(ended)

    def leave(self, queue: WriteQueue) -> Future[None] | None:
        """Release the branch and the store. The future tells when the store is closed, if nobody else uses it."""
        self._drop_claim()
        return queue.leave()

    def _drop_claim(self) -> None:
        if self.claim:
            _journals.pop(self.claim["id"], None)
            release(self.claim)

    def _last_values(self) -> None:
        """Record what was done to the values after the last commit."""
        try:
            if self.states.waiting:
                self.unsettled += self.commit({}, lambda error: None)
        except NotCodable as error:
            self.failed(error)

    def _give_back(self, queue: WriteQueue, why: CommitParts) -> None:
        """Say that nobody writes the branch any more: it was cut short in a process that lives on."""
        entry = next_entry({"released": True, **why}, after=self.record.head)
        self.record.apply(entry)
        self.unsettled += 1
        queue.put((entry,), lambda error: None)

    async def _settled(self, queue: WriteQueue) -> None:
        late = bool(queue.backlog)
        problem = await self._settle(queue)
        if (problem or late) and not queue.fenced:
            self.warn(f"still not saved: {problem}" if problem else "what had failed is saved now")

    async def _settle(self, queue: WriteQueue) -> BaseException | None:
        """Wait until the queue is empty, or what is in it has failed once more."""
        settled: Future[BaseException | None] = Future()
        queue.put((), settled.set_result)
        return await asyncio.shield(asyncio.wrap_future(settled))

    def listen(self) -> None:
        """Let the writer's thread report that the branch is fenced."""

        def fence(error: BaseException) -> None:
            if not self.fenced.done():
                self.fenced.set_result(error)

        def on_fenced(error: BaseException) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to hear
                self.loop.call_soon_threadsafe(fence, error)

        if self.queue:
            self.queue.on_fenced = on_fenced

    def emit(self, cls: type[BaseEvent], **fields: Any) -> None:
        """Emit an event about this record."""
        if not event_bus.hears(cls):
            return
        provider = self.queue.writer.provider if self.queue else "none"
        where = {"location": self.location, "provider": provider, "run_id": self.run_id, "branch": self.branch}
        event_bus.emit(self, cls(**where, seq=self.record.seq, **fields))


_journals: WeakValueDictionary[str, Journal] = WeakValueDictionary()
"""The journals of the runs at work in this process, by the id of their claim."""


def at_work_on(claim: Claim | None, location: str) -> Journal | None:
    """The journal of the run in this process that holds this claim at this location; None if there is none."""
    journal = _journals.get(claim["id"]) if claim else None  # a copy of the run elsewhere has the same claim
    there = journal is not None and os.path.realpath(str(journal.location)) == os.path.realpath(location)
    return journal if there else None


def _is_news(parts: CommitParts) -> bool:
    """Whether a commit holds more than failures and checkpoints."""
    outcomes = any("error" not in step for step in parts.get("steps", ()))
    return outcomes or not parts.keys().isdisjoint(("claim", "intents"))


def naming(checkpoint: CheckpointRecord) -> dict[str, Any]:
    """How events tell of a checkpoint."""
    return {"checkpoint_id": checkpoint["id"], "trigger": checkpoint["trigger"], "parent_id": checkpoint["parent"]}


in_child(_journals.clear)  # a child has no thread of its parent's runs
