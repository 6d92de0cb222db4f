"""A flow of methods as the engine sees it during one kickoff: its facts for the record, and its root step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from crewlite import codec, events, kinds
from crewlite.codec import JsonObject
from crewlite.durable import Stamp, Step
from crewlite.errors import ConfigError
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.drive import Drive
from crewlite.flow.classes.persisted_state import continued
from crewlite.flow.classes.results import declare_results, encoded
from crewlite.flow.classes.running import at_work
from crewlite.flow.classes.state import ID, Outcome
from crewlite.llm.models import resolve_llm
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.step_parts import Limit


class ClassRoot(Root[Outcome]):
    """A flow of methods in one kickoff."""

    default_events = frozenset({"method_execution_finished", "step_completed", "task_completed"})
    exact = True

    def __init__(self, flow: Flow[Any]) -> None:
        super().__init__(flow)
        named = [declare_results(method.func) for method in flow.graph.methods.values()]
        self.classes = frozenset[type]().union(*named)
        asking = [method.feedback.llm for method in flow.graph.methods.values() if method.feedback]
        models = [resolve_llm([llm], agent="Feedback") for llm in asking if llm]  # a missing key is told at once
        self.secret_sources += tuple(models)
        self._flow = flow
        self.verbose = flow.verbose
        self._left: Outcome | None = None

    def facts(self) -> JsonObject:
        """Return its kind, its name, its methods, and the fields of its state if they are known."""
        flow = self._flow
        found: JsonObject = {"kind": "flow", "name": self.name, "methods": [*flow.graph.methods]}
        return found if flow.state_kind.is_open else {**found, "takes": [*flow.input_names()]}

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for inputs that are no fields of the state, and for arguments that are missing."""
        self._flow.check_inputs(inputs)
        if missing := [name for name in self._flow.required_inputs() if name not in inputs]:
            raise ConfigError(f"flow {self.name!r} is missing the input {', '.join(missing)}, which a method takes")

    def continuing(self, request: Request) -> Callable[[CheckpointConfig], Request] | None:
        """Return a function that finds the run of the state whose id is an input, if the flow has `@persist`."""
        names_one = request.run_id is not None or request.resume or request.from_checkpoint is not None
        if names_one or not self._flow.is_persisted or ID not in (request.inputs or ()):
            return None
        return partial(continued, self._flow.state_kind, self.identity, request)

    def question(self, inputs: Mapping[str, Any]) -> Any:
        """Return what the root step is asked: the inputs."""
        return codec.known(dict(inputs))

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[Outcome]:
        """Build the step that runs the methods."""
        flow = self._flow
        return Step(
            kind=kinds.FLOW,
            name=self.name,
            work=lambda: self._driven(Drive(flow, inputs, self.classes)),
            question=self.question(inputs),
            voice=_Voice(flow, self.name, inputs),
            given=inputs,
            encode=_encoded,
            decode=_decoded,
            with_usage=lambda outcome, usage: outcome._replace(usage=usage),
            inherited_limits=(Limit(f"flow:{self.name}", flow.max_concurrency),) if flow.max_concurrency else (),
            strict_replay=True,
            round_trip=True,
            own_state=True,
            drift="rerun",
            child_policy=flow.failure_policy,
        )

    async def _driven(self, drive: Drive) -> Outcome:
        with at_work(self._flow):
            try:
                return await drive.done()
            except BaseException:
                self._left = drive.left()
                raise

    def left(self) -> Outcome | None:
        """Return the state as finished methods have left it, without a result."""
        return self._left

    def paused(self, waiting: dict[str, str]) -> Callable[[Stamp], events.FlowPausedEvent]:
        """Return a function that builds the flow_paused event. `waiting`: the open questions to people, by address."""
        return lambda stamp: stamp(events.FlowPausedEvent, flow_name=self.name, waiting=waiting)


def _encoded(outcome: Outcome) -> JsonObject:
    data: JsonObject = {"result": encoded(outcome.result), "state": outcome.state}
    return data | ({"feedback": codec.encode(list(outcome.feedback))} if outcome.feedback else {})


def _decoded(data: JsonObject) -> Outcome:
    return Outcome(codec.decode(data["result"]), data["state"], feedback=tuple(codec.decode(data.get("feedback", []))))


@dataclass(frozen=True, slots=True)
class _Voice:
    source: Flow[Any]
    name: str
    inputs: Mapping[str, Any]

    def started(self, stamp: Stamp) -> events.FlowStartedEvent:
        return stamp(events.FlowStartedEvent, flow_name=self.name, inputs=dict(self.inputs))

    def completed(self, stamp: Stamp, value: Outcome) -> events.FlowFinishedEvent:
        state = {name: codec.decode(one) for name, one in value.state.items()}
        about = {"flow_name": self.name, "result": value.result, "state": state, "usage": value.usage}
        return stamp(events.FlowFinishedEvent, **about)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.FlowFailedEvent:
        return stamp(events.FlowFailedEvent, flow_name=self.name, error=error, error_type=error_type)
