"""Run a step that has no recorded outcome: attempts until one succeeds or no remedy is left, then the commit.

The order is always the same: outcome, usage, events, intents and checkpoint in one commit; then the event is emitted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import starmap
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar, cast

from crewlite import events
from crewlite.attempt_hooks import AttemptInfo, hooked, hooks_here
from crewlite.concurrency.background import within
from crewlite.durable import Step, with_more
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.errors import CONTROL_FLOW, DeadlineExceeded, NotCodable, StateConflict
from crewlite.events.base import BaseEvent
from crewlite.ids import after, now, now_text
from crewlite.recovery import Abort
from crewlite.runtime.steps.attempts import beside_conflict, done_anew, following, next_attempt
from crewlite.runtime.steps.budgets import HeldBudget, admit, held, limited
from crewlite.runtime.steps.deciding import announce_success, remedied
from crewlite.runtime.steps.doubts import (
    asks_the_same,
    check_asks_the_same,
    doubt,
    given_by_person,
    intend,
    is_made_again,
    may_have_taken_effect,
    planned,
)
from crewlite.runtime.steps.failed_attempts import FailedAttempt, kept
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.once_results import NOTHING_EARLIER, Earlier, calls_before
from crewlite.runtime.steps.run import Origin
from crewlite.runtime.steps.slots import Slots
from crewlite.state.format import addresses
from crewlite.state.format.commit import CommitParts, StepRecord, invalidated
from crewlite.state.format.failed import SaidRecord
from crewlite.state.format.operations import Operation, applied
from crewlite.state.format.outcome import by_reference
from crewlite.state.journal.conflicts import Start
from crewlite.state.journal.view import View

T = TypeVar("T")
M = TypeVar("M")


class OutcomeFacts(NamedTuple):
    """What the commit of an outcome needs besides its value. The defaults are for an outcome that took no work."""

    changes: Sequence[Operation] = ()
    """The attempt's changes of the state."""
    conflicts: Sequence[str] = ()
    """The names in the state that concurrent steps changed, too."""
    frame: Frame | None = None
    attempt: int = 1
    milliseconds: float = 0.0
    reused: str | None = None
    """The step, of another run or an earlier attempt, whose result the outcome is. Its usage is not counted again."""


@dataclass(slots=True)
class Execution(Generic[T]):
    """The execution of one step. `outer`: the frame whose code requested it."""

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
    origin: Origin = field(init=False)
    """Where its events come from."""
    budgets: tuple[HeldBudget, ...] = ()

    async def outcome(self) -> tuple[T, OutcomeFacts]:
        """Make attempts until one succeeds or no remedy is left. Returns the outcome, and what its commit needs.

        Raises InDoubt, or the error of the last attempt.
        """
        run, step, address, outer = self.outer.run, self.step, self.address, self.outer
        if known := await self._prepared():
            return known
        number, past = next_attempt(run.record, address) if address in run.record.attempts else (1, [])
        states = run.journal.states
        view = states.begin(address, self.start)  # before the start is announced: its handlers may change the state
        announced = await self._announce_start()
        by_handlers = view.changes() if announced and address and states.common.used else ()
        while True:
            origin, failures = self.origin._replace(parent=self.started), run.record.attempts.get(address, ())
            frame = outer.child(step, origin, self.fingerprint, number, failures, past, view, self.budgets, self.slots)
            if failures and (anew := done_anew(run.record, failures[-1], frame.children.prefix)):
                await run.journal.save({"steps": [*starmap(invalidated, anew)]})
                run.unrequested_changes |= run.record.edited.keys() & {at for at, _ in anew}  # as on a resume
            clock = time.perf_counter()
            failed = kept(frame) if address in run.earlier.undecided else None  # that an earlier kickoff made
            try:
                value = failed.reported() if failed else await self._attempt(frame, number)
                failed = failed or (self._reported(frame, value, clock) if step.failure else None)
                changes, conflicts = self._changes(view) if states.common.used and failed is None else ((), ())
            except BaseException as error:  # the border: a failure is recorded, then raised unless a remedy is left
                frame.cut()  # what the attempt has left running begins no more steps
                if isinstance(error, CONTROL_FLOW) or not isinstance(error, Exception):
                    states.end(view)
                    raise
                failed = failed or self._raised(frame, error, clock)
            states.end(view, finished=failed is None)
            if failed is None:
                return value, OutcomeFacts(changes, conflicts, frame, number, _ms(clock))
            remedy = await remedied(frame, failed, number, past)
            if isinstance(remedy, Abort):  # this outcome reports the failure: without one, `remedied` raises
                return value, OutcomeFacts(frame=frame, attempt=number, milliseconds=failed.milliseconds)
            if isinstance(failed.error, StateConflict) and failed.error.address == address and outer.state:
                self.start = outer.state.newest_inside()
            run.once.leave(frame.children.prefix)
            await self._pause(remedy.after)
            number = following(run.record.attempts[address][-1])
            if not address:
                self.start = states.beginning
            view = states.begin(address, self.start, applied(self.start.values, by_handlers))

    def _reported(self, frame: Frame, value: T, clock: float) -> FailedAttempt | None:
        """Return the failure that an outcome reports, as a failed attempt; None if it reports none."""
        error = self.step.failure(value) if self.step.failure else None
        if error is None:
            return None
        return FailedAttempt(error, _ms(clock), self._said(frame), has_outcome=True, outcome=value)

    def _raised(self, frame: Frame, error: Exception, clock: float) -> FailedAttempt:
        usage = self.step.model_call.usage_of_failure() if self.step.model_call else None
        return FailedAttempt(error, _ms(clock), self._said(frame), usage=usage)

    async def _prepared(self) -> tuple[T, OutcomeFacts] | None:
        """Do what precedes the first attempt. Return an outcome that takes no work, if there is one."""
        run, step, address, inherited = self.outer.run, self.step, self.address, self.outer.inherited
        self.origin = self.outer.origin_of(step, address)
        if self.slots:
            await self.slots.take()
        in_doubt = address in run.earlier.doubts  # else, for speed, nothing is looked up for most steps
        if (in_doubt or step.cache or step.effect == "once") and (known := await self._without_work()):
            return known
        if step.own_state and address:
            self.start = Start({})
        elif address in run.record.attempts and (beside := beside_conflict(run.record, address)) and self.outer.state:
            self.start = self.outer.state.newest_inside(beside)
        if step.budgets:
            self.budgets = held(step.budgets, run, address, inherited.budgets)
        if inherited.budgets and step.kind.asks_model:
            await admit(step, inherited.budgets, self.outer.announce)
        return None

    async def _without_work(self) -> tuple[T, OutcomeFacts] | None:
        """Return an outcome that takes no work: a person's answer, a cached one or that of an earlier call; else None.

        Records the intent of a call with effect="once", which is then made. Raises InDoubt, NonDeterminism.
        """
        run, step, address = self.outer.run, self.step, self.address
        in_doubt = may_have_taken_effect(run, address)
        once = step.effect == "once" or (in_doubt and run.record.is_once(address))  # as it was begun
        if in_doubt:
            check_asks_the_same(run, step, address, self.fingerprint, self.outer.inherited.mode)
            if address in run.answers and step.answer:
                return given_by_person(run, step.answer, address), OutcomeFacts()
        earlier = await self._earlier_calls(in_doubt) if once else NOTHING_EARLIER
        origin = f"{run.run_id}/{run.branch}@"
        if made := earlier.made:
            return step.decode(run.record.value(made.address)), OutcomeFacts(made.changes, reused=origin + made.address)
        if earlier.answered and step.answer:
            return given_by_person(run, step.answer, earlier.answered), OutcomeFacts(reused=origin + earlier.answered)
        if step.cache and address not in run.rerun and (found := await run.cache.recall(step, step.cache, address)):
            return found.value, OutcomeFacts(found.changes, reused=found.origin)
        if once:
            await intend(run, step, address, self.fingerprint, earlier.released)
        return None

    async def _earlier_calls(self, in_doubt: bool) -> Earlier:
        """Return what earlier code has left of this call.

        `in_doubt`: whether the call itself is in doubt. Raises InDoubt about it, or about a call that earlier code left
        in doubt.
        """
        run, step, address = self.outer.run, self.step, self.address
        earlier = calls_before(self.outer, step, address, self.fingerprint)
        doubted = earlier.answered
        if doubted and step.answer and not run.record.is_inside(doubted):  # an outcome there would void an ended step
            await self._settle(doubted, given_by_person(run, step.answer, doubted))
            earlier = calls_before(self.outer, step, address, self.fingerprint)
        only_intended = bool(earlier.made or earlier.released)  # not in doubt: it waited for a decision
        if in_doubt and not only_intended and not is_made_again(run, address):
            failures, (number, _) = run.record.attempts.get(address, ()), next_attempt(run.record, address)
            last = self.outer.child(step, self.origin, self.fingerprint, number, failures)
            if kept(last) is None:  # else it has failed, and its remedy is chosen first
                raise doubt(step, address, run, None if asks_the_same(run.record, address, self.fingerprint) else "")
        return earlier

    async def _settle(self, address: str, value: T) -> None:
        """Record the result that a person gave for a call in doubt, so that it answers each later attempt."""
        _, data, _ = self._recordable(value)
        outcome: StepRecord = {**self._step_record(data, OutcomeFacts()), "address": address}
        await self.outer.run.journal.save({"steps": [outcome]}, now=True)

    async def _pause(self, delay: float) -> None:
        """Wait `delay` seconds, at most until the deadline. The step holds no slots meanwhile."""
        if self.slots:
            self.slots.leave()
        await asyncio.sleep(delay if (left := self._left()) is None else max(0.0, min(delay, left)))
        if self.slots:
            await self.slots.take()
        if self.step.kind.asks_model:
            await admit(self.step, self.outer.inherited.budgets, self.outer.announce)

    def _changes(self, view: View) -> tuple[Sequence[Operation], Sequence[str]]:
        """Return (an attempt's changes of the state, the names in them that concurrent steps changed, too).

        With on_conflict="error", raises StateConflict if there are such names.
        """
        changes, around = view.changes(), self.outer.children.view
        if self.step.own_state and self.address:
            return (), ()
        conflicts = around.conflicts(changes, self.start) if changes and around else ()
        if conflicts and around and self._can_be_put_together():
            changes, conflicts = around.put_together(changes, self.start)
        if conflicts and self.outer.run.journal.on_conflict == "error":
            raise StateConflict(self.address, conflicts)
        return changes, conflicts

    def _can_be_put_together(self) -> bool:
        """Return whether the changes of this step may be merged with those of concurrent steps.

        Not those of a step with a cache, which another run reuses as they are; nor those of a step that a fork has
        changed, as the recorded steps beside it may hold the changes that it made before.
        """
        edited = self.outer.run.record.edited
        return not self.step.cache and self.address not in edited.keys() | addresses.around(edited)

    def _attempt(self, frame: Frame, number: int) -> Awaitable[T]:
        """Return an awaitable of attempt `number`, with the hooks and limits around its work."""
        if around := hooks_here():
            return hooked(partial(self._limited, frame), around, self._info(number), frame.mask)
        if self.budgets or self.step.timeout is not None or self.step.deadline is not None:
            return self._limited(frame)
        return frame.work()

    def _limited(self, frame: Frame) -> Awaitable[T]:
        """Return an awaitable of an attempt's work. It raises once the time of the step or of a budget is up."""
        step, work = self.step, limited(frame.work(), self.budgets)
        if step.deadline is None:
            once = step.effect == "once"
            return work if step.timeout is None else within(work, step.timeout, step.title, once=once)
        late = DeadlineExceeded(step.title, step.deadline, self._first_start().isoformat(timespec="seconds"))
        return within(work, self._left() or 0.0, late)

    def _left(self) -> float | None:
        """Return the seconds until the deadline; None if there is none."""
        if self.step.deadline is None:
            return None
        begun = self._first_start()  # no more than `deadline`, even if the clock was set back since then
        return (after(begun, self.step.deadline) - max(now(), begun)).total_seconds()

    def _first_start(self) -> datetime:
        """Return when the step began first; for the root step, when the branch began."""
        run = self.outer.run
        branch = datetime.fromisoformat(run.record.started_at)
        if not self.address:
            return branch
        return max(branch, datetime.fromisoformat(run.first_starts.setdefault(self.address, now_text())))

    def _info(self, attempt: int) -> AttemptInfo:
        run, step = self.outer.run, self.step
        return AttemptInfo(run.run_id, run.branch, self.address, step.kind.name, self.origin.name, attempt)

    async def _announce_start(self) -> bool:
        """Emit the event of the start, and return whether handlers may have been called.

        A checkpoint that this event creates shows the run just before the step.
        """
        run, address = self.outer.run, self.address
        step_events, again = self.step.events, not address and run.earlier.heard_start
        said = with_more(step_events.started(), resumed=True) if address in run.earlier.begun else step_events.started()
        event = await run.publish(step_events.source, said, self.origin, ahead=True, again=again)
        self.started = event.event_id if event else None
        return isinstance(event, BaseEvent)  # it is only a note if it has no handler

    async def commit(self, value: T, facts: OutcomeFacts) -> T:
        """Commit an outcome, then emit its event, and return the outcome as the code gets it."""
        outer, step, inner = self.outer, self.step, facts.frame
        run, children = outer.run, outer.children
        usage = step.usage(value) if step.usage and not facts.reused else None
        if reported := self._said(inner) if inner and inner.children.sayings is not None else None:
            children.receive_sayings(self.address, reported)
        if children.view and facts.changes:
            children.view.commit(self.address, [(run.journal.next_order, facts.changes)])
        try:
            value, data, exact = self._recordable(value)
        except NotCodable as error:
            run.undurable(self.address, error)
            return outer.with_usage(step, self.address, value, usage)
        value = outer.with_usage(step, self.address, value, usage) if step.with_usage else value
        outcome = self._step_record(data, facts, usage, reported)
        commit: CommitParts = {"steps": [outcome]}
        if calls := step.intends(value) if step.intends else ():
            outcome |= {"calls": [call.address for call in calls]} if children.moved else {}
            at_once = [call for call in calls if call.address not in children.moved]  # others may wait for a decision
            commit |= planned(at_once, run, outer.inherited.mode)
        once = "once" in map(itemgetter(1), commit.get("intents", ()))
        if children.side_by_side:
            children.side_by_side.handover.committed(self.address, run.journal.next_order)
        more = {"reused_from": facts.reused} if facts.reused else {}
        said = with_more(step.events.completed(value), started_event_id=self.started, **more)
        await run.publish(step.events.source, said, self.origin, parts=commit, now=once)
        digest, drifted = outcome["digest"] if step.kind.heard else "", outcome.get("drifted", ())
        children.record_child(self.address, digest, data, drifted)
        if facts.conflicts and inner:
            names = {"names": tuple(facts.conflicts)}
            await inner.announce(step.events.source, events.StepStateConflictEvent, names)
        if inner and inner.past:
            await announce_success(inner)
        if step.cache and exact and self.started:  # done here: neither reused nor a person's answer
            run.cache.remember(step, step.cache, value, self.address, facts.changes)
        return value

    def _recordable(self, value: T) -> tuple[T, Json, bool]:
        """Return (an outcome as the code gets it, as it is recorded, whether no secret was masked in it).

        Raises NotCodable, also for a value that contains the text of a secret input.
        """
        step, run = self.step, self.outer.run
        data, passed = step.encode(value), run.journal.passed
        if passed and step.kind.holds_value and passed.mask_data(data) != data:
            raise NotCodable("", value, "it contains a secret input: return it without the secret")
        masked = run.journal.secrets.mask_data(data)
        if masked is not data and masked != data:
            run.journal.warn(
                f"The outcome of {run.called(self.address)} held a configured secret, which was masked", self.address
            )
            return step.decode(masked), masked, False
        if step.round_trip and not isinstance(value, codec.IMMUTABLE):
            value = step.decode(data)
        return value, data, True

    def _step_record(
        self, data: Json, facts: OutcomeFacts, usage: Json = None, said: SaidRecord | None = None
    ) -> StepRecord:
        step, frame, run = self.step, facts.frame, self.outer.run
        mode = (frame or self.outer).inherited.mode
        texts = frame.children.texts if frame else None
        outcome: StepRecord = {
            "address": self.address,
            "kind": step.kind.name,
            "fingerprint": self.fingerprint,
            "value": by_reference(data, texts) if texts else data,
            "digest": codec.digest(data),
            "ms": facts.milliseconds,
        }
        if facts.attempt > 1:
            outcome["attempt"] = facts.attempt
        if facts.reused:
            outcome["reused"] = facts.reused
        if frame:
            if frame.children.drifted:
                outcome["drifted"] = [*frame.children.drifted]
            if (run.resumed or run.on_drift == "rerun") and (unused := frame.unused()):
                outcome["unused"] = unused
        more: dict[str, Any] = {
            "means": mode.provenance(step),
            "label": step.label,
            "usage": usage,
            "state": [*facts.changes] if self.outer.children.view else (),
            "said": said,
            "question": self._masked({**step.texts}) if step.texts else None,
        }
        return cast(StepRecord, outcome | {name: part for name, part in more.items() if part})

    def _said(self, frame: Frame | None) -> SaidRecord | None:
        """Return the sayings of the attempt as they are recorded; None if no step listens for them."""
        return self._masked(frame.children.sayings.record()) if frame and frame.children.sayings is not None else None

    def _masked(self, data: M) -> M:
        return cast(M, self.outer.run.journal.secrets.mask_data(data))


def _ms(since: float) -> float:
    return round((time.perf_counter() - since) * 10_000) / 10  # faster than round(..., 1)
