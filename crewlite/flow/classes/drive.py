"""Run the methods of a flow: each is a recorded step, and the machine says which starts next.

A resumed run handles the recorded methods in the order of their commits, before any method that is not recorded. So
each method starts for the same reason and with the same argument as before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crewlite import durable, events, kinds
from crewlite.concurrency.background import ends_task, ordinary
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable
from crewlite.errors import Suspended, TooManyCalls
from crewlite.events.family import FamilyEvents
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.flow.classes.machine import Firing, Machine
from crewlite.flow.classes.methods import FlowMethod
from crewlite.flow.classes.results import encoded
from crewlite.flow.classes.reviewing import reviewed
from crewlite.flow.classes.running import Running, running
from crewlite.flow.classes.state import Outcome
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.kept import Order
from crewlite.state.format.operations import without_items
from crewlite.state.values.bag import StepState
from crewlite.step_parts import Policies
from crewlite.texts.logs import logger

log = logger("crewlite.flow")
_EVENTS = events.MethodExecutionStartedEvent, events.MethodExecutionFinishedEvent, events.MethodExecutionFailedEvent


@dataclass(slots=True, eq=False)
class _Asked:
    """One request to start a method."""

    firing: Firing
    count: int
    """How often the method has been requested, this time included."""
    step: Step[Any]
    start: Any
    """The state at the moment of the request, with which the method begins even if a resume starts it."""
    argument: Any
    """The argument that the method was called with. A router passes its own argument on to the methods that it
    starts."""
    result: Any = None
    """What the method has returned, once it has finished."""


class Drive:
    """One kickoff: requests the methods as steps, until none is left."""

    def __init__(self, flow: Flow[Any], own: Flow[Any], inputs: Mapping[str, Any], classes: Collection[type]) -> None:
        """`own`: the object on which methods are called. `classes`: the classes that they name, for decoding."""
        self._flow, self._own, self._graph, self._inputs = flow, own, flow.graph, inputs
        self._machine = Machine(flow.graph)
        self._decode = partial(codec.decode, classes=classes)
        self._scope = durable.scope()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once no method is left, or with the error that ends the kickoff."""
        self._recorded: list[_Asked] = []
        """Methods to start that have a recorded outcome."""
        self._new: list[_Asked] = []
        """Methods to start that have no recorded outcome."""
        self._at_work: dict[asyncio.Task[Any], _Asked] = {}
        self._replayed: asyncio.Task[Any] | None = None
        """The running method that has a recorded outcome; None if there is none. No other method ends before it."""
        self._failed: dict[asyncio.Task[Any], _Asked] = {}
        self._counts = Counter[str]()
        self._commits: dict[Firing, int] = {}
        """For each recorded outcome, the highest commit number of it and of all outcomes that it is behind.

        In a fork, an edited outcome can have a lower number than the repeated methods before it.
        """
        self._last: tuple[Any, _Asked] | None = None
        """(place, method) for the method whose result is the flow's so far: the furthest method in the latest round.

        Results of other finished methods are freed as soon as no method needs them.
        """
        self._feedback: tuple[HumanFeedbackResult, ...] = ()
        """What people have said, in the order of the methods' commits."""
        self._too_many: str | None = None
        self._retyped: Collection[str] = ()

    async def done(self) -> Outcome:
        """Run the methods, and return the outcome. Raises the first failure once all running methods have ended."""
        beginning, state = self._beginning(), self._scope.state
        of_handlers = state.now()
        self._retyped = self._flow.state_kind.retyped(await self._scope.step(beginning))
        self._flow.state_kind.warn_of_lost(self._flow.run_name, state.now().keys() - of_handlers.keys())
        begun = self._scope.recorded(beginning.address or "")
        self._request(self._machine.begin(), None, begun.seq if begun else None)
        self._begin()
        await self._over
        self._raise()
        return self.left()._replace(result=self._result())

    def left(self) -> Outcome:
        """Return the state and the feedback that the finished methods have left, without a result."""
        return Outcome(None, without_items(self._scope.state.now()), feedback=self._feedback)

    def _begin(self) -> None:
        """Begin the recorded method that was committed first; without a recorded one, begin all requested methods."""
        self._replayed = None
        if self._recorded:
            first = min(self._recorded, key=lambda one: self._order(one.step.address))
            self._recorded.remove(first)
            self._replayed = self._spawned(first)
        else:
            beginning, self._new = self._new, []
            for asked in beginning:
                self._spawned(asked)
        if not self._at_work:
            self._over.set_result(None)

    def _spawned(self, asked: _Asked) -> asyncio.Task[Any]:
        task = self._scope.spawn(asked.step, asked.start, ended=self._ended)
        self._at_work[task] = asked
        return task

    def _ended(self, _: asyncio.Task[Any]) -> None:
        """Handle the methods that have ended, and begin those that they start.

        Called by the task of a method when it ends: to wake the task of the kickoff would take one more turn of the
        loop.
        """
        if self._over.done():  # the kickoff was cancelled, or has failed
            return
        try:
            while ended := self._in_commit_order():
                for task in ended:
                    self._take(task, self._at_work.pop(task))
                self._begin()
        except BaseException as error:  # the border: raised where the kickoff waits
            if ends_task(error):
                raise
            self._over.set_exception(ordinary(error))

    def _in_commit_order(self) -> Sequence[asyncio.Task[Any]]:
        """Return the methods that have ended, in commit order; none while one with an earlier commit is yet to end."""
        if self._replayed:
            return [self._replayed] if self._replayed.done() else []
        ended = [task for task in self._at_work if task.done()]
        if ended and len(self._at_work) > 1:
            order = {task: self._order(asked.step.address) for task, asked in self._at_work.items()}
            latest = max(order[task] for task in ended)
            if any(order[task] < latest and not task.done() for task in order):
                return []  # until the method with the earlier commit has ended, which it is about to
            ended.sort(key=order.__getitem__)
        return ended

    def _order(self, address: str | None) -> Order:
        recorded = self._scope.recorded(address or "")
        return recorded.order if recorded else (_NEVER,)

    def _take(self, task: asyncio.Task[Any], asked: _Asked) -> None:
        """Tell the machine that a method has finished, and request the methods that this starts."""
        self._scope.hand_over(task)
        if task.cancelled() or task.exception() is not None:
            self._failed[task] = asked
            return
        firing = asked.firing
        result = asked.result = task.result()
        if recorded := self._scope.recorded(asked.step.address or ""):
            self._commits[firing] = max(recorded.seq, asked.step.after or 0)
        if isinstance(result, HumanFeedbackResult) and self._asks(firing):
            self._feedback = (*self._feedback, result)
        place = self._graph.place(firing.method, firing.round), asked.count
        if self._last is None or place > self._last[0]:
            self._last = place, asked
        replayed = asked.step.address if task is self._replayed else None
        label = self._graph.label(firing.method, result, recorded_at=replayed or "")
        if label is not None and not replayed and (hint := self._graph.meant(label)):
            log.warning("%s returned the label %r, which starts no method; %s", asked.step.address, label, hint)
        self._request(self._machine.ended(firing, label), asked)

    def _request(self, firings: Sequence[Firing], cause: _Asked | None, begun: int | None = None) -> None:
        """Request the methods of these firings. `cause`: the method that starts them; None for the flow's first ones.

        `begun`: for the first ones, the number of the commit that set the initial state.
        """
        for firing in firings:
            self._counts[firing.method] += 1
            if self._counts[firing.method] > self._flow.max_method_calls:
                self._too_many = self._too_many or firing.method
            if self._too_many:
                continue
            behind = [self._commits[one] for one in firing.behind if one in self._commits]
            after = max(behind, default=None) if cause else begun
            asked = self._asked(firing, cause, after)
            recorded = self._scope.recorded(asked.step.address or "")
            current = recorded and (after is None or recorded.seq >= after or recorded.edited)
            (self._recorded if current else self._new).append(asked)

    def _asked(self, firing: Firing, cause: _Asked | None, after: int | None) -> _Asked:
        flow, method, argument = self._flow, self._graph.methods[firing.method], None
        if cause is None:
            name, trigger = method.name, None
            arguments = {one.name: self._inputs[one.name] for one in method.parameters if one.name in self._inputs}
        else:
            passes_on = firing.label is not None and cause.firing.cause is not None and not self._asks(cause.firing)
            argument = cause.argument if passes_on else cause.result
            name, trigger = method.step_name, firing.label or cause.firing.method
            arguments = {method.takes: argument} if method.takes else {}
        feedback = self._feedback  # what people had said when the method was requested
        how, begins = method.execution, cause is None  # not `cause` itself, which holds a result
        step = Step(
            kind=kinds.METHOD,
            name=name,
            address=self._scope.reserve_address(kinds.METHOD.name, name),
            work=lambda: self._work(method, arguments, begins, feedback),
            question={"method": firing.method, "by": trigger, "given": comparable(arguments)},
            events=FamilyEvents(
                flow,
                _EVENTS,
                {"flow_name": flow.run_name, "method_name": method.name, "trigger": trigger},
                of_start=lambda: {"params": dict(arguments)},
                of_outcome=lambda value: {"result": value},
            ),
            encode=encoded,
            decode=self._decode,
            provenance={"by": trigger} if trigger else {},
            effect="idempotent",
            timeout=None if method.feedback else how.timeout,
            policies=Policies(None if method.feedback else how.remedies, inherits=True, inside=how.policy),
            compensate=how.compensate,
            strict_replay=True,
            round_trip=True,
            after=after,
            decides=partial(self._graph.decides, firing.method) if firing.method in self._graph.labels else None,
        )
        return _Asked(firing, self._counts[firing.method], step, self._scope.start_inside(), argument)

    async def _work(
        self,
        method: FlowMethod[Any, Any],
        arguments: dict[str, Any],
        begins: bool,
        feedback: Sequence[HumanFeedbackResult],
    ) -> Any:
        """Call a method. Inside it, `state` is the state of its step, and `feedback` what people have said so far.

        A method that begins the flow gets its arguments by name, any other by position.
        """
        flow, own, scope = self._flow, self._own, durable.scope()
        by_place, by_name = ((), arguments) if begins else (tuple(arguments.values()), {})
        at_work = Running(flow, own, scope.state, running.get(), list(feedback), method.name, self._retyped)
        token = running.set(at_work)
        try:
            made = reviewed(own, method, by_place, by_name) if method.feedback else method.call(own, by_place, by_name)
            value = await made
        except Suspended as waits:
            waiting = dict(waits.waiting)
            about = {"flow_name": flow.run_name, "method_name": method.name, "waiting": waiting}
            await scope.announce(flow, events.MethodExecutionPausedEvent, about)
            raise
        finally:
            running.reset(token)
        if type(value) is StepState:  # faster than `isinstance` of an abstract class; StepState has no subclasses
            value = dict(value)
        self._graph.label(method.name, value)  # raises in this method, unless the value is a label of it
        return value

    def _beginning(self) -> Step[Mapping[str, str] | None]:
        """Build the step that sets the initial state, and records the types of its fields.

        It is recorded, as default factories may return random values.
        """
        flow, inputs = self._flow, self._inputs
        own = self._scope.run_id if flow.is_persisted and not self._scope.address else ""

        async def begin() -> Mapping[str, str] | None:
            scope, read = durable.scope(), vars(flow).pop("next_id", None)  # read before the kickoff
            StepState(scope.state).update(initial_values(flow, inputs, own or read or scope.idempotency_key))
            return flow.state_kind.types

        name = BEGINNING.partition(":")[2]
        address = self._scope.reserve_address(kinds.STEP.name, name)
        return Step(
            kinds.STEP, name, begin, comparable(flow.fields_in(inputs)), FamilyEvents.silent(flow), address=address
        )

    def _asks(self, firing: Firing) -> bool:
        return self._graph.methods[firing.method].feedback is not None

    def _result(self) -> Any:
        if self._last is None:
            return None
        _, last = self._last
        routed = self._asks(last.firing) and last.firing.method in self._graph.labels
        return last.result.output if routed else last.result

    def _raise(self) -> None:
        """Raise the failure of the method that is first in the class; if none failed, the error of too many calls."""
        order = [*self._graph.methods]
        if self._failed:
            failed = self._failed.items()
            first, _ = min(failed, key=lambda one: (order.index(one[1].firing.method), one[1].count))
            self._scope.mark_awaited(first)
            first.result()
        if self._too_many:
            raise TooManyCalls(self._flow.run_name, self._too_many, self._flow.max_method_calls)


def initial_values(flow: Flow[Any], inputs: Mapping[str, Any], new_id: str) -> dict[str, Any]:
    """Return the values of the state that a run with these inputs begins with. Raises what `StateKind.begun` raises."""
    known = {name: comparable(value) for name, value in flow.first_inputs().items()}
    fields = flow.fields_in(inputs)
    others = {name: value for name, value in fields.items() if name not in known or known[name] != comparable(value)}
    return flow.state_kind.begun(flow.run_name, flow.first_values(), others, new_id)


_NEVER = 1 << 62
"""Sorts an outcome that is not recorded after all recorded ones."""
