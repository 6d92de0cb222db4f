"""The writing side of a run: facts become entries, entries become durable, in one total order.

A run always has a journal. Without a store it stays in memory; the first manual checkpoint with a location writes all
of it there and every commit after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
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
from crewlite.forked import in_child, lock
from crewlite.ids import now
from crewlite.secrets import Secrets
from crewlite.state.format.commit import CheckpointRecord, Claim, Commit, CommitParts, Event, StepRecord, invalidated
from crewlite.state.format.entry import SCHEMA, Entry, next_entry, seal
from crewlite.state.format.record import Record
from crewlite.state.journal.claim import claim, let_go
from crewlite.state.journal.mailbox import Mailbox
from crewlite.state.journal.values import Values
from crewlite.state.journal.writer import Done, Lane
from crewlite.usage import Usage

log = logging.getLogger("crewlite.state")
_FARTHEST_BEHIND = 512  # commits that an asynchronous run may be ahead of its disk


@dataclass(eq=False)
class Journal:
    """The journal of one branch of one run. Its verbs are for the run's loop; by_hand.py has those for all threads."""

    run_id: str
    branch: str
    record: Record
    secrets: Secrets
    on_save_error: str = "warn"
    durability: str = "sync"
    """"async": commits do not wait for the disk, unless they must."""
    lane: Lane | None = None
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
    _values: Values | None = None
    _first: threading.Lock = field(default_factory=lock)
    _refused: str | None = None
    """Why values could not be recorded the last time they were looked at."""
    _riding: list[Event] = field(default_factory=list)
    _again: list[StepRecord] = field(default_factory=list)
    unsettled: int = 0
    """Commits that nobody waited for to the end, as they were cancelled, failed or named by hand."""
    _behind: int = 0
    """Commits that are on their way to the disk while the run goes on."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """The run's own."""
    mailbox: Mailbox = field(init=False)
    lost: asyncio.Future[BaseException] = field(init=False)
    """Done when somebody else has the branch, or has stopped the run: with the error that says so."""

    def __post_init__(self) -> None:
        self.mailbox, self.lost = Mailbox(self.loop), self.loop.create_future()
        self.listen()

    @property
    def location(self) -> str | None:
        """Where it is stored."""
        return self.lane.store.location if self.lane else None

    @property
    def bases(self) -> frozenset[str]:
        """Places of this branch that forks stand on, as far as known."""
        return self.lane.bases if self.lane else frozenset()

    @property
    def next_seq(self) -> int:
        """The number the next commit will have."""
        return self.record.seq + 1

    @property
    def values(self) -> Values:
        """What is kept beside the run, as it is now. Runs that never ask for it pay nothing."""
        with self._first:  # any thread may be the first to ask, and all are given the same
            if self._values is None:
                self._values = Values(self.record)
        return self._values

    def ride(self, event: BaseEvent) -> None:
        """Let an event be recorded with the next commit."""
        if event.fleeting:
            return
        self._riding.append((event.type, event.event_id, event.timestamp.isoformat(), event.address or ""))

    def again(self, address: str, kind: str) -> None:
        """Let a finished step be given up with the next outcome, which is of its inside or its own: it is done again.

        Until then it stands, as it is paid for: whoever takes back what made it run again has it back.
        """
        self._again.append(invalidated(address, kind))

    def commit(
        self,
        facts: CommitParts,
        done: Done,
        loop: asyncio.AbstractEventLoop | None = None,
        sealed: Callable[[], None] | None = None,
    ) -> bool:
        """Seal the facts and hand them to the store, if there is one; then `done` is called: see Writer.put.

        In between `sealed` is called, while the record stands at this commit. Events are announced last: a handler may
        commit, and the numbers in `facts` belong to this commit.
        """
        if self.closed:
            raise self.ended()
        at = now().isoformat()
        if place := facts.get("place"):
            place["at"] = at
        whole: Commit = {"schema": SCHEMA, "seq": self.next_seq, "at": at, **facts}
        if self._riding:
            whole["events"], self._riding = [*self._riding, *facts.get("events", ())], []
        if self._again and _is_news(facts):
            whole["steps"], self._again = [*self._again, *facts.get("steps", ())], []
        refused = self._with_values(whole) if self._values is not None else None
        entry = seal(whole, after=self.record.sum)
        self.record.apply(entry)
        if sealed:
            sealed()
        lane = self.lane
        if lane:
            lane.put((entry,), done, loop)
        else:
            self.entries.append(Entry(entry.seq, entry.seal, b"", whole))
        if place and lane:
            self.say(events.CheckpointStartedEvent, **naming(place))
        if refused:
            self.failed(refused)
        return lane is not None

    def _with_values(self, whole: Commit) -> NotCodable | None:
        """Let the values ride with a commit. What to announce, if one of them cannot be recorded and that is news."""
        refused = self.values.ride(whole, self.secrets, strict=self.on_save_error == "raise")
        before, self._refused = self._refused, str(refused) if refused else None
        return refused if self._refused != before else None

    async def store(self, facts: CommitParts, sealed: Callable[[], None] | None = None) -> None:
        """Commit and wait until it is durable. Raises what the store raises. `sealed` is called as by `commit`."""
        waiting = self.loop.create_future()

        def settle(error: BaseException | None) -> None:
            if waiting.done():  # whoever waited was cancelled
                return
            if error:
                waiting.set_exception(error)
            else:
                waiting.set_result(None)

        if self.commit(facts, settle, self.loop, sealed):
            self.unsettled += 1
            await waiting
            self.unsettled -= 1

    async def save(self, facts: CommitParts, *, now: bool = False, sealed: Callable[[], None] | None = None) -> None:
        """Commit, and wait until it is durable, unless the run is asynchronous and this needs not be so `now`.

        Announces the checkpoint it names, and failures. `sealed` is called as by `commit`: when this returns, later
        commits may have been made.
        """
        if self.closed:  # what was left behind is no failed save of the run
            raise self.ended()
        started = time.perf_counter()
        if self.durability == "async" and not now:
            await self._save_behind(facts, started, sealed)
            return
        try:
            await self.store(facts, sealed)
        except Exception as error:  # noqa: BLE001 - whatever storage raises is announced, and raised if it must stop the run
            self._not_saved(error)
            return
        if self.lane and "place" in facts:
            self.completed(facts, started, self.lane)

    def take_claim(self) -> Claim:
        """Make a claim. Until it is dropped, `at_work_on` finds this journal by it."""
        self.claim = claim()
        _journals[self.claim["id"]] = self
        return self.claim

    def give_up_claim(self) -> None:
        """Drop a claim that could not be stored, with what waits to be written: nothing was begun."""
        self._drop_claim()
        self.claim = None
        if self.lane:
            self.lane.backlog = ()

    async def flush(self) -> None:
        """Wait until all that was committed is durable. Raises what the store raises, StoreError if it still fails."""
        unsettled = self._behind or self.unsettled or (self.lane and self.lane.backlog)
        if self.lane and unsettled and (problem := await self._settle(self.lane)):
            self._not_saved(problem)
        if self.broken:
            raise self.broken

    async def assured(self) -> None:
        """Make sure that all is durable before something is done that may happen only once. Raises StoreError."""
        if self.lane and self.lane.backlog:
            await self.flush()
            if self.lane.backlog:
                raise StoreError(
                    self.location or "", "what may happen only once is not done while nothing can be saved; try again"
                )

    async def _save_behind(self, facts: CommitParts, started: float, sealed: Callable[[], None] | None) -> None:
        """Commit without waiting, except for those before it when too many are under way."""
        if self.broken:
            raise self.broken

        def settle(error: BaseException | None) -> None:
            self._behind -= 1
            if error is None:
                if self.lane and "place" in facts:
                    self.completed(facts, started, self.lane)
                return
            try:
                self._not_saved(error)
            except Exception as stop:  # noqa: BLE001 - raised where the run asks for the next save
                self.broken = stop

        try:
            stored = self.commit(facts, settle, self.loop, sealed)
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
        self.say(events.CheckpointFailedEvent, error=message, error_type=type(error).__name__)

    def ended(self) -> StoreError:
        """What to raise when somebody still asks something of a run that is over."""
        state = self.record.run.get("definition", {}).get("kind") == "state"
        why = "the state was closed; open it again" if state else "the run has ended"
        return StoreError(self.location or self.run_id, f"nothing more of {self.run_id!r} can be recorded: {why}")

    def completed(self, facts: CommitParts, started: float, lane: Lane) -> str:
        """Announce a place that is durable, `started` being when it was asked for. Returns its ref."""
        ref = lane.store.ref(facts["place"])
        elapsed = (time.perf_counter() - started) * 1000
        self.say(events.CheckpointCompletedEvent, **naming(facts["place"]), ref=ref, duration_ms=elapsed)
        if drops := facts.get("drops"):
            self.say(events.CheckpointPrunedEvent, removed_count=len(drops), max_checkpoints=facts["keep"])
        return ref

    async def aclose(self, *, cancelled: bool = False, last_values: bool = True) -> None:
        """Let go of the store, once all that was handed to it is settled. What failed is tried once more.

        `cancelled` says that somebody wanted the run to be stopped where it is. With `last_values`, what was done to
        the values after the last commit is recorded.
        """
        if self.closed:
            return
        if last_values and self._values is not None and self.claim and not (self.lane and self.lane.lost):
            self._last_values(self._values)
        self.closed = True
        self.mailbox.close()
        if not (lane := self.lane):
            self._drop_claim()
            return
        try:
            if lane.lost:  # nothing of it can be saved any more
                lane.backlog = ()
            elif self.claim and self.record.claim and not lane.backlog:
                self._give_back(lane, {"cancelled": True} if cancelled else {})
            if self.unsettled or self._behind or lane.backlog:
                await self._settled(lane)
        finally:
            ended = self.leave(lane)
        if ended:
            await asyncio.wrap_future(ended)

    def leave(self, lane: Lane) -> Future[None] | None:
        """Let go of the branch and the store. The future tells when the store is closed, if nobody else uses it."""
        self._drop_claim()
        return lane.leave()

    def _drop_claim(self) -> None:
        if self.claim:
            _journals.pop(self.claim["id"], None)
            let_go(self.claim)

    def _last_values(self, values: Values) -> None:
        """Record what was done to the values after the last commit."""
        try:
            if values.paid != Usage() or values.changes(self.secrets, []):
                self.unsettled += self.commit({}, lambda error: None)
        except NotCodable as error:
            self.failed(error)

    def _give_back(self, lane: Lane, why: CommitParts) -> None:
        """Say that nobody writes the branch any more: it was cut short in a process that lives on."""
        entry = next_entry({"released": True, **why}, after=self.record.head)
        self.record.apply(entry)
        self.unsettled += 1
        lane.put((entry,), lambda error: None)

    async def _settled(self, lane: Lane) -> None:
        late = bool(lane.backlog)
        problem = await self._settle(lane)
        if (problem or late) and not lane.lost:
            self.warn(f"still not saved: {problem}" if problem else "what had failed is saved now")

    async def _settle(self, lane: Lane) -> BaseException | None:
        """Wait until the lane is empty, or what is in it has failed once more."""
        settled: Future[BaseException | None] = Future()
        lane.put((), settled.set_result)
        return await asyncio.shield(asyncio.wrap_future(settled))

    def listen(self) -> None:
        """Hear from the writer's thread that the branch is lost."""

        def lose(error: BaseException) -> None:
            if not self.lost.done():
                self.lost.set_result(error)

        def told(error: BaseException) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to hear
                self.loop.call_soon_threadsafe(lose, error)

        if self.lane:
            self.lane.on_lost = told

    def say(self, cls: type[BaseEvent], **fields: Any) -> None:
        """Emit an event about this record."""
        if not event_bus.hears(cls):
            return
        provider = self.lane.writer.provider if self.lane else "none"
        where = {"location": self.location, "provider": provider, "run_id": self.run_id, "branch": self.branch}
        event_bus.emit(self, cls(**where, seq=self.record.seq, **fields))


_journals: WeakValueDictionary[str, Journal] = WeakValueDictionary()
"""The journals of the runs at work in this process, by the id of their claim."""


def at_work_on(claim: Claim | None, location: str) -> Journal | None:
    """The journal of the run in this process that holds this claim at this location; None if there is none."""
    journal = _journals.get(claim["id"]) if claim else None  # a copy of the run elsewhere has the same claim
    there = journal is not None and os.path.realpath(str(journal.location)) == os.path.realpath(location)
    return journal if there else None


def _is_news(facts: CommitParts) -> bool:
    """Whether a commit holds more than failures and checkpoints."""
    outcomes = any("error" not in step for step in facts.get("steps", ()))
    return outcomes or not facts.keys().isdisjoint(("claim", "intents"))


def naming(place: CheckpointRecord) -> dict[str, Any]:
    """How events tell of a place."""
    return {"checkpoint_id": place["id"], "trigger": place["trigger"], "parent_id": place["parent"]}


in_child(_journals.clear)  # a child has no thread of its parent's runs
