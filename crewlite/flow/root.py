"""A flow as the engine runs it: a function with arguments, whose steps follow from these arguments alone."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from crewlite import codec, durable, events, homes
from crewlite.codec import JsonObject
from crewlite.durable import Stamp, Step
from crewlite.errors import ConfigError
from crewlite.flow.function import FlowFunction
from crewlite.flow.trying import RecoverableFunction
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.executors import EXECUTORS, Job
from crewlite.runtime.steps.run import Run
from crewlite.step_parts import Limit
from crewlite.usage import Usage

Flow = FlowFunction[Any, Any]


class Returned(NamedTuple):
    """The return value of a flow, and the usage of everything inside it."""

    value: Any
    usage: Usage = Usage()


class FlowRoot(Root[Returned]):
    """A flow in one kickoff."""

    default_events = frozenset({"step_completed", "task_completed"})
    exact = True

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow)
        self.classes = codec.declare_hints(flow.func)
        homes.note(flow.func)
        self._flow = flow
        self.verbose = flow.verbose

    def facts(self) -> JsonObject:
        """Return its kind, its name and the names of its parameters."""
        return {"kind": self.kind, "name": self.name, "takes": self._flow.input_names()}

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for arguments that the function does not take, or that are missing."""
        signature = self._flow.signature
        if unknown := [name for name in inputs if name not in signature.parameters]:
            raise ConfigError(f"flow {self.name!r} has no parameter {', '.join(unknown)}; it takes {signature}")
        missing = [name for name in self._flow.required_inputs() if name not in inputs]
        if missing:
            raise ConfigError(f"flow {self.name!r} is missing the input {', '.join(missing)}; it takes {signature}")

    def question(self, inputs: Mapping[str, Any]) -> Any:
        """Return the arguments."""
        return codec.encode(inputs)

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[Returned]:
        """Build the step that calls the function."""
        flow = self._flow
        bound = inspect.BoundArguments(flow.signature, OrderedDict(inputs))

        async def work() -> Returned:
            job = Job(flow.name, flow.func, flow.is_async, bound.args, bound.kwargs, counts=False)
            return Returned(await EXECUTORS["inline"].run(job))

        return Step(
            kind=flow.run_kind,
            name=flow.name,
            work=work,
            question=self.question(inputs),
            voice=_Voice(flow, inputs),
            encode=lambda result: codec.encode_to_keep(result.value),
            decode=lambda data: Returned(codec.decode(data, self.classes)),
            with_usage=lambda result, usage: result._replace(usage=usage),
            inherited_limits=(Limit(f"flow:{flow.name}", flow.width),) if flow.width else (),
            strict_replay=True,
            round_trip=True,
            drift="rerun",
            failure_policy=flow.remedies,
            deadline=flow.deadline,
            child_policy=flow.policy,
        )

    def paused(self, waiting: dict[str, str]) -> Callable[[Stamp], events.FlowPausedEvent]:
        """Return a function that builds the flow_paused event."""
        return lambda stamp: stamp(events.FlowPausedEvent, flow_name=self.name, waiting=waiting)


class RecoverableRoot(FlowRoot):
    """A recoverable function in one kickoff: its policy decides on failures of its body as well."""

    def __init__(self, flow: RecoverableFunction[Any, Any]) -> None:
        super().__init__(flow)
        self._function = flow

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[Returned]:
        """Build the step that calls the function."""
        flow = self._function

        async def work() -> Returned:
            recovery = durable.scope().recovery()
            bound = flow.told(inputs, recovery.hint if recovery else "", recovery)
            job = Job(flow.name, flow.func, flow.is_async, bound.args, bound.kwargs, counts=False)
            return Returned(await EXECUTORS["inline"].run(job))

        return replace(super().step(inputs, run), work=work, hears=True, inherits=True)


@dataclass(frozen=True, slots=True)
class _Voice:
    source: Flow
    inputs: dict[str, Any]

    def started(self, stamp: Stamp) -> events.FlowStartedEvent:
        return stamp(events.FlowStartedEvent, flow_name=self.source.name, inputs=self.inputs)

    def completed(self, stamp: Stamp, value: Returned) -> events.FlowFinishedEvent:
        return stamp(events.FlowFinishedEvent, flow_name=self.source.name, result=value.value, usage=value.usage)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.FlowFailedEvent:
        return stamp(events.FlowFailedEvent, flow_name=self.source.name, error=error, error_type=error_type)
