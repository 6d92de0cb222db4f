"""One kickoff's view of a run: its record, its journal and what the engine keeps in memory while it drives the run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from crewlite.durable import Said
from crewlite.errors import InDoubt, NotCodable, Redacted, ends_run, text_of
from crewlite.events.base import BaseEvent, EventNote, open_fields, type_of
from crewlite.events.delivery import masking
from crewlite.events.event_bus import event_bus
from crewlite.ids import new_id, now_text
from crewlite.recovery.guards import Guard
from crewlite.runtime.steps.earlier_kickoffs import EarlierKickoffs, unrequested_changes
from crewlite.runtime.steps.failures import class_of, lost
from crewlite.runtime.steps.mode import Mode
from crewlite.runtime.steps.once_calls import OnceCalls
from crewlite.runtime.steps.sayings import Sayings
from crewlite.runtime.steps.slots import Pools
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.addresses import leaf, outers
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.failed import RaisedError
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.reading.checkpoints import RecordView
from crewlite.state.reading.steps import unsettled
from crewlite.state.runtime import RuntimeState
from crewlite.state.shared import Cache, SharedData
from crewlite.state.subscriber import SHOWN, CheckpointRule, CheckpointSubscriber, Setting
from crewlite.step_parts import Durability
from crewlite.system.forked import cached_property
from crewlite.usage import Usage


class BegunCalls:
    """The addresses of all steps that have begun, by kind and name; updated as the record grows.

    A prune keeps events, so a step that began is known here even if nothing else of it is recorded any more.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, None]] = {}
        self._starts = self._intended = 0

    def of(self, record: Record, kind: str, names: Collection[str]) -> list[str]:
        """Return the addresses of the steps of this kind, with any of these names, that have begun."""
        starts, intended = record.events.starts, record.intended_in  # both only grow at the end
        for address in (*islice(starts, self._starts, None), *islice(intended, self._intended, None)):
            self._note(address)
        self._starts, self._intended = len(starts), len(intended)
        known = (address for name in sorted(names) for address in self._known.get(f"{kind}:{name}", ()))
        return [address for address in known if address in starts or address in record.intents]

    def _note(self, address: str) -> None:
        self._known.setdefault(leaf(address).partition("#")[0], {})[address] = None


class Origin(NamedTuple):
    """Where an event comes from: what all events of a step have in common."""

    address: str
    name: str
    """The name of the step, or else of its kind, which events and messages show instead of the longer address."""
    parent: str | None = None
    """The id of the start event of the step that announces the event; for an event about a step itself, of the
    enclosing step."""
    checkpoints: CheckpointRule | None = None
    """Which of the events create a checkpoint, by the setting of the step or of the nearest enclosing step with one."""


@dataclass(eq=False)
class Run:
    """The state that all frames of a run share."""

    journal: Journal
    subscriber: CheckpointSubscriber
    on_drift: Literal["keep", "rerun", "error"] = "keep"
    resumed: bool = False
    """Whether this kickoff continues a record: of earlier kickoffs, or of the base of a fork."""
    strict_replay: bool = False
    """As `Step.strict_replay` of the root step."""
    superseded: bool = False
    """Whether the recorded result answers another question than this kickoff asks, so that the root step runs again."""
    drifted: tuple[str, ...] = ()
    """Addresses of the steps in the recorded result whose answers were kept though their questions changed."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """The inputs of the run that its definition is given."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    rerun: Mapping[str, int] = field(default_factory=dict)
    """Calls in doubt to make again, each with the number of the attempt that is in doubt, and failed steps to retry."""
    streamed: bool = False
    """Whether models are asked for their replies in pieces."""
    enclosing: tuple[Any, ...] = ()
    """The budgets of the run inside which this one was kicked off; () for none."""
    guards: tuple[Guard, ...] = ()
    """The guards of the run inside which this one was kicked off, which hold here too."""
    sayings: Sayings | None = None
    """The sayings of the step inside which this run was kicked off. Those of this run are added to them."""
    setting: Setting = None
    """The checkpoint setting of the definition that is kicked off."""
    config: CheckpointConfig | None = None
    """The store configuration that the definitions give, without the overrides of the kickoff."""
    earlier: EarlierKickoffs = field(default_factory=EarlierKickoffs, init=False)
    begun_calls: BegunCalls = field(default_factory=BegunCalls, init=False)
    incomplete_failures: set[tuple[str, str]] = field(default_factory=set, init=False)
    """What `incomplete` has warned of: (class of an error, part that is not recorded)."""
    unrequested_changes: set[str] = field(default_factory=set, init=False)
    """Addresses of the steps that this fork edits or reruns and that have not been requested yet."""
    compensable: set[str] = field(default_factory=set, init=False)
    """Addresses of the requested steps, at any depth, that have a compensator."""
    pools: Pools = field(default_factory=Pools, init=False)
    separate: dict[str, Callable[[], Usage]] = field(default_factory=dict, init=False)
    """Functions that return the usage of separate runs kicked off inside this one, by the address of the step."""
    worked: dict[str, float] = field(default_factory=dict, init=False)
    """How many seconds failed and cancelled steps with a time limit have worked, by address."""
    once: OnceCalls = field(default_factory=OnceCalls, init=False)

    def __post_init__(self) -> None:
        self.record: Record = self.journal.record
        """The record of the run so far."""
        if self.resumed:
            expects_all = self.strict_replay or self.on_drift == "rerun"
            self.once.go_on(self.record)
            self.earlier = EarlierKickoffs.of(self.record, self.rerun, expects_all=expects_all)
            self.unrequested_changes = unrequested_changes(self.record)

    @cached_property
    def mode(self) -> Mode:
        """How the record answers requests for the top-level steps of this run."""
        left = self.earlier.left_in_doubt
        return Mode(self.on_drift, superseded=self.superseded, rerun=self.rerun, left_in_doubt=left)

    @cached_property
    def first_starts(self) -> dict[str, str]:
        """The time of the first start of each step begun by an earlier kickoff. Execution adds its own."""
        return {**self.record.events.starts}

    @cached_property
    def cache(self) -> Cache:
        """The cached results of other runs, to which this run adds its own."""
        return Cache(self.journal)

    @cached_property
    def shared(self) -> SharedData:
        """The data that the runs of the same store share."""
        return SharedData(self.journal)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.journal.run_id

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self.journal.branch

    @property
    def recorded(self) -> bool:
        """Whether the run has a store."""
        return self.journal.queue is not None

    def doubt(self, address: str, what: str, failed: str, arguments: str) -> InDoubt:
        """Build the error of a call that may have taken effect. `failed` and `arguments`: see InDoubt."""
        times, others = self.record.begun_once.get(address, 1), self._in_doubt_beside(address)
        kind, (run_id, branch) = self.record.kind, (self.run_id, self.branch) if self.recorded else ("", "")
        return InDoubt(address, what, failed, arguments, times, others=others, kind=kind, run_id=run_id, branch=branch)

    def _in_doubt_beside(self, address: str) -> dict[str, int]:
        """Return the other calls at which the next kickoff stops with InDoubt, and how often each was begun.

        Also those that this kickoff decides about: it has not used that, and the next one is given its own.
        """
        others = self.earlier.doubts - {address, *outers(address)}
        return {at: times for at, times in unsettled(self.record).items() if at in others}

    @property
    def durability(self) -> Durability:
        """How reliably this run is saved so far."""
        if self.journal.degraded:
            return "degraded"
        if self.journal.queue is None:
            return "off"
        return "async" if self.journal.durability == "async" else "sync"

    def used(self, address: str) -> Usage:
        """Return the usage of a step and all steps inside it so far, including separate runs kicked off there."""
        used = self.record.paid.inside(address)
        for at, usage in self.separate.items():
            if at not in self.record.outcomes and (not address or address in outers(at)):
                used += usage()
        return used

    def outermost(self, name: str) -> Origin:
        """Return where events about the run itself come from. `name`: the name of the run's definition."""
        return Origin("", name, checkpoints=self.subscriber.rule(self.setting))

    def hears(self, event: type[BaseEvent], rule: CheckpointRule | None) -> bool:
        """Return whether an event of this class has a handler or, by this rule, creates a checkpoint.

        If neither, the event need not be built.
        """
        return (rule is not None and rule.covers(event)) or event_bus.hears(event)

    async def publish(
        self,
        source: object,
        said: Said,
        origin: Origin,
        *,
        parts: CommitParts | None = None,
        now: bool = False,
        ahead: bool = False,
        again: bool = False,
    ) -> BaseEvent | EventNote | None:
        """Commit an event with `parts` and the checkpoint that it may create; then emit it.

        An event without parts and checkpoint is recorded by the next commit. So is one whose checkpoint shows the run
        just before it (`ahead`). Handlers get the record as it is right after the commit. Returns the event; only its
        note if it has no handler; None if `said` is None. `now`: see `Journal.save`. `again`: see `_emit`.
        """
        journal = self.journal
        if said is None:
            if parts:
                await journal.save(parts, now=now)
            return None
        cls: Any
        cls, about = said
        heard, rule = bool(event_bus.hearing[cls].receivers), origin.checkpoints
        creates = rule if rule and rule.covers(cls) else None
        event: BaseEvent | None = None
        if heard:
            seq = journal.next_seq if (parts or creates) and not ahead else None
            event = self._event(cls, about, origin, seq)
            note = event.noted
        else:
            note = EventNote(type_of(cls), new_id(), now_text(), origin.address)
        recorded = () if cls.fleeting else (note,)
        if not ahead:
            journal.buffered_events += recorded
        if creates:
            fields, at, mask = {"source_name": origin.name, **about}, journal.next_seq, journal.secrets.mask_data
            shown = {name: mask(fields[name]) for name in SHOWN if name in fields}  # masked before it is shortened
            parts = {**(parts or {}), **creates.parts(note, shown, self.record, at, journal.bases)}
        moment = None
        if parts:
            saved = journal.save(parts, now=now)
            moment = RecordView.of(self.record) if heard else None  # before handlers of the commit may commit more
            await saved
        if ahead:
            journal.buffered_events += recorded
        if event:
            self._emit(source, event, moment, again=again)
        return event or note

    def tell(self, source: object, said: Said, origin: Origin) -> None:
        """Emit an event that is not recorded, if it has a handler."""
        if said and event_bus.hears(said[0]):
            self._emit(source, self._event(*said, origin))

    def _event(
        self, cls: type[BaseEvent], about: Mapping[str, Any], origin: Origin, seq: int | None = None
    ) -> BaseEvent:
        """Build an event, with the secrets that the run knows masked."""
        fields = {
            "run_id": self.run_id,
            "branch": self.branch,
            "seq": seq,
            "address": origin.address,
            "source_id": origin.address,
            "source_name": origin.name,
            "parent_event_id": origin.parent,
        }
        fields |= about
        mask = self.journal.secrets.mask_data
        return cls(**fields | {name: mask(fields[name]) for name in open_fields(cls) if name in fields})

    def _emit(self, source: object, event: BaseEvent, moment: RecordView | None = None, *, again: bool = False) -> None:
        """Emit an event on the bus. Handlers see the run's state at `moment`, or the current state if that is None.

        `again`: handlers were called for this event before and their changes are recorded, so new changes are dropped.
        """
        state = RuntimeState(
            self.journal, event.type, event.address or "", moment or RecordView.of(self.journal.record)
        )
        before = masking.set(self.journal.secrets.mask)
        try:
            with self.journal.states.dropping() if again else nullcontext():
                event_bus.emit(source, event, state)
                self.journal.states.settle()  # while handlers use the state
        finally:
            masking.reset(before)

    def idempotency_key(self, address: str) -> str:
        """Return a key that is the same for every attempt at a step, and differs between steps, runs and branches.

        It also changes after a rewind.
        """
        epoch = f"\n{self.record.epoch}" if self.record.epoch else ""
        key = f"{self.run_id}\n{self.branch}\n{address}{epoch}"
        return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()

    def presentable(self, error: Exception) -> Exception:
        """Return `error` itself, or a Redacted in its place if its text holds a configured secret."""
        text = text_of(error)
        masked = self.journal.secrets.mask(text)
        return error if masked == text else Redacted(type(error).__qualname__, masked, ends_run=ends_run(error))

    def incomplete(self, address: str, step: str, raised: RaisedError) -> None:
        """Warn, once for each class of errors and part, that this part of a failure is not recorded."""
        if self.journal.location is None:
            return
        name, (parts, same) = class_of(raised), lost(step, raised)
        new = {(name, part) for part in (parts if same else [*parts, ""])} - self.incomplete_failures
        if not new:
            return
        self.incomplete_failures |= new
        gets = "it without that" if same else "a StepRaised in its place"
        what = f"{', '.join(parts) or 'what its class needs'} cannot be recorded"
        self.journal.warn(
            f"{address} failed with {name}, of which {what}: after a resume, code that catches the error gets {gets}. "
            f"Keep the text or number that this code needs in the error instead",
            address,
        )

    def called(self, address: str) -> str:
        """Return the name of a step in a message: its address, or words for the run itself."""
        return address or f"the {self.record.run['definition']['kind']} itself"

    def undurable(self, address: str, error: NotCodable) -> None:
        """Announce that an outcome cannot be recorded, so that a resume runs the step again.

        Raises `error` instead with on_save_error="raise".
        """
        self.journal.warn(f"{self.called(address)} cannot be recorded and will run again on resume: {error}", address)
        self.journal.degrade(error, warned=True)
        if self.journal.on_save_error == "raise":
            raise error
