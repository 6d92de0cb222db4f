"""Run the methods of a flow: each is a recorded step, and the machine says which starts next.

A resumed run handles the recorded methods in the order of their commits, before any method that is not recorded. So
each method starts for the same reason and with the same argument as before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

from crewlite import codec, durable, events, kinds
from crewlite.durable import Scope, Stamp, Step
from crewlite.errors import Suspended, TooManyCalls
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.flow.classes.machine import Firing, Machine
from crewlite.flow.classes.methods import FlowMethod
from crewlite.flow.classes.results import encoded
from crewlite.flow.classes.reviewing import reviewed
from crewlite.flow.classes.running import Running, running
from crewlite.flow.classes.state import Outcome, coded
from crewlite.runtime.steps.executors import Job
from crewlite.runtime.steps.plain_voice import Silent
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.kept import Order
from crewlite.state.values.current import StepState


@dataclass(slots=True, eq=False)
class _Ended:
    """A method that has finished."""

    firing: Firing
    argument: Any
    """What it was given: of a router, what the methods after it are given."""
    result: Any
    place: tuple[Any, int]
    """A sort key by which the last method of the run is found."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A method that was requested and has not finished."""

    firing: Firing
    count: int
    step: Step[Any]
    argument: Any
    task: asyncio.Task[Any] | None = None


@dataclass(slots=True)
class Drive:
    """One kickoff: requests the methods as steps, until none is left."""

    flow: Flow[Any]
    inputs: Mapping[str, Any]
    classes: Collection[type]
    """The classes that the methods name, for the decoding of their results."""
    scope: Scope = field(default_factory=durable.scope)
    recorded: list[_Asked] = field(default_factory=list)
    """Methods to start whose outcomes are recorded."""
    new: list[_Asked] = field(default_factory=list)
    at_work: list[_Asked] = field(default_factory=list)
    failed: list[_Asked] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    feedback: list[HumanFeedbackResult] = field(default_factory=list)
    """What people have said, in the order of the methods' commits."""
    commits: dict[Firing, int] = field(default_factory=dict)
    """The number of the commit of each outcome that is recorded."""
    too_many: str | None = None
    last: _Ended | None = None

    async def done(self) -> Outcome:
        """Run the methods, and return the outcome. Raises the first failure once all running methods have ended."""
        beginning = self._beginning()
        await self.scope.step(beginning)
        machine, begun = Machine(self.flow.graph), self.scope.recorded(beginning.address or "")
        self._start(machine.begin(), None, begun.seq if begun else None)
        while self.recorded or self.new or self.at_work:
            for asked in await self._next():
                self._take(machine, asked)
        self._raise()
        return self.left()._replace(result=self._result())

    def left(self) -> Outcome:
        """Return what the finished methods have come to so far, without a result."""
        return Outcome(None, coded(self.scope.state), feedback=tuple(self.feedback))

    async def _next(self) -> Sequence[_Asked]:
        """Wait for the methods that finish next; return them in the order of their commits."""
        if self.recorded:
            first = min(self.recorded, key=self._order)
            self.recorded.remove(first)
            first.task = self.scope.spawn(first.step)
            await asyncio.wait({first.task})
            return [first]
        for asked in self.new:
            asked.task = self.scope.spawn(asked.step)
        self.at_work += self.new
        self.new = []
        await asyncio.wait([one.task for one in self.at_work if one.task], return_when=asyncio.FIRST_COMPLETED)
        if len(self.at_work) == 1:
            alone, self.at_work = self.at_work, []
            return alone
        ended = [one for one in self.at_work if one.task and one.task.done()]
        latest = max(map(self._order, ended))
        late = [one for one in self.at_work if one not in ended and self._order(one) < latest]
        if late:  # committed earlier, and about to end
            await asyncio.wait([one.task for one in late if one.task])
        found = sorted([*ended, *late], key=self._order)
        self.at_work = [one for one in self.at_work if one not in found]
        return found

    def _order(self, asked: _Asked) -> Order:
        recorded = self.scope.recorded(asked.step.address or "")
        return recorded.order if recorded else (_NEVER,)

    def _take(self, machine: Machine, asked: _Asked) -> None:
        """Tell the machine that a method has finished, and request the methods that this starts."""
        assert asked.task
        self.scope.hand_over(asked.task)
        if asked.task.cancelled() or asked.task.exception():
            self.failed.append(asked)
            return
        result = asked.task.result()
        place = self.flow.graph.place(asked.firing.method, asked.firing.round), asked.count
        ended = _Ended(asked.firing, asked.argument, result, place)
        if recorded := self.scope.recorded(asked.step.address or ""):
            self.commits[asked.firing] = recorded.seq
        label = self.flow.graph.label(asked.firing.method, result)
        following = machine.ended(asked.firing, label)
        if isinstance(result, HumanFeedbackResult) and self._asks(asked.firing):
            self.feedback.append(result)
        if self.last is None or ended.place >= self.last.place:
            self.last = ended
        self._start(following, ended)

    def _start(self, firings: Sequence[Firing], cause: _Ended | None, begun: int | None = None) -> None:
        """Request methods. `cause`: the finished method that starts them; without one, `begun` is the commit before."""
        for firing in firings:
            self.counts[firing.method] += 1
            if self.counts[firing.method] > self.flow.max_method_calls:
                self.too_many = self.too_many or firing.method
            if self.too_many:
                continue
            behind = [self.commits[one] for one in firing.behind if one in self.commits]
            after = max(behind, default=None) if cause else begun
            asked = self._asked(firing, cause, after)
            recorded = self.scope.recorded(asked.step.address or "")
            current = recorded and (after is None or recorded.seq >= after)
            (self.recorded if current else self.new).append(asked)

    def _asked(self, firing: Firing, cause: _Ended | None, after: int | None) -> _Asked:
        flow, method = self.flow, self.flow.graph.methods[firing.method]
        argument = None
        if cause:
            passes_on = firing.label is not None and cause.firing.cause is not None and not self._asks(cause.firing)
            argument = cause.argument if passes_on else cause.result
        arguments = _arguments(method, cause is None, argument, self.inputs)
        name = method.step_name if cause else method.name
        address = self.scope.reserve_address(kinds.METHOD.name, name)
        trigger = None if cause is None else firing.label or cause.firing.method
        how = method.execution
        call = MethodType(method.func, flow)
        by_place, by_name = ((), arguments) if cause is None else (tuple(arguments.values()), {})
        feedback = list(self.feedback)  # as it is when the method is asked for, in every life
        job = Job(method.name, call, method.is_async, by_place, by_name)
        step = Step(
            kind=kinds.METHOD,
            name=name,
            address=address,
            work=lambda: _work(flow, method, job, feedback),
            question={"method": firing.method, "by": trigger, "given": codec.known(arguments)},
            voice=_MethodVoice(flow, method.name, trigger, arguments),
            encode=encoded,
            decode=partial(codec.decode, classes=self.classes),
            provenance={"by": trigger} if trigger else {},
            effect="idempotent",
            timeout=None if method.feedback else how.timeout,
            failure_policy=None if method.feedback else how.remedies,
            inherits=True,
            child_policy=how.policy,
            strict_replay=True,
            round_trip=True,
            after=after,
        )
        return _Asked(firing, self.counts[firing.method], step, argument)

    def _beginning(self) -> Step[None]:
        """Build the step that sets the initial state. It is recorded, as default factories may return random values."""
        flow, kind = self.flow, self.flow.state_kind
        arguments = {one.name for name in flow.graph.entries for one in flow.graph.methods[name].parameters}
        fields = {name: value for name, value in self.inputs.items() if name not in arguments or kind.has(name)}

        own = self.scope.run_id if flow.is_persisted and not self.scope.address else ""

        async def begin() -> None:
            scope = durable.scope()
            values = kind.begun(flow.run_name, flow.first_state, fields, own or scope.idempotency_key)
            StepState(scope.state).update(values)

        name = BEGINNING.partition(":")[2]
        address = self.scope.reserve_address(kinds.STEP.name, name)
        return Step(kinds.STEP, name, begin, codec.known(fields), Silent(flow), address=address)

    def _asks(self, firing: Firing) -> bool:
        return self.flow.graph.methods[firing.method].feedback is not None

    def _result(self) -> Any:
        if self.last is None:
            return None
        routed = self._asks(self.last.firing) and self.last.firing.method in self.flow.graph.labels
        return self.last.result.output if routed else self.last.result

    def _raise(self) -> None:
        """Raise the failure of the method that comes first in the class; without any, the error of too many calls."""
        order = [*self.flow.graph.methods]
        if self.failed:
            first = min(self.failed, key=lambda one: (order.index(one.firing.method), one.count))
            assert first.task
            self.scope.mark_awaited(first.task)
            first.task.result()
        if self.too_many:
            raise TooManyCalls(self.flow.run_name, self.too_many, self.flow.max_method_calls)


_NEVER = 1 << 62
"""Stands for the commit of what is not recorded."""


def _arguments(method: FlowMethod[Any, Any], begins: bool, given: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a method: of a start method, the inputs of these names; else `given`, by position."""
    if begins:
        return {one.name: inputs[one.name] for one in method.parameters if one.name in inputs}
    return {method.takes: given} if method.takes else {}


async def _work(flow: Flow[Any], method: FlowMethod[Any, Any], job: Job, feedback: list[HumanFeedbackResult]) -> Any:
    """Call a method; inside it, `flow.state` is the state of its step, and `feedback` what people have said so far."""
    scope = durable.scope()
    token = running.set(Running(flow, scope.state, running.get(), list(feedback), method.name))
    try:
        value = await (reviewed(flow, method, job) if method.feedback else method.execution.executor.run(job))
    except Suspended as waits:
        waiting = dict(waits.waiting)
        about = {"flow_name": flow.run_name, "method_name": method.name, "waiting": waiting}
        await scope.announce(flow, lambda stamp: stamp(events.MethodExecutionPausedEvent, **about))
        raise
    finally:
        running.reset(token)
    if isinstance(value, StepState):
        value = dict(value)
    flow.graph.label(method.name, value)  # an error of this method, if it is no label
    return value


class _MethodVoice(NamedTuple):
    source: Flow[Any]
    method: str
    trigger: str | None
    arguments: Mapping[str, Any]

    def _about(self) -> dict[str, Any]:
        return {"flow_name": self.source.run_name, "method_name": self.method, "trigger": self.trigger}

    def started(self, stamp: Stamp) -> events.MethodExecutionStartedEvent:
        return stamp(events.MethodExecutionStartedEvent, **self._about(), params=dict(self.arguments))

    def completed(self, stamp: Stamp, value: Any) -> events.MethodExecutionFinishedEvent:
        return stamp(events.MethodExecutionFinishedEvent, **self._about(), result=value)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.MethodExecutionFailedEvent:
        return stamp(events.MethodExecutionFailedEvent, **self._about(), error=error, error_type=error_type)
