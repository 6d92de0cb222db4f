"""A running step, as the code inside it sees it: where child steps take addresses and are answered or executed.

asked for ─► recorded, same question? ── yes ─► answer: no call, no cost, no side effect
                 │ no
                 └─► execute (execution.py): attempt ─► commit ─► emit
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar

from crewlite import codec, durable, events
from crewlite.durable import Call, Limit, Remedies, Stamp, Step
from crewlite.errors import (
    AnswerRefused,
    ChangeUnused,
    ConfigError,
    CrewliteError,
    JournalCorrupt,
    Suspended,
    TaskDrifted,
)
from crewlite.events.base import BaseEvent
from crewlite.runtime.drift import check_none_missed, check_none_passed, diverged, kept_answers
from crewlite.runtime.execution import Execution, name_of
from crewlite.runtime.failures import raised
from crewlite.runtime.numbering import Numbering
from crewlite.runtime.questions import Drifted
from crewlite.runtime.run import Run
from crewlite.runtime.siblings import Siblings
from crewlite.runtime.slots import Slots
from crewlite.state.outcome import Attempt, Outcome
from crewlite.state.subscriber import Setting
from crewlite.usage import Usage

T = TypeVar("T")
_SHORTEST_REFERENCE = 64  # characters; a shorter text is no longer than the reference to it


class Frame:
    """One attempt of one step. What encloses the root is a frame with no address."""

    __slots__ = (
        "_driven",
        "_fingerprint",
        "_left",
        "address",
        "around",
        "asked",
        "drifted",
        "exact",
        "failed",
        "idempotency_key",
        "live",
        "name",
        "numbering",
        "past",
        "remedies",
        "run",
        "settings",
        "siblings",
        "slots",
        "started",
        "suspended",
        "task",
        "texts",
    )

    dry = False

    def __init__(self, run: Run, address: str, name: str = "", *, settings: tuple[Setting, ...] = ()) -> None:
        self.run = run
        self.address = address
        self.name = name
        self.settings = settings
        """What this step and those around it say about checkpoints, from the inside out."""
        self.idempotency_key = run.idempotency_key(address) if address else ""
        self.past: tuple[str, ...] = ()
        """The kinds of the failures of this step's attempts so far."""
        self.started: str | None = None
        """The event of this step's start."""
        self.live = False
        """Something before differs from the record, so the rest of it no longer applies here."""
        self.exact = False
        """What is asked for here is what was recorded here, or an error."""
        self.task: asyncio.Task[Any] | None = None
        """What runs the code of this step, if that is a coroutine."""
        self.around: tuple[Limit, ...] = ()
        """Limits for every step inside."""
        self.slots: Slots | None = None
        """What this step holds, and those around it, of what is limited."""
        self.remedies: Remedies | None = None
        """For steps inside that inherit."""
        self.siblings: Siblings | None = None
        """Steps that were begun here and not waited for on the spot."""
        self.suspended: Suspended | AnswerRefused | None = None
        """Something in here waits for a person."""
        self.failed: dict[str, BaseException] = {}
        """The child step that failed last, and its error."""
        self.texts: dict[str, str] = {}
        """Long texts that children recorded, each with its address: what an outcome here refers to."""
        self.asked: dict[str, str] = {}
        """The children, in the order they were asked for, with the digests of their outcomes; "" without one."""
        self.drifted: list[str] = []
        """Steps in here whose answers were kept, though they are asked something else."""
        self.numbering = Numbering(f"{address}/" if address else "")
        """The addresses of children."""
        self._fingerprint = ""
        self._driven: set[str] = set()
        """Children that were not only asked for."""
        self._left: set[str] | None = None
        """Recorded children that have not been asked for in this life; None before the first is."""

    def child(self, execution: Execution[Any], attempt: int) -> Frame:
        """The frame of an attempt at a child step."""
        address = execution.address
        inner = type(self)(self.run, address, name_of(execution.step), settings=execution.settings)
        inner.started = execution.started
        inner.live = self.live
        inner.exact = execution.step.exact
        inner.around = self.around + execution.step.around
        inner.slots = execution.slots
        inner.remedies = execution.step.inside or self.remedies
        inner._fingerprint = execution.fingerprint
        if attempt > 1:
            inner.numbering = Numbering(f"{address}!{attempt}/")
        return inner

    def take(self, kind: str, name: str | None = None) -> str:
        """The address of the next child step of this kind and name, in call order."""
        return self.numbering.next(kind, name)

    def _asked(self, step: Step[Any]) -> tuple[str, str, Exception | None]:
        """The address and the question of a step that is asked for now, and what it must not be begun behind."""
        fingerprint = self._question(step)
        if step.address is not None:
            address = step.address
        elif self._in_order(step):
            address = self.take(step.kind.name, step.name)
        else:
            address = self.numbering.beside(step.kind.name, step.name, fingerprint)
        self.asked[address] = ""
        self.unasked.discard(address)
        self.run.unused.discard(address)
        behind = None if step.kind.asks_person else self.suspended  # nothing is begun behind a question that waits
        return address, fingerprint, behind

    def _in_order(self, step: Step[Any]) -> bool:
        """Whether this step is asked for by the code of this one in its order, not by what runs beside that."""
        if not self.exact or step.chained or (step.kind.asks_person and step.name):
            return True
        return durable.apart() is not self and (self.task is None or self.task is asyncio.current_task())

    def addressed(self, step: Step[T]) -> Step[T]:
        """The step with the address that it has when it is asked for next."""
        return dataclasses.replace(step, address=self._asked(step)[0])

    def step(self, step: Step[T]) -> Awaitable[T]:
        """Ask for a step. The address is taken now; the work happens when awaited."""
        return self._awaited(step, *self._asked(step))

    @property
    def unasked(self) -> set[str]:
        """Recorded children that have not been asked for in this life."""
        if self._left is None:
            self._left = set(self.run.inside.get(self.numbering.prefix, ())) - self.asked.keys()
        return self._left

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's."""
        return self.run.journal.loop

    def spawn(self, step: Step[T]) -> asyncio.Task[T]:
        """Ask for a step and have it begin. The running step ends only when it has."""
        address, fingerprint, behind = self._asked(step)
        return self._family().begin(self._drive(step, address, fingerprint, behind), address)

    def cut(self) -> None:
        """Cut what was begun here and has not ended. Nothing more is begun."""
        self._family().cut()

    def heed(self, task: asyncio.Task[Any]) -> None:
        """Somebody waits for this spawned step, and will hear of its failure."""
        if self.siblings:
            self.siblings.seen(task)

    def untold(self) -> list[str]:
        """Spawned steps that failed, which nobody has been told."""
        return self.siblings.untold() if self.siblings else []

    def in_doubt(self, address: str) -> bool:
        """Whether an earlier life of the run may have made this call already."""
        return address in self.run.doubts

    def calls(self, kind: str, names: Collection[str]) -> list[Call]:
        """The steps of this kind and one of these names that were begun anywhere in the run, unfinished ones last."""
        record = self.run.record
        begun = self.run.begun_calls.of(record, kind, names)
        ended = sorted((record.outcomes[at].seq, at) for at in begun if at in record.outcomes)
        found = [Call(at, record.value(at)) for _, at in ended]
        return found + [Call(at) for at in begun if at not in record.outcomes]

    def mask(self, text: str) -> str:
        """`text` without the secrets the run knows."""
        return self.run.journal.secrets.mask(text)

    def hears(self, event: type[BaseEvent]) -> bool:
        """Whether an event of this class would be heard by anybody, or name a checkpoint."""
        return self.run.hears(event, self.settings)

    async def announce(self, source: object, make: Callable[[Stamp], Any], says: tuple[Setting, ...] = ()) -> str:
        """Say something that is no step's outcome. It rides with the next commit, unless it names a checkpoint."""
        run = self.run
        event: BaseEvent = make(self.stamp(self.address, self.name))
        if setting := run.subscriber.wants(event.type, (*says, *self.settings), fleeting=event.fleeting):
            seq = run.journal.next_seq
            event = event.model_copy(update={"seq": seq})
            run.journal.ride(event)
            moment = await run.save(run.place(event, setting, seq))
        else:
            run.journal.ride(event)
            moment = None
        run.emit(source, event, moment)
        return event.event_id

    def hear(self, address: str, digest: str, data: Any, drifted: Iterable[str] = ()) -> None:
        """Take note of a child's outcome, and of what in it answers another question than is asked."""
        self.asked[address] = digest
        self.drifted += drifted
        text = data.get("text") if isinstance(data, dict) else None
        if isinstance(text, str) and len(text) >= _SHORTEST_REFERENCE:
            self.texts.setdefault(text, address)

    def with_usage(self, step: Step[T], address: str, value: T, more: codec.Json = None) -> T:
        """A child's outcome, with what everything inside it has used, and `more`, which is not recorded yet."""
        if step.with_usage is None:
            return value
        return step.with_usage(value, self.run.record.paid.inside(address) + Usage(**(more or {})))

    def stamp(self, address: str, name: str, **more: Any) -> Stamp:
        """What all events of a child step (or of this one) share."""
        return {
            "run_id": self.run.run_id,
            "branch": self.run.branch,
            "address": address,
            "source_id": address,
            "source_name": name,
            "parent_event_id": self.started,
            **more,
        }

    def _family(self) -> Siblings:
        if self.siblings is None:
            self.siblings = Siblings()
        return self.siblings

    async def _awaited(self, step: Step[T], address: str, fingerprint: str, behind: Exception | None) -> T:
        """Drive a step. Where another task than this one's own awaits it, this one ends only when that has."""
        if self.task is None or self.task is asyncio.current_task():
            return await self._drive(step, address, fingerprint, behind)
        part = self._family().begin(self._drive(step, address, fingerprint, behind), address)
        try:
            return await part
        finally:
            self.heed(part)

    async def _drive(self, step: Step[T], address: str, fingerprint: str, behind: Exception | None) -> T:
        if self.run.journal.closed:  # work that was left behind, in a thread that outlived its timeout
            raise self.run.journal.ended()
        self._driven.add(address)
        recorded = self.run.record.outcomes.get(address)
        if recorded is not None and self._still_answers(step, recorded, fingerprint):
            value = self.run.record.value(address)
            self.hear(address, recorded.digest, value, kept_answers(self, recorded, fingerprint))
            await self._say_replayed(step, recorded, fingerprint)
            return self.with_usage(step, address, self._decoded(step, address, value))
        if failure := self._failed_before(address, fingerprint):
            await self._say_failed(step, failure)
            self.failed[address] = raised(name_of(step), failure)
            raise self.failed[address]
        check_none_passed(self, step, address)
        if behind:
            raise behind
        if recorded is not None:
            self.run.journal.again(address, step.kind.name)
        slots = Slots(self.run.pools, address, (*self.around, *step.limits), self.slots)
        execution = Execution(self, step, address, fingerprint, slots)
        try:
            await slots.take()
            return await execution.run()
        except Exception as error:
            self.failed[address] = error
            if isinstance(error, Suspended | AnswerRefused):
                self.suspended = error
            raise
        finally:
            slots.leave()

    def _decoded(self, step: Step[T], address: str, value: Any) -> T:
        """A recorded outcome. Raises JournalCorrupt for one that no such step had."""
        try:
            return step.decode(value)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, CrewliteError):
                raise
            problem = f"the outcome of {address!r} is none of a {step.kind} ({type(error).__name__}: {error})"
            raise JournalCorrupt(f"run {self.run.run_id}, branch {self.run.branch}", problem, None) from error

    def _question(self, step: Step[Any]) -> str:
        """The digest of what is asked. A chained step also asks with everything its parent has heard so far."""
        if not step.chained:
            return codec.digest([step.kind.name, step.question])
        return codec.digest([step.kind.name, step.question, self._fingerprint, [d for d in self.asked.values() if d]])

    def _still_answers(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> bool:
        if self.live:
            return False
        if not recorded.address:  # the run itself: this was decided before it was taken up
            return not self.run.superseded
        if self.exact and recorded.fingerprint != fingerprint:
            return diverged(self, step, recorded, fingerprint)
        if recorded.drifted and self.run.on_drift != "keep" and step.effect != "once":
            if self.run.on_drift == "error":
                raise TaskDrifted(self.run.run_id, recorded.drifted[0])
            return False
        drift = self.run.on_drift if step.drift == "configured" else step.drift
        if recorded.fingerprint == fingerprint or drift == "keep":
            return True
        if drift == "error":
            raise TaskDrifted(self.run.run_id, recorded.address, self._how_drifted(step, recorded))
        if drift == "live":
            self.live = True
        return False

    def go_on(self) -> None:
        """Raises what makes this wait for a person, also where the code in between would not hear of it."""
        if self.suspended:
            raise self.suspended

    def complete(self) -> None:
        """Raises NonDeterminism if recorded steps have not been asked for, ChangeUnused for an edit nobody used.

        And ConfigError for what was asked for and never awaited.
        """
        if not self.address and self.run.unused:
            raise ChangeUnused(sorted(self.run.unused))
        if never := self.asked.keys() - self._driven:
            raise ConfigError(
                f"{', '.join(sorted(never))} was asked for in {self.address or self.name} and not awaited, so nothing "
                f"came of it: write `await` before the call"
            )
        check_none_missed(self)

    def _failed_before(self, address: str, fingerprint: str) -> Attempt | None:
        """The failure that a step came to in an earlier life, or an earlier try, and answers with."""
        failure = self.run.record.failures.get(address) if self.exact and not self.live else None
        if failure is None or address in self.run.rerun or failure.fingerprint != fingerprint:
            return None
        return failure

    async def _say_failed(self, step: Step[Any], failure: Attempt) -> None:
        self.run.journal.warn(
            f"{failure.address} has failed before, which was handled, and is not tried again "
            f"(rerun={[failure.address]!r} does): {failure.error_type}: {failure.message}"
        )
        await self._announce_replay(step, failure.address, failed=True)

    async def _say_replayed(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> None:
        changed = [key for key, means in step.means.items() if recorded.means.get(key, means) != means]
        if recorded.fingerprint != fingerprint and not self.exact and recorded.address:
            changed.insert(0, "question")
            how = self._how_drifted(step, recorded)
            self.run.journal.warn(
                f"{recorded.address} is finished and kept, though what it asks has changed (on_drift='keep'): it {how}"
            )
        drifted = kept_answers(self, recorded, fingerprint) if recorded.address else self.run.drifted
        if drifted and "question" not in changed:
            changed.insert(0, "question")
        addresses = tuple(filter(None, drifted))
        await self._announce_replay(step, recorded.address, changed=tuple(changed), drifted=addresses)

    def _how_drifted(self, step: Step[Any], recorded: Outcome) -> str:
        """How what a step is asked now differs from what it answered."""
        asked = {name: self.mask(text) for name, text in step.texts.items()}
        return str(Drifted(recorded.address, recorded.question, asked))

    async def _announce_replay(self, step: Step[Any], address: str, **how: Any) -> None:
        name = name_of(step)
        about = {"kind": step.kind.name, "name": name, "step_type": step.label, **how}
        more = {"address": address, "source_id": address, "source_name": name}
        await self.announce(
            step.voice.source, lambda stamp: events.StepReplayedEvent(**(stamp | more), **about), step.says
        )
