"""Run a step that has no recorded outcome: attempts until one succeeds or no remedy is left, then the commit.

The order is always the same: outcome, usage, events, intents and checkpoint in one commit; then the event is emitted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import starmap
from typing import Any, Generic, TypeVar, cast

from crewlite import codec, events
from crewlite.attempt_hooks import AttemptInfo, hooked, hooks_here
from crewlite.background import within
from crewlite.codec import Json
from crewlite.durable import Step
from crewlite.errors import CONTROL_FLOW, DeadlineExceeded, NotCodable, StateConflict, ends_run
from crewlite.events.base import BaseEvent
from crewlite.ids import now, now_text
from crewlite.recovery import Abort, Remedy
from crewlite.runtime.steps import remedies
from crewlite.runtime.steps.attempts import beside_conflict, following, next_attempt
from crewlite.runtime.steps.budgets import HeldBudget, admit, held, limited
from crewlite.runtime.steps.causes import message_of, type_of
from crewlite.runtime.steps.deciding import Decided, announce_end, announce_success, decided, started
from crewlite.runtime.steps.doubts import doubt, intended, is_made_again, kind_and_name, may_have_been_made
from crewlite.runtime.steps.failed_attempts import FailedAttempt, described, kept
from crewlite.runtime.steps.failures import written
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.run import EventStamp
from crewlite.runtime.steps.slots import Slots
from crewlite.runtime.steps.work import Ended, work_in_full
from crewlite.state.format.commit import CommitParts, StepRecord, invalidated
from crewlite.state.format.failed import SaidRecord
from crewlite.state.format.operations import Operation, applied
from crewlite.state.format.outcome import recorded_remedy
from crewlite.state.journal.conflicts import Start
from crewlite.state.journal.view import View
from crewlite.state.subscriber import Setting

T = TypeVar("T")
M = TypeVar("M")
_RESUMED = {"resumed": True}


@dataclass(slots=True)
class Execution(Generic[T]):
    """The execution of one step, requested by the code of `outer`."""

    outer: Frame
    step: Step[T]
    address: str
    fingerprint: str
    slots: Slots | None
    """The slots that an attempt holds while it runs, released between two attempts; None without limits."""
    start: Start
    """The state of the run with which the step begins."""
    started: str | None = None
    """The id of the event that announced the start."""
    settings: tuple[Setting, ...] = ()
    budgets: tuple[HeldBudget, ...] = ()

    async def run(self) -> T:
        """Run the step, record its outcome and return it. Raises InDoubt, or the error of the last attempt.

        Makes attempts until one succeeds or no remedy is left.
        """
        run, step, address, outer = self.outer.run, self.step, self.address, self.outer
        if known := await self._prepared():
            return await self._succeed(*known)
        once, number, past = self._next()
        states = run.journal.states
        view = states.begin(address, self.start)  # handlers of the start may change it
        told = await self._begin()
        remedy: Remedy | None
        heard = view.changes() if told and address and states.shared.used else ()  # the changes of these handlers
        while True:
            frame = self._frame(number, view, past, once=once)
            clock = time.perf_counter()
            earlier = kept(step, frame) if address in run.undecided else None
            try:
                value, failed = earlier.again() if earlier else (await self._attempt(frame, number), None)
                if step.failure and not earlier and (reported := step.failure(value)):
                    failed = FailedAttempt(reported, _ms(clock), self._said(frame), told=True, outcome=value)
                changes, conflicts = self._changes(view) if states.shared.used and failed is None else ((), ())
            except BaseException as error:  # the border: a failure is recorded, then raised unless a remedy is left
                frame.cut()  # what it has left behind begins nothing more
                states.end(view)
                if isinstance(error, CONTROL_FLOW) or not isinstance(error, Exception):
                    raise
                failed = earlier or FailedAttempt(error, _ms(clock), self._said(frame))
                remedy = await self._failed(frame, failed, number, past)
                if isinstance(error, StateConflict) and error.address == address and outer.state:
                    self.start = outer.state.newest_inside()
            else:
                took = failed.milliseconds if failed else _ms(clock)
                states.end(view, finished=failed is None)
                remedy = await self._failed(frame, failed, number, past) if failed else None
                if remedy is None or isinstance(remedy, Abort):
                    return await self._succeed(value, Ended(changes, conflicts, frame, number, took))
            await self._pause(remedy.after)
            number = following(run.record.attempts[address][-1])
            if not address:
                self.start = states.beginning
            view = states.begin(address, self.start, applied(self.start.values, heard))

    async def _prepared(self) -> tuple[T, Ended] | None:
        """Do what precedes the first attempt. Return an outcome that takes no work, if there is one (see `_known`)."""
        run, step, address, inherited = self.outer.run, self.step, self.address, self.outer.inherited
        self.settings = step.checkpoint_settings + inherited.settings
        if self.slots:
            await self.slots.take()
        if (address in run.doubts or step.cache or step.effect == "once") and (known := await self._known()):
            return known
        if step.own_state and address:
            self.start = Start({})
        elif address in run.record.attempts and (beside := beside_conflict(run.record, address)) and self.outer.state:
            self.start = self.outer.state.newest_inside(beside)
        if step.budgets:
            self.budgets = held(step.budgets, run, address)
        if inherited.budgets and step.kind.asks_model:
            await admit(step, inherited.budgets, self.outer.announce)
        return None

    async def _known(self) -> tuple[T, Ended] | None:
        """Return an outcome that takes no work: a person's answer, or a cached one; None without one.

        A call with effect="once" is recorded as intended before it is made. Raises InDoubt.
        """
        run, step, address = self.outer.run, self.step, self.address
        if may_have_been_made(run, address):
            if address in run.answers and step.answer:
                return step.answer(run.answers[address]), Ended()
            if step.effect == "once" and not is_made_again(run, address):
                once, number, _ = self._next()
                if kept(step, self._frame(number, once=once)) is None:  # else it waits for its remedy
                    raise doubt(step, address, run)
        if step.cache and address not in run.rerun and (found := await run.cache.recall(step, step.cache, address)):
            return found.value, Ended(found.changes, reused=found.origin)
        if step.effect == "once":
            intent = intended(step, address, self.outer.mask)
            if address not in run.record.intents:
                await run.journal.save(intent, now=True)
            if is_made_again(run, address):  # what is cut from here on is another doubt
                await run.journal.save(intent, now=True)
            await run.journal.assured()
        return None

    async def _pause(self, delay: float) -> None:
        """Wait until the next attempt may begin."""
        if self.slots:
            self.slots.leave()
        await asyncio.sleep(delay if (left := self._left()) is None else max(0.0, min(delay, left)))
        if self.slots:
            await self.slots.take()
        if self.step.kind.asks_model:
            await admit(self.step, self.outer.inherited.budgets, self.outer.announce)

    def _next(self) -> tuple[bool, int, list[Remedy]]:
        """Return (`once` of `next_attempt`, the next attempt's number, the remedies charged to the step's budget)."""
        record, once = self.outer.run.record, not self.address and not self.step.kind.begins_anew
        tries = record.attempts.get(self.address)
        return once, *(next_attempt(tries, record.base, once=once) if tries else (1, []))

    def _changes(self, view: View) -> tuple[Sequence[Operation], Sequence[str]]:
        """Return (an attempt's changes of the state, the names that concurrent steps changed as well).

        With on_conflict="error", raises StateConflict if there are such names.
        """
        changes, around = view.changes(), self.outer.children.view
        if self.step.own_state and self.address:
            return (), ()
        conflicts = around.conflicts(changes, self.start) if changes and around else ()
        if conflicts and self.outer.run.journal.on_conflict == "error":
            raise StateConflict(self.address, conflicts)
        return changes, conflicts

    def _frame(self, attempt: int, view: View | None = None, past: Sequence[Remedy] = (), *, once: bool) -> Frame:
        """Build the frame of one attempt. `once`: see next_attempt."""
        tries = self.outer.run.record.attempts.get(self.address)
        inside = remedies.place(tries, attempt, once=once) if tries else attempt
        frame = self.outer.child(self.step, self.address, self.settings, inside, self.budgets, self.slots)
        frame.started, frame.fingerprint, frame.past = self.started, self.fingerprint, tuple(past)
        frame.children.view = view
        if tries and remedies.goes_on(tries):
            frame.go_on_otherwise()
        return frame

    def _attempt(self, frame: Frame, number: int) -> Awaitable[T]:
        """Return the awaitable of attempt `number`, with the hooks and limits around its work."""
        if around := hooks_here():
            return hooked(partial(self._limited, frame), around, self._info(number))
        if self.budgets or self.step.timeout is not None or self.step.deadline is not None:
            return self._limited(frame)
        return work_in_full(self.step, frame)

    def _limited(self, frame: Frame) -> Awaitable[T]:
        """Return the awaitable of an attempt's work, which raises once its time or that of a budget is up."""
        step, work = self.step, limited(work_in_full(self.step, frame), self.budgets)
        if step.deadline is None:
            once = step.effect == "once"
            return work if step.timeout is None else within(work, step.timeout, kind_and_name(step), once=once)
        late = DeadlineExceeded(kind_and_name(step), step.deadline, self._begun().isoformat(timespec="seconds"))
        return within(work, self._left() or 0.0, late)

    def _left(self) -> float | None:
        """Return the seconds until the deadline; None if there is none."""
        if self.step.deadline is None:
            return None
        return (self._begun() + timedelta(seconds=self.step.deadline) - now()).total_seconds()

    def _begun(self) -> datetime:
        """Return the time at which the step began first; for the root step, the time at which the branch began."""
        run = self.outer.run
        branch = datetime.fromisoformat(run.record.started_at)
        if not self.address:
            return branch
        return max(branch, datetime.fromisoformat(run.first_starts.setdefault(self.address, now_text())))

    def _info(self, attempt: int) -> AttemptInfo:
        """Return the information about an attempt that hooks get."""
        run, step = self.outer.run, self.step
        return AttemptInfo(run.run_id, run.branch, self.address, step.kind.name, step.title, attempt)

    async def _failed(self, frame: Frame, failed: FailedAttempt, attempt: int, past: list[Remedy]) -> Remedy:
        """Choose the remedy for a failed attempt, and record the failure and the remedy.

        Without a remedy the error is raised, unless the step has an outcome that reports the failure: then nothing is
        recorded or raised.
        """
        decision = await decided(self.outer, self.step, frame, failed, past)
        remedy = decision.remedy
        if not (failed.told and decision.error is failed.error and remedy == Abort(type=remedy.type)):
            if decision.final:
                await announce_end(self.outer, self.step, self.address, decision, past)
            past.append(remedy)
            await self._fail(frame, decision, attempt, failed)
        return remedy

    async def _begin(self) -> bool:
        """Emit the event of the start, and return whether handlers may have been called.

        A checkpoint that this event creates shows the run just before the step.
        """
        run, address = self.outer.run, self.address
        stamp = self._stamp(_RESUMED if address in run.begun else None)
        event: BaseEvent | None = self.step.voice.started(stamp)
        if event is None:
            return False
        again = not address and run.heard_start
        await run.publish(self.step.voice.source, event, stamp.setting, ahead=True, again=again)
        self.started = event.event_id
        return isinstance(event, BaseEvent)  # not an UnheardEvent

    async def _succeed(self, value: T, ended: Ended) -> T:
        """Commit an outcome, then emit its event, and return the outcome."""
        run, step, inner, around = self.outer.run, self.step, ended.frame, self.outer.children.view
        usage = step.usage(value) if step.usage and not ended.reused else None
        if said := self._said(inner):
            self.outer.hear(self.address, said)
        if around and ended.changes:
            around.commit(self.address, [(run.journal.next_order, ended.changes)])
        try:
            data = self._encoded(value)
        except NotCodable as error:
            run.undurable(self.address, error)
            return self.outer.with_usage(step, self.address, value, usage)
        masked = run.journal.secrets.mask_data(data)
        exact = masked is data or bool(masked == data)
        if not exact:
            run.journal.warn(f"The outcome of {self.address} held a configured secret, which was masked")
            data, value = masked, step.decode(masked)
        elif step.round_trip and not isinstance(value, codec.IMMUTABLE):
            value = step.decode(data)
        value = self.outer.with_usage(step, self.address, value, usage)
        outcome = self._outcome(data, ended, usage, said)
        commit: CommitParts = {"steps": [outcome]}
        intents = [(intent.address, str(intent.effect)) for intent in step.intends(value)] if step.intends else ()
        if intents:
            commit["intents"] = [*intents]
        once = "once" in dict(intents).values()
        stamp = self._end_stamp({"reused_from": ended.reused} if ended.reused else {})
        self.outer.children.committing(self.address, run.journal)
        event = step.voice.completed(stamp, value)
        await run.publish(step.voice.source, event, stamp.setting, commit, now=once)
        digest, drifted = outcome["digest"] if step.kind.heard else "", outcome.get("drifted", ())
        self.outer.children.record_child(self.address, digest, data, drifted)
        if ended.conflicts and inner:
            await inner.announce(
                step.voice.source,
                lambda stamp: stamp(events.StepStateConflictEvent, names=tuple(ended.conflicts)),
                step.checkpoint_settings,
            )
        if inner and inner.past:
            await announce_success(self.outer, step, self.address, inner.past)
        if step.cache and exact and self.started:  # it was done here: neither reused, nor told by a person
            run.cache.remember(step, step.cache, value, self.address, ended.changes)
        return value

    def _encoded(self, value: T) -> Json:
        """Encode an outcome. Raises NotCodable, also for a value that contains the text of a secret input."""
        data: Json = self.step.encode(value)
        passed = self.outer.run.journal.passed
        if passed and self.step.kind.holds_value and passed.mask_data(data) != data:
            raise NotCodable("", value, "it contains a secret input: return it without the secret")
        return data

    def _outcome(self, data: Json, ended: Ended, usage: Json, said: SaidRecord | None) -> StepRecord:
        """Build the record of an outcome with this value."""
        outcome = ended.outcome(self.step, self.address, self.fingerprint, data)
        if usage:
            outcome["usage"] = usage
        if ended.changes and self.outer.children.view:
            outcome["state"] = [*ended.changes]
        if said:
            outcome["said"] = said
        if self.step.texts:
            outcome["question"] = self._masked(dict(self.step.texts))
        return outcome

    async def _fail(self, frame: Frame, decision: Decided, attempt: int, failed: FailedAttempt) -> None:
        """Commit a failed attempt with its remedy and emit its event. If it was the last attempt, raise the error."""
        step, error, said, milliseconds = self.step, decision.error, failed.said, failed.milliseconds
        final, shown = decision.final, self.outer.run.presentable(error)
        thrown = decision.raised(frame, shown)
        known = failed.described if error is failed.error else None
        attempted: StepRecord = {
            "address": self.address,
            "kind": step.kind.name,
            "attempt": attempt,
            "ms": milliseconds,
            "error": {**(known or described(step, frame, error)), "failure": decision.kind, "final": final},
        }
        if decision.kind:
            attempted["error"]["remedy"] = self._masked(recorded_remedy(decision.remedy))
        if said:
            attempted["error"]["said"] = said
        asked_again = self.outer.inherited.mode.strict_replay or decision.rises
        if final and asked_again:
            attempted["fingerprint"] = self.fingerprint
            self.outer.children.committing(self.address, self.outer.run.journal)
        if final and (asked_again or not self.address):  # those who wait for the run hear of the root's failure
            attempted["error"]["raised"] = self._masked(written(thrown))
            if self.address and not decision.rises and not ends_run(thrown):
                self.outer.run.incomplete(self.address, step.title, attempted["error"]["raised"])
        stamp, told = self._end_stamp({}), {"error": message_of(shown), "error_type": type_of(shown)}
        if final:
            event: BaseEvent | None = step.voice.failed(stamp, **told)
            if isinstance(event, events.StepFailedEvent):
                event = event.model_copy(update={"attempt": attempt, "duration_ms": milliseconds})
        else:
            begun = started(self.outer, step, self.address, decision)
            event = stamp(events.RecoveryStartedEvent, **told, **begun, duration_ms=milliseconds)
        commit: CommitParts = {"steps": [*starmap(invalidated, decision.void), attempted]}
        await self.outer.run.publish(step.voice.source, event, stamp.setting, commit)
        if final:
            self.outer.hear(self.address, said)
            if thrown is error:
                raise error  # with its own cause
            raise thrown from (None if thrown is shown else shown)

    def _said(self, frame: Frame | None) -> SaidRecord | None:
        """Return what the attempt reported about its work, as it is recorded; None if no step listens for that."""
        return self._masked(frame.sayings.record()) if frame and frame.sayings is not None else None

    def _masked(self, data: M) -> M:
        return cast(M, self.outer.run.journal.secrets.mask_data(data))

    def _stamp(self, more: Mapping[str, Any] | None) -> EventStamp:
        outer = self.outer
        return EventStamp(outer.run, self.address, self.step.title, outer.started, self.settings, more)

    def _end_stamp(self, more: Mapping[str, Any]) -> EventStamp:
        """Return the stamp of an event that the next commit records."""
        return self._stamp({"seq": self.outer.run.record.seq + 1, "started_event_id": self.started, **more})


def _ms(since: float) -> float:
    return round((time.perf_counter() - since) * 10_000) / 10  # whole numbers are rounded faster
