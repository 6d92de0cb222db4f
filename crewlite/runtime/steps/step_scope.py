"""The scope of a running step: it gives the steps that its code requests their addresses, and answers or executes them.

requested ─► recorded, asked the same? ── yes ─► answer: no call, no cost, no side effect
                 │ no
                 └─► execute (execution.py): attempt ─► commit ─► emit
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Collection
from typing import Any, NamedTuple, TypeVar

from crewlite.concurrency.blocked_loops import has_ready
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import CONTROL_FLOW, NOT_TO_SWALLOW
from crewlite.events.base import BaseEvent
from crewlite.runtime.steps import once_addresses, replay, replayed
from crewlite.runtime.steps.doubts import is_comparable
from crewlite.runtime.steps.execution import Execution
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.keyed import key_here
from crewlite.runtime.steps.mode import MAY_DIFFER, RESTS_ON, Basis, StepQuestion
from crewlite.runtime.steps.once_results import request_inside
from crewlite.runtime.steps.remedies import unapplied, void
from crewlite.runtime.steps.replay import EXECUTE, Execute, Refuse, Reraise, Reuse
from crewlite.runtime.steps.siblings import OnEnd
from crewlite.runtime.steps.slots import Slots
from crewlite.state.format.outcome import Attempt
from crewlite.state.journal.conflicts import Start
from crewlite.step_parts import Call, Recorded
from crewlite.texts import tracebacks

T = TypeVar("T")


class StepRequest(NamedTuple):
    """A request for a step, with what a step needs of the moment at which code requested it."""

    address: str
    fingerprint: str
    """The digest of the step's question."""
    start: Start
    """The state of the run with which the step begins."""
    stopping: Exception | None
    """The error that is stopping the run, so that no new step may begin; None if none is."""
    in_own_task: bool = False
    """Whether the step runs in a task of its own, whose awaiter gets the outcome or the failure."""


class StepScope(Frame):
    """One attempt at a step (a frame), in which its code requests child steps."""

    __slots__ = ()

    @property
    def streamed(self) -> bool:
        """See `durable.Scope`."""
        return self.inherited.streamed

    def reserve_address(self, kind: str, name: str | None = None, once: codec.Json = None) -> str:
        """See `durable.Scope`."""
        address, recorded = self.children.next(kind, name), self.children.recorded_calls
        if recorded is not None:
            found = next(recorded, address)
            if once is None or once_addresses.may_keep(self, found, once):
                return once_addresses.note_address(self, address, found)
        return address if once is None else once_addresses.address_of(self, address, once)

    def expect(self, address: str) -> None:
        """See `durable.Scope`."""
        children = self.children
        children.asked.setdefault(address, None)
        if children.stop.received is None:
            children.stop = children.stop._replace(exempt=children.stop.exempt | {address})

    def _note_request(self, step: Step[Any], start: Start | None = None) -> StepRequest:
        """Note the request for a step, and return it with the step's address. `start`: see `Scope.spawn`."""
        children, asked = self.children, [step.kind.name, step.question]
        if step.chained:  # the digest includes the parent's question and its outcomes so far
            asked += [self.fingerprint, list(filter(None, children.asked.values()))]
        fingerprint = codec.digest(asked)
        address = self._next_address(step, fingerprint) if step.address is None else step.address
        if step.intends:
            children.recorded_calls = None
        stopping = None if step.kind.asks_person or address in children.stop.exempt else children.stop.received
        children.asked[address] = None
        if children.sayings is not None:
            children.sayings.expect(address)
        if step.compensate:
            children.compensators[address] = step.compensate
            self.run.compensable.add(address)
        children.unrequested.discard(address)
        self.run.unrequested_changes.discard(address)
        if step.effect == "once":
            self.run.once.request(address)
        if (view := children.view) and self.run.journal.states.common.used:
            start = start or view.start_inside()
            view.note_request(address, start)
        return StepRequest(address, fingerprint, start or (view.start if view else self.start_inside()), stopping)

    def _next_address(self, step: Step[Any], fingerprint: str) -> str:
        children = self.children
        if step.name and step.kind.takes_key and (key := key_here(self)):
            address = children.keyed(step.kind.name, step.name, key)
        elif self._in_order(step):
            address = children.next(step.kind.name, step.name)
        else:
            address = children.address_beside(step, fingerprint, recorded=self.run.recorded, ended=self.has_ended)
        once = step.effect == "once" and is_comparable(step)
        return once_addresses.address_of(self, address, step.question) if once else address

    def _in_order(self, step: Step[Any]) -> bool:
        """Return whether the step's own coroutine makes this request. Tasks beside it make requests in any order."""
        if step.chained or (step.kind.asks_person and step.name):
            return True
        return not ((self.inherited.mode.strict_replay or step.kind.asks_model) and self.is_beside)

    def addressed(self, step: Step[T]) -> Step[T]:
        """Return the step with its address set. This counts as the request for the step."""
        return dataclasses.replace(step, address=self._note_request(step).address)

    def step(self, step: Step[T]) -> Awaitable[T]:
        """See `durable.Scope`."""
        return self._drive(step, self._note_request(step))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """See `durable.Scope`."""
        return self.run.journal.loop

    def spawn(self, step: Step[T], start: Start | None = None, ended: OnEnd | None = None) -> asyncio.Task[T]:
        """See `durable.Scope`."""
        return self._begin(step, self._note_request(step, start), ended)

    def _begin(self, step: Step[T], asked: StepRequest, ended: OnEnd | None = None) -> asyncio.Task[T]:
        work = self._drive(step, asked._replace(in_own_task=True))
        return self.children.siblings().begin(work, asked.address, ended)

    def hand_over(self, task: asyncio.Task[Any]) -> None:
        """See `durable.Scope`."""
        if task.done():
            self._deliver(task.get_name())

    def _deliver(self, address: str) -> None:
        """Apply a step's changes of the state, as the code receives the step's result now."""
        if (view := self.children.view) and self.run.journal.states.common.used:
            view.deliver(address)
        elif view:  # without changes, needs no lock
            view.handed[address] = None

    def mark_awaited(self, task: asyncio.Task[Any]) -> None:
        """See `durable.Scope`."""
        if self.children.side_by_side:
            self.children.side_by_side.mark_awaited(task)
        error = task.exception() if task.done() and not task.cancelled() else None
        if isinstance(error, NOT_TO_SWALLOW):
            self.children.stop = self.children.stop._replace(received=error)

    def calls(self, kind: str, names: Collection[str]) -> list[Call]:
        """See `durable.Scope`."""
        record = self.run.record
        begun = self.run.begun_calls.of(record, kind, names)
        ended = sorted((record.outcomes[at].seq, at) for at in begun if at in record.outcomes)
        found = [Call(at, record.value(at), record.outcomes[at].fingerprint) for _, at in ended]
        return found + [Call(at) for at in begun if at not in record.outcomes]

    def recorded(self, address: str) -> Recorded | None:
        """See `durable.Scope`."""
        outcome = self.run.record.outcomes.get(address)
        if outcome is None or self.inherited.mode.diverged:
            return None
        return Recorded(outcome.seq, outcome.order, outcome.at, outcome.edited)

    def hears(self, event: type[BaseEvent]) -> bool:
        """See `durable.Scope`."""
        return self.run.hears(event, self.origin.checkpoints)

    async def _drive(self, step: Step[T], asked: StepRequest) -> T:
        """Return a step's outcome from the record, or run the step."""
        address = asked.address
        in_commit_order = asked.in_own_task or step.chained  # no step of an agent runs beside a call of its model
        if not in_commit_order and (self.in_other_task or await self._others_first(address)):
            return await self.as_task(step, asked)
        if self.run.journal.closed:  # requested by work that was abandoned in a thread
            raise self.run.journal.ended()
        self.children.asked[address] = ""
        step = self._on_its_basis(step, address) if step.rests_on_more else step
        try:
            decision = self._decide(step, asked)
            if isinstance(decision, Reuse):
                return await self._replayed(step, decision, asked)
        except NOT_TO_SWALLOW as error:
            self._note_stop(error, asked)
            raise
        if isinstance(decision, Reraise):
            raise await self._failed_again(step, decision.failure, asked)
        self._admit(step, asked, diverges=decision.diverges)
        if prepare := self.children.before_first:
            self.children.before_first = None
            await prepare()
        limits = () if step.kind.waits else self.inherited.limits + step.limits
        slots = Slots(self.run.pools, address, limits, self.inherited.slots) if limits else None
        try:
            execution = Execution(self, step, address, asked.fingerprint, slots, asked.start)
            return await execution.commit(*await execution.outcome())
        except Exception as error:
            await self._failed(error, asked)
            raise
        finally:
            if slots:
                slots.leave()
            if not asked.in_own_task:
                self._deliver(address)

    def _on_its_basis(self, step: Step[T], address: str) -> Step[T]:
        """Return the step with the digest of its basis in its provenance."""
        if not (digest := self.basis(address).digest):
            return step
        return dataclasses.replace(step, provenance={**(step.provenance or {}), RESTS_ON: digest})

    def _admit(self, step: Step[Any], asked: StepRequest, *, diverges: bool) -> None:
        """Raise the error that is stopping the run, or the failure whose remedy an enclosing step has yet to apply.

        If neither is raised, the step runs, and its recorded outcome becomes void. If it diverges, so do the outcomes
        of the steps that the code has not requested yet.
        """
        record, address = self.run.record, asked.address
        if asked.stopping is not None:
            raise asked.stopping
        if address in record.attempts and (failure := unapplied(record, address)):
            raise replayed.recorded_error(self, step, failure)
        if diverges or address in record.outcomes:
            self.run.journal.states.diverge(address)
        at_once, children = self.run.on_drift != "rerun", self.children
        if diverges and self.inherited.mode.goes_otherwise:
            for at, kind in void(record, children.prefix, children.asked.keys() - {address}):
                if not replay.is_edit_to_keep(record, record.ends[at], self.inherited.mode):
                    self.run.journal.invalidate(at, kind, at_once=at_once)
        if address in record.outcomes:
            self.run.journal.invalidate(address, step.kind.name, at_once=at_once)
        elif address in record.late:  # changes of the state that handlers made after an earlier attempt
            replayed.commit_late(self, address)

    async def _failed_again(self, step: Step[Any], failure: Attempt, asked: StepRequest) -> BaseException:
        """Announce the recorded failure of a step, and return the error to raise."""
        if not unapplied(self.run.record, failure.address):
            await replayed.announce_failed(self, step, failure)
        replayed.commit_late(self, failure.address)
        if not asked.in_own_task:
            self._deliver(failure.address)
        return replayed.recorded_error(self, step, failure)

    async def _failed(self, error: Exception, asked: StepRequest) -> None:
        """Note the failure of a child step. In a task of its own, let failures of its siblings reach the code first."""
        self.children.failed[asked.address] = error
        if not isinstance(error, CONTROL_FLOW):
            tracebacks.name_step(error, asked.address)
        tracebacks.shorten(error)
        self._note_stop(error, asked)
        if asked.in_own_task:
            await self.children.siblings().come_after_failures(asked.address)

    def _note_stop(self, error: Exception, asked: StepRequest) -> None:
        """Note the error of a child step if it stops the run."""
        if isinstance(error, NOT_TO_SWALLOW):
            stop = self.children.stop
            received = stop.received if asked.in_own_task else error
            self.children.stop = stop._replace(error=stop.error or error, received=received)

    async def _others_first(self, address: str) -> bool:
        """Return whether other tasks may have to receive results before the running task receives this one."""
        if self.run.recorded and has_ready(self.loop) and not self.children.is_next(address, self.run.record):
            await asyncio.sleep(0)  # let tasks that the code has just created request their steps
        return self.children.others_first

    async def as_task(self, step: Step[T], asked: StepRequest | None = None) -> T:
        """Run a step as a task, which `cut` cancels. Returns the step's result as `result_in_commit_order` does."""
        part = self._begin(step, asked or self._note_request(step))
        try:
            return await self.result_in_commit_order(part, part)
        finally:
            self.hand_over(part)
            self.mark_awaited(part)

    async def result_in_commit_order(self, task: asyncio.Task[T], part: Awaitable[T]) -> T:
        """See `durable.Scope`. Several tasks get results and failures in the order of the commits.

        So code that reacts to the first one does the same after a resume. Without a store there is no resume, and no
        order.
        """
        if not (self.in_other_task or self.children.others_first):
            return await part
        recorded = self.run.record.end(task.get_name())
        order = recorded.order if recorded else None
        return await self.children.siblings().handover.hand_over(task, part, order, expected=self.run.recorded)

    async def _replayed(self, step: Step[T], decision: Reuse, asked: StepRequest) -> T:
        """Return a step's recorded outcome, and show the step's changes of the state to the code."""
        address, value = asked.address, replayed.recorded_value(self, step, decision)
        if asked.in_own_task:  # the result is handed over to the awaiter of that task
            await replayed.announce_reused(self, step, decision, asked.fingerprint)
            return value
        handover = self.children.siblings().handover if decision.outcome.changes else None
        if handover:  # so that the state is read and written in the order of the commits
            handover.enter(address, decision.outcome.order)
        try:
            await replayed.announce_reused(self, step, decision, asked.fingerprint)
            if handover:
                await handover.wait_for_turn(address)
            elif turn := self.run.journal.loop_turns.due():
                await turn
            self._deliver(address)
        finally:
            if handover:
                handover.leave(address)
        return value

    def _decide(self, step: Step[Any], asked: StepRequest) -> Reuse | Reraise | Execute:
        """Decide whether a requested step is answered or runs. Raises TaskDrifted, NonDeterminism, ChangeUnused."""
        record, children, address = self.run.record, self.children, asked.address
        if not (children.unrequested or address in record.outcomes or address in record.failures):
            return EXECUTE
        once, caller_waits = step.effect == "once", step.caller_waits or not asked.in_own_task
        late = not caller_waits if once else bool(step.limits or self.inherited.limits or step.cache or step.kind.waits)
        question = StepQuestion(
            *(address, step.kind.name, step.question, asked.fingerprint, step.drift, once),
            comes_late=late,
            caller_waits=caller_waits,
            is_early=step.drift == MAY_DIFFER and not children.is_next(address, record),
            after=step.after,
            basis=self.basis(address) if step.rests_on_more else Basis(),
            moved=address in children.moved,
        )
        decision = replay.decide(record, question, self.inherited.mode, children.unrequested)
        if isinstance(decision, Refuse):
            raise replayed.refusal(self, step, question, decision)
        if (mode := replay.mode_after(self.inherited.mode, decision)) is not self.inherited.mode:
            self.inherited = self.inherited._replace(mode=mode)
        if not isinstance(decision, Execute):
            request_inside(self.run, address)
        elif children.side_by_side:
            children.side_by_side.handover.run_again(address)
        return decision
