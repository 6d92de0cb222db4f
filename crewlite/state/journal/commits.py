"""The commits of a run: each is sealed as an entry, applied to the record and queued for the store, in one total order.

Without a store, commits stay in memory. The first manual checkpoint with a location seals them and writes all of them
there, and every later commit too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crewlite.errors import NotCodable, StoreError, text_of
from crewlite.events.base import BaseEvent, EventNote
from crewlite.events.event_bus import event_bus
from crewlite.events.types import checkpoint_events
from crewlite.ids import now_text
from crewlite.state.format.checkpoints import event_fields
from crewlite.state.format.commit import Claim, CommitData, CommitParts, StepRecord, invalidated
from crewlite.state.format.entry import SCHEMA, seal, unsealed
from crewlite.state.format.kept import Order
from crewlite.state.format.record import Record
from crewlite.state.journal.mailbox import Done
from crewlite.state.journal.states import States
from crewlite.state.journal.writer import WriteQueue
from crewlite.texts.logs import logger
from crewlite.texts.secrets import Secrets

log = logger("crewlite.state")


class Tombstone(NamedTuple):
    """A tombstone for a later commit: the next one with an outcome, a claim or intents.

    With `at_once`, a commit with a failed attempt that code can handle writes it too.
    """

    step: StepRecord
    at_once: bool


@dataclass(eq=False)
class Commits:
    """The commits of one branch of one run, and what they say to handlers. `Journal` saves them."""

    run_id: str
    branch: str
    record: Record
    secrets: Secrets
    on_save_error: str = "warn"
    queue: WriteQueue | None = None
    """The queue of entries for the store; None while the record is in memory only."""
    degraded: bool = False  # whether something could not be saved
    claim: Claim | None = None  # under which this process writes the branch
    closed: bool = False
    warned: bool = False  # whether the log says that not everything is saved
    unstored: list[CommitData] = field(default_factory=list)
    """All commits, if there is no store. They are not sealed, to save time and memory."""
    sums: Mapping[int, str] = field(default_factory=dict)
    """By number of the commit: the checksums of the entries that were made before the run had a store."""
    passed: Secrets | None = None
    """The secrets among the inputs, with which the program works; None if there are none."""
    on_conflict: str = "last"
    """"error": if two concurrent steps change the same place of the state, the later one fails."""
    states: States = field(init=False)
    """The state of the run: the views of its running steps and of handlers."""
    buffered_events: list[EventNote] = field(default_factory=list)
    """Events that the next commit records."""
    _tombstones: list[Tombstone] = field(default_factory=list)
    _refused: list[NotCodable] = field(default_factory=list)  # errors of values that no commit records, until announced

    def __post_init__(self) -> None:
        self.states = States(self.record, self.secrets)

    @property
    def location(self) -> str | None:
        """The location of the store; None without a store."""
        return self.queue.store.location if self.queue else None

    @property
    def bases(self) -> frozenset[str]:
        """The ids of the checkpoints of this branch that forks start from, as far as known."""
        return self.queue.upkeep.bases if self.queue else frozenset()

    @property
    def next_seq(self) -> int:
        """The number of the next commit."""
        return self.record.seq + 1

    @property
    def next_order(self) -> Order:
        """The position of the next outcome's changes in the order of all: (number of the commit, index in it)."""
        return self.next_seq, len(self._tombstones)

    def invalidate(self, address: str, kind: str, *, at_once: bool) -> None:
        """Queue a tombstone for a step that has ended. Its outcome stays valid until then. `at_once`: see Tombstone."""
        self._tombstones.append(Tombstone(invalidated(address, kind), at_once))

    def commit(
        self, parts: CommitParts, done: Done, loop: asyncio.AbstractEventLoop | None = None, *, behind: bool = False
    ) -> bool:
        """Seal a commit, apply it to the record, and queue it for the store. Returns whether there is a store.

        `done` is called once the commit is stored or has failed, never without a store; see WriteQueue.put, also for
        `behind`. The record stays as the commit leaves it until `announce` is called. Raises StoreError if closed.
        """
        if self.closed:
            raise self.ended()
        at = now_text()
        if checkpoint := parts.get("place"):
            checkpoint["at"] = at
        whole: CommitData = {"schema": SCHEMA, "seq": self.record.seq + 1, "at": at, **parts}
        if self.buffered_events:
            whole["events"], self.buffered_events = [*self.buffered_events, *parts.get("events", ())], []
        due, self._tombstones = _due_with(parts, self._tombstones) if self._tombstones else ([], [])
        if due:
            whole["steps"] = [*(one.step for one in due), *parts.get("steps", ())]
        states, queue = self.states, self.queue
        if states.common.used:
            self._refused += states.add_to(whole, strict=self.on_save_error == "raise")
        entry = seal(whole, after=self.record.sum) if queue else unsealed(whole)
        self.record.apply(entry)
        if queue:
            queue.put((entry,), done, loop, behind=behind)
        else:
            self.unstored.append(whole)
        return queue is not None

    def announce(self, parts: CommitParts) -> None:
        """Emit the events of the commit with these parts. A handler may commit."""
        if self.queue and "place" in parts and event_bus.hears(checkpoint_events.CheckpointStartedEvent):
            self.emit(checkpoint_events.CheckpointStartedEvent, **event_fields(parts["place"]))
        while self._refused:
            self.degrade(self._refused.pop(0))

    def announce_saved(self, parts: CommitParts, started: float) -> None:
        """Emit the events of a durable checkpoint, if there is a store. `started`: when it was requested."""
        if not self.queue:
            return
        checkpoint = parts["place"]
        if event_bus.hears(checkpoint_events.CheckpointCompletedEvent):
            fields = {"ref": self.queue.store.ref(checkpoint), "duration_ms": (time.perf_counter() - started) * 1000}
            self.emit(checkpoint_events.CheckpointCompletedEvent, **event_fields(checkpoint), **fields)
        if drops := parts.get("drops"):
            self.emit(checkpoint_events.CheckpointPrunedEvent, removed_count=len(drops), max_checkpoints=parts["keep"])

    def warn(self, message: str, address: str = "") -> None:
        """Log a warning about this run, with secrets masked; `address`: that of the step it is about."""
        about = {"run_id": self.run_id, "branch": self.branch, "address": address}
        log.warning("%s/%s: %s", self.run_id, self.branch, self.secrets.mask(message), extra=about)

    def degrade(self, error: BaseException, *, warned: bool = False) -> None:
        """Mark the durability of the run as degraded, and emit the event. `warned`: the caller has logged it."""
        self.degraded = True
        if not (warned or self.warned):
            self.warned = True
            follows = "the run stops, as" if self.on_save_error == "raise" else "the run goes on, but"
            self.warn(f"{follows} not everything is saved: {text_of(error)}")
        about = {"error": self.secrets.mask(text_of(error)), "error_type": type(error).__name__}
        with contextlib.suppress(OSError, ImportError):  # too many files are open to import the class of the event
            self.emit(checkpoint_events.CheckpointFailedEvent, **about)

    def emit(self, cls: type[BaseEvent], **fields: Any) -> None:
        """Emit an event about this journal."""
        if event_bus.hears(cls):
            provider = self.queue.writer.provider if self.queue else "none"
            where = {"location": self.location, "provider": provider, "run_id": self.run_id, "branch": self.branch}
            event_bus.emit(self, cls(**where, seq=self.record.seq, **fields))

    def learn(self, *objects: object, extra: Iterable[str] = ()) -> None:
        """Mask the secrets in the fields of these objects, and the texts in `extra`, from now on."""
        self.secrets = self.states.common.secrets = self.secrets.knowing(*objects, extra=extra)

    def ended(self) -> StoreError:
        """Build the error for a request to a run that has ended."""
        return StoreError(*self._why_ended())

    def _why_ended(self) -> tuple[str, str]:
        state = self.record.run.get("definition", {}).get("kind") == "state"
        why = "the state was closed: open it again" if state else "the run has ended"
        if self.claim and self.claim["pid"] != os.getpid():
            why = f"it is written by process {self.claim['pid']}, from which this process was forked: do this there"
        return self.location or self.run_id, f"nothing more of {self.run_id!r} can be recorded: {why}"


def _due_with(parts: CommitParts, tombstones: Sequence[Tombstone]) -> tuple[list[Tombstone], list[Tombstone]]:
    """Return (the tombstones that a commit with these parts writes, before its own steps; those that wait further)."""
    steps = parts.get("steps", ())
    if "claim" in parts or "intents" in parts or any("error" not in step for step in steps):
        return [*tombstones], []
    if not any("fingerprint" in step for step in steps):
        return [], [*tombstones]
    return [one for one in tombstones if one.at_once], [one for one in tombstones if not one.at_once]
