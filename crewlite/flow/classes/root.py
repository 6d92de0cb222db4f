"""A flow of methods as the engine sees it during one kickoff: its facts for the record, and its root step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import Parameter
from typing import Any

from crewlite import events, kinds
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import JsonObject
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError
from crewlite.events.family import FamilyEvents
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.drive import Drive, initial_values
from crewlite.flow.classes.results import declare_results, encoded
from crewlite.flow.classes.running import at_work
from crewlite.flow.classes.state import Outcome, fields_set, values_of
from crewlite.flow.classes.turns import turn_of
from crewlite.flow.root import EVENTS, recordable
from crewlite.llm.models import resolve_llm
from crewlite.runtime.kickoffs.program import NAME
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.earlier import inputs_at
from crewlite.state.format.record import Record
from crewlite.state.format.turns import ID
from crewlite.step_parts import Limit, Policies


class ClassRoot(Root[Outcome]):
    """A flow of methods in one kickoff."""

    default_events = frozenset({"method_execution_finished", "step_completed", "task_completed"})
    waits = events.FlowPausedEvent
    strict_replay = True

    def __init__(self, flow: Flow[Any]) -> None:
        super().__init__(flow)
        named = [declare_results(method.func) for method in flow.graph.methods.values()]
        self.classes = frozenset[type]().union(*named)
        asking = [method.feedback.llm for method in flow.graph.methods.values() if method.feedback]
        models = [resolve_llm([llm], agent="Feedback") for llm in asking if llm]  # a missing key is told at once
        self.secret_sources += tuple(models)
        self._flow = flow
        self.verbose = flow.verbose

    def facts(self) -> JsonObject:
        """Return the flow's kind, name and methods, and the fields of its state if they are known."""
        flow = self._flow
        found: JsonObject = {"kind": "flow", "name": self.name, "methods": [*flow.graph.methods]}
        found |= {"defaults": defaults} if (defaults := self.defaults()) else {}
        return found if flow.state_kind.is_open else {**found, "takes": [*flow.input_names()]}

    def defaults(self) -> JsonObject:
        """Return the values that the class itself gives fields of the state and arguments of start methods."""
        flow, cls = self._flow, type(self._flow)
        kind, initial = cls.state_kind, cls.initial_state  # a setting of the object counts as an input
        arguments = {one.name: one.default for one in flow.graph.arguments}
        own = {name: values_of(initial)[name] for name in fields_set(initial)}
        fields = {name: value for name, value in {**kind.defaults, **own}.items() if name not in arguments}
        given = (name for name, default in arguments.items() if default is not Parameter.empty and not kind.has(name))
        return recordable({**fields, **{name: arguments[name] for name in given}})

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for inputs that are no fields of the state, and for arguments that are missing."""
        self._flow.as_inputs(inputs)
        if missing := [name for name in self._flow.required_inputs() if name not in inputs]:
            given = ", ".join(f"{name!r}: ..." for name in missing)
            raise ConfigError(
                f"flow {self.name!r} is missing the input {', '.join(missing)}, which a method takes: pass "
                f"inputs={{{given}}}, or give the argument a default"
            )

    def check_beginning(self, inputs: Mapping[str, Any], record: Record) -> None:
        """Raise ConfigError if these inputs make no valid initial state and none made of them is recorded."""
        recorded = BEGINNING in record.outcomes and inputs_at(record, BEGINNING)
        if not recorded or codec.digest(recorded) != codec.digest(recordable(inputs)):
            initial_values(self._flow, inputs, new_id="")

    def with_own_inputs(self, request: Request) -> Request:
        """Return the request with the fields of the state that were set on the flow added to the inputs."""
        return request.with_preset(self._flow.first_inputs())

    def named(self, request: Request) -> Request:
        """Return the request with the id that the state had before as run_id, for a new run with `@persist`."""
        given = (request.run_id, request.from_checkpoint, request.operation_id, os.environ.get(NAME) or None)
        if not self._flow.is_persisted or request.resume or given != (None,) * 4 or ID in (request.inputs or ()):
            return request
        made = vars(self._flow).pop("next_id", None)
        return replace(request, run_id=made, names_new_run=made is not None)

    def continuing(self, request: Request) -> Callable[[CheckpointConfig], Request] | None:
        """Return a function that finds the turn of the state whose id is an input; None without `@persist`.

        `resume` needs nothing more: an unfinished turn of the state is resumed in any case.
        """
        if request.from_checkpoint is None and self._flow.is_persisted and ID in (request.inputs or ()):
            return partial(turn_of, self._flow.state_kind, self.identity, replace(request, resume=False))
        return None

    def question(self, inputs: Mapping[str, Any]) -> Any:
        """Return what the root step is asked: the inputs."""
        return comparable(dict(inputs))

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[Outcome]:
        """Build the step that runs the methods."""
        flow = self._flow
        return Step(
            kind=kinds.FLOW,
            name=self.name,
            work=lambda: self._driven(inputs),
            question=self.question(inputs),
            events=FamilyEvents(
                flow,
                EVENTS,
                {"flow_name": self.name},
                of_start=lambda: {"inputs": dict(inputs)},
                of_outcome=_event_fields,
            ),
            given=inputs,
            encode=_encoded,
            decode=_decoded,
            with_usage=lambda outcome, usage: outcome._replace(usage=usage),
            inherited_limits=(Limit(f"flow:{self.name}", flow.max_concurrency, counts_inside=True),)
            if flow.max_concurrency
            else (),
            strict_replay=True,
            round_trip=True,
            own_state=True,
            drift="rerun",
            policies=Policies(inside=flow.failure_policy),
        )

    async def _driven(self, inputs: Mapping[str, Any]) -> Outcome:
        progress = self.progress
        with at_work(self._flow) as own:
            drive = Drive(self._flow, own, inputs, self.classes)
            progress.outcome = None  # forget the outcome of a failed attempt
            try:
                outcome = await drive.done()
            except BaseException:
                progress.outcome = drive.left()
                raise
        progress.outcome = outcome  # before handlers of the end are called, as they may ask the flow for its state
        return outcome


def _encoded(outcome: Outcome) -> JsonObject:
    data: JsonObject = {"result": encoded(outcome.result), "state": outcome.state}
    return data | ({"feedback": codec.encode(list(outcome.feedback))} if outcome.feedback else {})


def _decoded(data: JsonObject) -> Outcome:
    return Outcome(codec.decode(data["result"]), data["state"], feedback=tuple(codec.decode(data.get("feedback", []))))


def _event_fields(outcome: Outcome) -> dict[str, Any]:
    state = {name: codec.decode(one) for name, one in outcome.state.items()}
    return {"result": outcome.result, "state": state, "usage": outcome.usage}
