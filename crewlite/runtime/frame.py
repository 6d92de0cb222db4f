"""A running step, as the code inside it sees it: where steps take addresses, are answered, executed and recorded.

    asked for ─► recorded, same question? ── yes ─► answer: no call, no cost, no side effect
                     │ no
                     └─► attempt ─► commit (outcome, usage, events, intents, place) ─► emit
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from crewlite import codec, durable
from crewlite.background import within
from crewlite.durable import Stamp, Step
from crewlite.errors import BranchConflictError, InDoubt, NotCodable, Redacted, StoreError, TaskDrifted
from crewlite.events.base import BaseEvent
from crewlite.events.types.step_events import StepReplayedEvent
from crewlite.state.entry import Facts
from crewlite.state.record import Attempt, Outcome, by_reference
from crewlite.state.subscriber import Setting

if TYPE_CHECKING:
    from crewlite.runtime.run import Run

T = TypeVar("T")
_SHORTEST_REFERENCE = 64  # characters; a shorter text is no longer than the reference to it
_LONGEST_TRACEBACK = 4000  # characters


class Frame:
    """One attempt of one step. The root's parent is a frame with no address."""

    __slots__ = (
        "_counts",
        "_fingerprint",
        "_heard",
        "_live",
        "_prefix",
        "_run",
        "_settings",
        "_started",
        "_texts",
        "address",
        "failed",
        "idempotency_key",
        "name",
    )

    def __init__(
        self,
        run: Run,
        address: str,
        name: str = "",
        *,
        attempt: int = 1,
        fingerprint: str = "",
        settings: tuple[Setting, ...] = (),
        started: str | None = None,
        live: bool = False,
    ) -> None:
        self._run = run
        self.address = address
        self.name = name
        self.idempotency_key = run.idempotency_key(address) if address else ""
        self.failed: tuple[str, BaseException] | None = None
        """The child step that failed last, and its error."""
        self._prefix = f"{address}!{attempt}/" if attempt > 1 else f"{address}/" if address else ""
        self._fingerprint = fingerprint
        self._settings = settings
        self._started = started
        self._live = live
        """Something before differs from the record, so the rest of it no longer applies."""
        self._counts: dict[str, int] = {}
        self._heard: dict[str, str] = {}
        """Digests of the outcomes of children, in the order they were asked for."""
        self._texts: dict[str, str] = {}
        """Long texts that children recorded, each with its address: what an outcome here refers to."""

    def take(self, kind: str, name: str | None = None) -> str:
        """The address of the next child step of this kind and name, in call order."""
        stem = f"{kind}:{name}" if name else kind
        count = self._counts[stem] = self._counts.get(stem, 0) + 1
        return f"{self._prefix}{stem}" if name and count == 1 else f"{self._prefix}{stem}#{count}"

    def step(self, step: Step[T]) -> Awaitable[T]:
        """Ask for a step. The address is taken now; the work happens when awaited."""
        address = self.take(step.kind, step.name) if step.address is None else step.address
        self._heard[address] = ""
        return self._drive(step, address, self._question(step))

    def in_doubt(self, address: str) -> bool:
        """Whether an earlier life of the run may have made this call already."""
        return not self._live and address in self._run.doubts

    def mask(self, text: str) -> str:
        """`text` without the secrets the run knows."""
        return self._run.journal.secrets.mask(text)

    async def announce(
        self, source: object, make: Callable[[Stamp], Any], says: tuple[Setting, ...] = ()
    ) -> str:
        """Say something that is no step's outcome. It rides with the next commit, unless it names a checkpoint."""
        run, settings = self._run, (*says, *self._settings)
        event: BaseEvent = make(self._stamp(self.address, self.name, self._started))
        if setting := run.subscriber.wants(event.type, settings):
            seq = run.journal.next_seq
            event = event.model_copy(update={"seq": seq})
            run.journal.ride(event)
            await run.journal.save(run.subscriber.place(event, setting, run.record, seq))
        else:
            run.journal.ride(event)
        run.emit(source, event)
        return event.event_id

    async def _drive(self, step: Step[T], address: str, fingerprint: str) -> T:
        recorded = self._run.record.outcomes.get(address)
        if recorded is not None and self._still_answers(step, recorded, fingerprint):
            value = self._run.record.value(address)
            self._hear(address, recorded.digest, value)
            await self._replayed(step, recorded, fingerprint)
            return step.decode(value)
        try:
            return await self._execute(step, address, fingerprint)
        except Exception as error:
            self.failed = (address, error)
            raise

    def _question(self, step: Step[Any]) -> str:
        """The digest of what is asked. A chained step also asks with everything its parent has heard so far."""
        if not step.chained:
            return codec.digest([step.kind, step.question])
        return codec.digest([step.kind, step.question, self._fingerprint, [d for d in self._heard.values() if d]])

    def _still_answers(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> bool:
        if self._live or recorded.address in self._run.rerun:
            return False
        if recorded.fingerprint == fingerprint or step.drift == "keep":
            return True
        if step.drift == "error":
            raise TaskDrifted(self._run.run_id, recorded.address)
        if step.drift == "live":
            self._live = True
        return False

    async def _replayed(self, step: Step[Any], recorded: Outcome, fingerprint: str) -> None:
        changed = [name for name, means in step.means.items() if recorded.means.get(name, means) != means]
        if recorded.fingerprint != fingerprint:
            changed.insert(0, "question")
            self._run.warn(f"{recorded.address} is finished and kept, though what it asks has changed (on_drift='keep')")
        await self.announce(
            step.voice.source,
            lambda stamp: StepReplayedEvent(
                **{**stamp, "address": recorded.address, "source_id": recorded.address, "source_name": _name(step)},
                kind=step.kind,
                name=_name(step),
                changed=tuple(changed),
            ),
            step.says,
        )

    async def _execute(self, step: Step[T], address: str, fingerprint: str) -> T:
        run = self._run
        if self.in_doubt(address):
            if address in run.answers and step.answer:
                return await self._record(step, address, fingerprint, 1, step.answer(run.answers[address]), 0.0, None)
            if step.effect == "once" and address not in run.rerun:
                raise InDoubt(address, f"{step.kind} {step.name or ''}".strip())
        if step.effect == "once" and address not in run.record.intents:
            await run.journal.save({"intents": [[address, step.effect]]})
        number, failures = _next_attempt(run.record.attempts.get(address, []), root=not address)
        settings = (*step.says, *self._settings)
        started = await self._begin(step, address, settings)
        while True:
            frame = Frame(
                run,
                address,
                _name(step),
                attempt=number,
                fingerprint=fingerprint,
                settings=settings,
                started=started,
                live=self._live or address in run.rerun,
            )
            clock = time.perf_counter()
            try:
                with durable.entered(frame):
                    value = await within(step.work(), step.timeout, f"{step.kind} {step.name or ''}".strip())
            except (StoreError, BranchConflictError):
                raise  # the record failed, not the step
            except Exception as error:
                spent = (time.perf_counter() - clock) * 1000
                delay = step.remedies.delay(error, failures, address) if step.remedies else None
                shown = run.presentable(error)
                await self._record_failure(step, frame, number, shown, spent, final=delay is None)
                if delay is None and shown is error:
                    raise
                if delay is None:
                    raise shown from None
                await asyncio.sleep(delay)
                number, failures = number + 1, failures + 1
            else:
                spent = (time.perf_counter() - clock) * 1000
                return await self._record(step, address, fingerprint, number, value, spent, started, frame)

    async def _begin(self, step: Step[Any], address: str, settings: tuple[Setting, ...]) -> str | None:
        """Emit the start. A checkpoint at a start is the place just before the step. Returns the event's id."""
        run = self._run
        stamp = self._stamp(address, _name(step), self._started, resumed=address in run.begun)
        event: BaseEvent | None = step.voice.started(stamp)
        if event is None:
            return None
        if setting := run.subscriber.wants(event.type, settings):
            await run.journal.save(run.subscriber.place(event, setting, run.record, run.journal.next_seq))
        run.journal.ride(event)
        run.emit(step.voice.source, event)
        return event.event_id

    async def _record(
        self,
        step: Step[T],
        address: str,
        fingerprint: str,
        attempt: int,
        value: T,
        milliseconds: float,
        started: str | None,
        frame: Frame | None = None,
    ) -> T:
        """Commit an outcome, then let everybody hear of it."""
        run = self._run
        try:
            data = step.encode(value)
        except NotCodable as error:
            run.undurable(address, error)
            return value
        usage = step.usage(value) if step.usage else None
        masked = run.journal.secrets.mask_data(data)
        if masked is not data and masked != data:
            run.warn(f"The outcome of {address} held a configured secret, which was masked")
            data, value = masked, step.decode(masked)
        digest = codec.digest(data)
        facts: Facts = {
            "address": address,
            "kind": step.kind,
            "fingerprint": fingerprint,
            "value": by_reference(data, frame._texts) if frame else data,
            "digest": digest,
            "ms": round(milliseconds, 1),
        }
        if attempt > 1:
            facts["attempt"] = attempt
        if usage:
            facts["usage"] = usage
        if step.means:
            facts["means"] = step.means
        intents = [[intent.address, intent.effect] for intent in step.intends(value)] if step.intends else []
        await self._say_recorded(step, address, {"steps": [facts]} | ({"intents": intents} if intents else {}), value, started)
        self._hear(address, digest, data)
        return value

    async def _say_recorded(
        self, step: Step[T], address: str, facts: Facts, value: T, started: str | None
    ) -> None:
        run, seq = self._run, self._run.journal.next_seq
        stamp = self._stamp(address, _name(step), self._started, seq=seq, started_event_id=started)
        event: BaseEvent | None = step.voice.completed(stamp, value)
        if event is not None:
            run.journal.ride(event)
            if setting := run.subscriber.wants(event.type, (*step.says, *self._settings)):
                facts |= run.subscriber.place(event, setting, run.record, seq)
        await run.journal.save(facts)
        if event is not None:
            run.emit(step.voice.source, event)

    async def _record_failure(
        self, step: Step[Any], frame: Frame, number: int, error: Exception, milliseconds: float, *, final: bool
    ) -> None:
        """Commit a failed attempt. The last one is also announced."""
        run = self._run
        cause = frame.failed[0] if frame.failed and frame.failed[1] in (error, error.__cause__) else None
        facts: Facts = {
            "address": frame.address,
            "kind": step.kind,
            "attempt": number,
            "ms": round(milliseconds, 1),
            "error": {
                "type": _type(error),
                "message": str(error),
                "traceback": _traceback(error) if cause is None else "",
                "cause": cause,
                "final": final,
            },
        }
        commit: Facts = {"steps": [facts]}
        event: BaseEvent | None = None
        if final:
            more = {"seq": run.journal.next_seq, "started_event_id": frame._started}
            stamp = self._stamp(frame.address, _name(step), self._started, **more)
            event = step.voice.failed(stamp, str(error), _type(error))
        if event is not None:
            run.journal.ride(event)
            if setting := run.subscriber.wants(event.type, (*step.says, *self._settings)):
                commit |= run.subscriber.place(event, setting, run.record, run.journal.next_seq)
        await run.journal.save(commit)
        if event is not None:
            run.emit(step.voice.source, event)

    def _hear(self, address: str, digest: str, data: Any) -> None:
        self._heard[address] = digest
        text = data.get("text") if isinstance(data, dict) else None
        if isinstance(text, str) and len(text) >= _SHORTEST_REFERENCE:
            self._texts.setdefault(text, address)

    def _stamp(self, address: str, name: str, parent: str | None, **more: Any) -> Stamp:
        return {
            "run_id": self._run.run_id,
            "branch": self._run.branch,
            "address": address,
            "source_id": address,
            "source_name": name,
            "parent_event_id": parent,
            **more,
        }


def _next_attempt(past: list[Attempt], *, root: bool) -> tuple[int, int]:
    """The number of the attempt to make, and how many failures its budget has to bear.

    A resume after giving up starts a new budget. It goes on with the old attempt where a child step failed, which can
    run again; what failed on finished children needs a new attempt, with new children. The root has one attempt.
    """
    if not past or root:
        return 1, 0
    last = past[-1]
    number = last.number if last.final and last.cause is not None else last.number + 1
    given_up = max((i + 1 for i, attempt in enumerate(past) if attempt.final), default=0)
    return number, len(past) - given_up


def _name(step: Step[Any]) -> str:
    return step.name or step.kind


def _type(error: Exception) -> str:
    return error.error_type if isinstance(error, Redacted) else type(error).__qualname__


def _traceback(error: Exception) -> str:
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"
