"""A running step, as the code inside it sees it: where child steps take addresses and are answered or executed.

asked for ─► recorded, same question? ── yes ─► answer: no call, no cost, no side effect
                 │ no
                 └─► execute (execution.py): attempt ─► commit ─► emit
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from crewlite import codec, durable, events
from crewlite.durable import Call, Limit, Remedies, Stamp, Step
from crewlite.errors import (
    AnswerRefused,
    CrewliteError,
    JournalCorrupt,
    NonDeterminism,
    RefError,
    Suspended,
    TaskDrifted,
)
from crewlite.events.base import BaseEvent
from crewlite.runtime.execution import Execution, name_of
from crewlite.runtime.run import Run
from crewlite.runtime.siblings import Siblings
from crewlite.runtime.slots import Slots
from crewlite.state.addresses import is_right_below
from crewlite.state.record import Outcome
from crewlite.state.subscriber import Setting

T = TypeVar("T")
_TOLD_APART = 12  # hexadecimal digits of a fingerprint in an address
_SHOWN = 200  # characters
_SHORTEST_REFERENCE = 64  # characters; a shorter text is no longer than the reference to it


class Frame:
    """One attempt of one step. What encloses the root is a frame with no address."""

    __slots__ = (
        "_counts",
        "_fingerprint",
        "_heard",
        "_prefix",
        "address",
        "around",
        "exact",
        "failed",
        "idempotency_key",
        "live",
        "name",
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
        self._prefix = f"{address}/" if address else ""
        self._fingerprint = ""
        self._counts: dict[str, int] = {}
        self._heard: dict[str, str] = {}
        """Digests of the outcomes of children, in the order they were asked for."""

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
            inner._prefix = f"{address}!{attempt}/"
        return inner

    def take(self, kind: str, name: str | None = None) -> str:
        """The address of the next child step of this kind and name, in call order."""
        stem = _stem(kind, name)
        count = self._count(stem)
        return f"{self._prefix}{stem}" if name and count == 1 else f"{self._prefix}{stem}#{count}"

    def _take_by_question(self, step: Step[Any], fingerprint: str) -> str:
        """The address of a child step that nobody can number, as chance says what is asked for first."""
        place = f"{_stem(step.kind, step.name)}#{fingerprint[:_TOLD_APART]}"
        count = self._count(place)
        return f"{self._prefix}{place}" if count == 1 else f"{self._prefix}{place}.{count}"

    def _asked(self, step: Step[Any]) -> tuple[str, str, Exception | None]:
        """The address and the question of a step that is asked for now, and what it must not be begun behind."""
        fingerprint = self._question(step)
        if step.address is not None:
            address = step.address
        elif self._in_order(step):
            address = self.take(step.kind, step.name)
        else:
            address = self._take_by_question(step, fingerprint)
        self._heard[address] = ""
        self.run.unused.discard(address)
        behind = None if step.kind == "human" else self.suspended  # nothing is begun behind a question that waits
        return address, fingerprint, behind

    def _count(self, stem: str) -> int:
        count = self._counts[stem] = self._counts.get(stem, 0) + 1
        return count

    def _in_order(self, step: Step[Any]) -> bool:
        """Whether this step is asked for by the code of this one in its order, not by what runs beside that."""
        if not self.exact or step.chained or (step.kind == "human" and step.name):
            return True
        return durable.apart() is not self and (self.task is None or self.task is asyncio.current_task())

    def step(self, step: Step[T]) -> Awaitable[T]:
        """Ask for a step. The address is taken now; the work happens when awaited."""
        return self._awaited(step, *self._asked(step))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's."""
        return self.run.journal.loop

    def spawn(self, step: Step[T]) -> asyncio.Task[T]:
        """Ask for a step and have it begin. The running step ends only when it has."""
        return self._family().begin(self._drive(step, *self._asked(step)))

    def cut(self) -> None:
        """Cut what was begun here and has not ended. Nothing more is begun."""
        self._family().cut()

    def heed(self, task: asyncio.Task[Any]) -> None:
        """Somebody waits for this spawned step, and will hear of its failure."""
        if self.siblings:
            self.siblings.seen(task)

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

    async def announce(self, source: object, make: Callable[[Stamp], Any], says: tuple[Setting, ...] = ()) -> str:
        """Say something that is no step's outcome. It rides with the next commit, unless it names a checkpoint."""
        run = self.run
        event: BaseEvent = make(self.stamp(self.address, self.name))
        if setting := run.subscriber.wants(event.type, (*says, *self.settings), fleeting=event.fleeting):
            seq = run.journal.next_seq
            event = event.model_copy(update={"seq": seq})
            run.journal.ride(event)
            await run.journal.save(run.place(event, setting, seq))
        else:
            run.journal.ride(event)
        run.emit(source, event)
        return event.event_id

    def hear(self, address: str, digest: str, data: Any) -> None:
        """Take note of a child's outcome."""
        self._heard[address] = digest
        text = data.get("text") if isinstance(data, dict) else None
        if isinstance(text, str) and len(text) >= _SHORTEST_REFERENCE:
            self.texts.setdefault(text, address)

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
        part = self._family().begin(self._drive(step, address, fingerprint, behind))
        try:
            return await part
        finally:
            self.heed(part)

    async def _drive(self, step: Step[T], address: str, fingerprint: str, behind: Exception | None) -> T:
        if self.run.journal.closed:  # work that was left behind, in a thread that outlived its timeout
            raise self.run.journal.ended()
        recorded = self.run.record.outcomes.get(address)
        if recorded is not None and self._still_answers(step, recorded, fingerprint):
            value = self.run.record.value(address)
            self.hear(address, recorded.digest, value)
            await self._say_replayed(step, recorded, fingerprint)
            return self._decoded(step, address, value)
        if behind:
            raise behind
        if recorded is not None:
            self.run.journal.again(address, step.kind)
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
            return codec.digest([step.kind, step.question])
        return codec.digest([step.kind, step.question, self._fingerprint, [d for d in self._heard.values() if d]])

    def _still_answers(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> bool:
        if self.live:
            return False
        if self.exact and recorded.fingerprint != fingerprint:
            return self._diverged(step, recorded, fingerprint)
        drift = self.run.on_drift if step.drift == "configured" else step.drift
        if recorded.fingerprint == fingerprint or drift == "keep":
            return True
        if drift == "error":
            raise TaskDrifted(self.run.run_id, recorded.address)
        if drift == "live":
            self.live = True
        return False

    def _diverged(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> bool:
        """A step that is asked for otherwise than it was recorded. False: do it again, as it is to be expected here."""
        record, address = self.run.record, recorded.address
        if record.edited or record.inputs_of(address) != record.run["inputs"]:  # of a fork, which is another
            return address in record.edited
        if self.run.on_drift != "rerun":
            inside = self.run.inside.get(self._prefix, frozenset())
            alike = [at for at in sorted(inside) if record.outcomes[at].fingerprint == fingerprint]
            expected = f"what {address} was asked, which came to {self._shown(record.value(address))}"
            found = f"{self._shown(step.question)}{f', which {alike[0]} was asked' if alike else ''}"
            raise NonDeterminism(self.run.run_id, address, expected, found)
        self.live = True
        return False

    def _shown(self, data: Any) -> str:
        """Some plain JSON, in an error."""
        text = self.run.journal.secrets.mask(codec.dumps(data).decode())
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def go_on(self) -> None:
        """Raises what makes this wait for a person, also where the code in between would not hear of it."""
        if self.suspended:
            raise self.suspended

    def complete(self) -> None:
        """Raises NonDeterminism if recorded steps have not been asked for, RefError for an edit that nobody used."""
        if not self.address and self.run.unused:
            raise RefError(
                ", ".join(sorted(self.run.unused)),
                "was edited, and this branch comes to its end without asking for it. Fork again without that edit, or "
                "with inputs that lead there",
            )
        self._check_none_missed()

    def _check_none_missed(self) -> None:
        if not self.exact or self.live or self.run.on_drift == "rerun":
            return
        left = self.run.inside.get(self._prefix, frozenset()) - self._heard.keys()
        record = self.run.record
        missed = sorted(at for at in left if not record.edited and record.inputs_of(at) == record.run["inputs"])
        if missed and not self._failed_before():
            asked = ", ".join(list(self._heard)[-3:]) or "none"
            raise NonDeterminism(self.run.run_id, self.address, ", ".join(missed[:3]), f"{asked}, and no more")

    def _failed_before(self) -> bool:
        """Whether a step in here had failed for good in an earlier life: what came after it depended on that."""
        attempts = self.run.record.attempts
        return any(tries[-1].final and is_right_below(at, self._prefix) for at, tries in attempts.items())

    async def _say_replayed(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> None:
        address, name = recorded.address, name_of(step)
        changed = [key for key, means in step.means.items() if recorded.means.get(key, means) != means]
        if recorded.fingerprint != fingerprint:
            changed.insert(0, "question")
            self.run.journal.warn(f"{address} is finished and kept, though what it asks has changed (on_drift='keep')")
        about = {"kind": step.kind, "name": name, "step_type": step.label, "changed": tuple(changed)}
        more = {"address": address, "source_id": address, "source_name": name}
        await self.announce(
            step.voice.source, lambda stamp: events.StepReplayedEvent(**(stamp | more), **about), step.says
        )


def _stem(kind: str, name: str | None) -> str:
    return f"{kind}:{name}" if name else kind
