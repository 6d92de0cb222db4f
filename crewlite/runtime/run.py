"""A run: one kickoff and all its resumptions, driven over one journal."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from crewlite.durable import Durability
from crewlite.errors import NotCodable, Redacted, ends_run, text_of
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.runtime.replay import Mode
from crewlite.runtime.slots import Pools
from crewlite.state.cache import Cache
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.addresses import leaf
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.runtime import CommitView, RuntimeState
from crewlite.state.subscriber import CheckpointSubscriber, Setting


class BegunCalls:
    """The addresses of all steps that were begun, by kind and name, kept up as the record grows.

    Events outlive a prune, so what was begun is known also where nothing else of it is.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, None]] = {}
        self._events = self._intents = 0

    def of(self, record: Record, kind: str, names: Collection[str]) -> list[str]:
        """Those of one kind and of any of these names."""
        for event in islice(record.events, self._events, None):
            if event.type.endswith("_started"):
                self._note(event.address)
        for address in islice(record.intents, self._intents, None):
            self._note(address)
        self._events, self._intents = len(record.events), len(record.intents)
        return [address for name in sorted(names) for address in self._known.get(f"{kind}:{name}", ())]

    def _note(self, address: str) -> None:
        self._known.setdefault(leaf(address).partition("#")[0], {})[address] = None


@dataclass(eq=False)
class Run:
    """What the frames of a run share."""

    journal: Journal
    subscriber: CheckpointSubscriber
    on_drift: Literal["keep", "rerun", "error"] = "keep"
    superseded: bool = False
    """The recorded result does not answer what is asked now, so the root step is done again."""
    drifted: tuple[str, ...] = ()
    """Steps whose answers the recorded result keeps, though they are asked something else now."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    rerun: frozenset[str] = frozenset()
    doubts: frozenset[str] = frozenset()
    """Calls that an earlier life intended and has no outcome of."""
    begun: frozenset[str] = frozenset()
    """Steps that an earlier life started."""
    begun_calls: BegunCalls = field(default_factory=BegunCalls)
    inside: dict[str, frozenset[str]] = field(default_factory=dict)
    """The finished steps of an earlier life, by what their addresses begin with up to the last slash."""
    unused: set[str] = field(default_factory=set)
    """Edited outcomes of this fork that have not been asked for."""
    pools: Pools = field(default_factory=Pools)
    config: CheckpointConfig | None = None
    """What its definitions say of its store."""

    @cached_property
    def mode(self) -> Mode:
        """How the steps of this run are answered."""
        return Mode(self.on_drift, superseded=self.superseded, rerun=self.rerun, begun=self.begun)

    @cached_property
    def first_starts(self) -> dict[str, str]:
        """When each step was begun first, of those that an earlier life began or that somebody has asked about."""
        starts = (event for event in reversed(self.record.events) if event.type.endswith("_started"))
        return {event.address: event.timestamp for event in starts}

    @cached_property
    def cache(self) -> Cache:
        """What other runs came to, and what this one leaves to them."""
        return Cache(self.journal)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.journal.run_id

    @property
    def branch(self) -> str:
        """The branch it is on."""
        return self.journal.branch

    @property
    def record(self) -> Record:
        """What is known so far."""
        return self.journal.record

    @property
    def recorded(self) -> bool:
        """Whether it has a store."""
        return self.journal.queue is not None

    @property
    def durability(self) -> Durability:
        """How much of this run can be relied upon to be on disk."""
        if self.journal.degraded:
            return "degraded"
        if self.journal.queue is None:
            return "off"
        return "async" if self.journal.durability == "async" else "sync"

    def checkpoint_parts(self, event: BaseEvent, setting: CheckpointConfig | bool, seq: int) -> CommitParts:
        """The commit parts that name a checkpoint for `event` at `seq`."""
        return self.subscriber.checkpoint_parts(event, setting, self.record, seq, self.journal.bases)

    def hears(self, event: type[BaseEvent], settings: tuple[Setting, ...]) -> bool:
        """Whether anybody listens to events of this class, or they name checkpoints. If not, none need be made."""
        kind = event.model_fields["type"].default
        return event_bus.hears(event) or bool(self.subscriber.wants(kind, settings, fleeting=event.fleeting))

    def emit(self, source: object, event: BaseEvent, moment: CommitView | None = None) -> None:
        """Let the bus hear of an event, and handlers have the run as it was at that moment; without one, as it is."""
        if event_bus.hears(type(event)):
            state = RuntimeState(self.journal, event.type, event.address or "", moment)
            event_bus.emit(source, event, state)
            self.journal.states.settle()  # while somebody holds the state

    async def save(self, parts: CommitParts, *, now: bool = False) -> CommitView:
        """Commit: see `Journal.save`. Returns the run as this commit left it, though others came while it waited."""
        sealed = list[CommitView]()
        await self.journal.save(parts, now=now, sealed=lambda: sealed.append(CommitView.of(self.record)))
        return sealed[0] if sealed else CommitView.of(self.record)  # one that could not be recorded is announced

    def idempotency_key(self, address: str) -> str:
        """The same for every try of a step, another for every other step, run and branch, and after a rewind."""
        epoch = f"\n{self.record.epoch}" if self.record.epoch else ""
        key = f"{self.run_id}\n{self.branch}\n{address}{epoch}"
        return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()

    def presentable(self, error: Exception) -> Exception:
        """`error` itself, or, if its text holds a configured secret, one that tells the same without it."""
        text = text_of(error)
        masked = self.journal.secrets.mask(text)
        return error if masked == text else Redacted(type(error).__qualname__, masked, ends_run=ends_run(error))

    def undurable(self, address: str, error: NotCodable) -> None:
        """An outcome that cannot be recorded: the step runs again on resume. Raises with on_save_error="raise"."""
        what = address or f"the {self.record.run['definition']['kind']} itself"
        self.journal.warn(f"{what} cannot be recorded and will run again on resume: {error}")
        self.journal.failed(error)
        if self.journal.on_save_error == "raise":
            raise error
