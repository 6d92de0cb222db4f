"""A flow as the engine runs it: a function with arguments, whose steps follow from these arguments alone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from crewlite import events
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import JsonObject
from crewlite.errors import ConfigError, NotCodable
from crewlite.events.family import FamilyEvents
from crewlite.flow.function import FlowFunction
from crewlite.flow.options import question_of, warn_of_refused
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.executors import EXECUTORS, Job
from crewlite.runtime.steps.run import Run
from crewlite.step_parts import Limit, Policies
from crewlite.usage import Usage

Flow = FlowFunction[Any, Any]
EVENTS = events.FlowStartedEvent, events.FlowFinishedEvent, events.FlowFailedEvent
"""The events of a flow, whether it is a function or a class."""


class Returned(NamedTuple):
    """The return value of a flow, and the usage of everything inside it."""

    value: Any
    usage: Usage = Usage()


class FlowRoot(Root[Returned]):
    """A flow in one kickoff."""

    default_events = frozenset({"step_completed", "task_completed"})
    waits: ClassVar[type[events.FlowPausedEvent] | None] = events.FlowPausedEvent
    strict_replay = True

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self.classes = codec.declare_hints(flow.func)
        self._flow = flow
        self.verbose = flow.verbose

    def facts(self) -> JsonObject:
        """Return the flow's kind, its name, the names of its parameters, and their defaults if there are any."""
        facts: JsonObject = {"kind": self.kind, "name": self.name, "takes": self._flow.input_names()}
        return {**facts, "defaults": defaults} if (defaults := self.defaults()) else facts

    def defaults(self) -> JsonObject:
        """Return the defaults of the parameters that can be recorded."""
        parameters = self._flow.signature.parameters.items()
        return recordable({name: one.default for name, one in parameters if one.default is not one.empty})

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for arguments that the function does not take, or that are missing."""
        signature = self._flow.signature
        if unknown := [name for name in inputs if name not in signature.parameters]:
            raise ConfigError(f"flow {self.name!r} has no parameter {', '.join(unknown)}; it takes {signature}")
        missing = [name for name in self._flow.required_inputs() if name not in inputs]
        if missing:
            raise ConfigError(f"flow {self.name!r} is missing the input {', '.join(missing)}; it takes {signature}")

    def question(self, inputs: Mapping[str, Any]) -> Any:
        """Return the arguments. One that cannot be recorded, such as a client, is represented by its class."""
        return question_of(inputs)[0]

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[Returned]:
        """Build the step that calls the function."""
        flow = self._flow
        question, refused = question_of(inputs)
        if refused and run is None:  # the flow is a step of another run, which may be resumed
            warn_of_refused(flow, f"flow {self.name}", refused)

        async def work() -> Returned:
            bound = flow.arguments(inputs)
            job = Job(
                *(flow.name, flow.func, flow.is_async, bound.args, bound.kwargs), counts=False, blocks=flow.blocks
            )
            return Returned(await EXECUTORS["inline"].run(job))

        return Step(
            kind=flow.run_kind,
            name=flow.name,
            work=work,
            question=question,
            given=inputs if refused else None,
            events=FamilyEvents(
                flow,
                EVENTS,
                {"flow_name": self.name},
                of_start=lambda: {"inputs": dict(inputs)},
                of_outcome=lambda result: {"result": result.value, "usage": result.usage},
            ),
            encode=lambda result: codec.encode_to_keep(result.value),
            decode=lambda data: Returned(codec.decode(data, self.classes)),
            with_usage=lambda result, usage: result._replace(usage=usage),
            inherited_limits=(Limit(f"flow:{flow.name}", flow.width, counts_inside=True),) if flow.width else (),
            strict_replay=True,
            round_trip=True,
            drift="rerun",
            deadline=flow.deadline,
            policies=Policies(flow.remedies, inherits=flow.may_report, inside=flow.policy),
            may_report=flow.may_report,
        )


def recordable(values: Mapping[str, Any]) -> JsonObject:
    """Return the values that can be recorded, encoded."""
    found: JsonObject = {}
    for name, value in values.items():
        with contextlib.suppress(NotCodable):
            found[name] = codec.encode(value)
    return found
