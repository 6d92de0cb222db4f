"""A flow of methods as the engine sees it during one kickoff: its facts for the record, and its root step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import Parameter
from typing import Any

from crewlite import codec, events, kinds
from crewlite.codec import JsonObject
from crewlite.comparable import comparable
from crewlite.durable import Step
from crewlite.errors import ConfigError
from crewlite.events.voice import Voice
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.drive import Drive, initial_values
from crewlite.flow.classes.results import declare_results, encoded
from crewlite.flow.classes.running import at_work
from crewlite.flow.classes.state import ID, Outcome, StateKind, fields_set, values_of
from crewlite.flow.root import EVENTS, recordable
from crewlite.llm.models import resolve_llm
from crewlite.masking import MASK
from crewlite.refs import as_run_id
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.addresses import BEGINNING
from crewlite.state.format.earlier import inputs_at
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import exists, opened, provider_for
from crewlite.step_parts import Limit


class ClassRoot(Root[Outcome]):
    """A flow of methods in one kickoff."""

    default_events = frozenset({"method_execution_finished", "step_completed", "task_completed"})
    waits = events.FlowPausedEvent
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

    def facts(self) -> JsonObject:
        """Return the flow's kind, name and methods, and the fields of its state if they are known."""
        flow = self._flow
        found: JsonObject = {"kind": "flow", "name": self.name, "methods": [*flow.graph.methods]}
        found |= {"defaults": defaults} if (defaults := self.defaults()) else {}
        return found if flow.state_kind.is_open else {**found, "takes": [*flow.input_names()]}

    def defaults(self) -> JsonObject:
        """Return the values that the class itself gives fields of the state and arguments of start methods."""
        flow, cls = self._flow, type(self._flow)
        kind, initial = cls.state_kind, cls.initial_state  # what an object was given instead is an input
        arguments = {
            one.name: one.default for name in flow.graph.entries for one in flow.graph.methods[name].parameters
        }
        own = {name: values_of(initial)[name] for name in fields_set(initial)}
        fields = {name: value for name, value in {**kind.defaults, **own}.items() if name not in arguments}
        given = (name for name, default in arguments.items() if default is not Parameter.empty and not kind.has(name))
        return recordable({**fields, **{name: arguments[name] for name in given}})

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for inputs that are no fields of the state, and for arguments that are missing."""
        self._flow.check_inputs(inputs)
        if missing := [name for name in self._flow.required_inputs() if name not in inputs]:
            raise ConfigError(f"flow {self.name!r} is missing the input {', '.join(missing)}, which a method takes")

    def check_beginning(self, inputs: Mapping[str, Any], record: Record) -> None:
        """Raise ConfigError if these inputs make no initial state, and none is recorded that was made of them."""
        recorded = BEGINNING in record.outcomes and inputs_at(record, BEGINNING)
        if not recorded or codec.digest(recorded) != codec.digest(recordable(inputs)):
            initial_values(self._flow, inputs, new_id="")

    def with_own_inputs(self, request: Request) -> Request:
        """Return the request with the fields of the state that were set on the flow as inputs."""
        return request.with_preset(self._flow.first_inputs())

    def continuing(self, request: Request) -> Callable[[CheckpointConfig], Request] | None:
        """Return a function that finds the run of the state whose id is an input, if the flow has `@persist`.

        `resume` asks for no more: an unfinished run of the state is resumed in any case.
        """
        names_one = request.run_id is not None or request.from_checkpoint is not None
        if names_one or not self._flow.is_persisted or ID not in (request.inputs or ()):
            return None
        return partial(_continued, self._flow.state_kind, self.identity, replace(request, resume=False))

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
            voice=Voice(
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
            child_policy=flow.failure_policy,
        )

    async def _driven(self, inputs: Mapping[str, Any]) -> Outcome:
        progress = self.progress
        with at_work(self._flow) as own:
            drive = Drive(self._flow, own, inputs, self.classes)
            progress.outcome = None  # of an attempt that failed
            try:
                outcome = await drive.done()
            except BaseException:
                progress.outcome = drive.left()
                raise
        progress.outcome = outcome  # before handlers hear of the end, as they may ask the flow for its state
        return outcome


def _encoded(outcome: Outcome) -> JsonObject:
    data: JsonObject = {"result": encoded(outcome.result), "state": outcome.state}
    return data | ({"feedback": codec.encode(list(outcome.feedback))} if outcome.feedback else {})


def _decoded(data: JsonObject) -> Outcome:
    return Outcome(codec.decode(data["result"]), data["state"], feedback=tuple(codec.decode(data.get("feedback", []))))


def _continued(kind: StateKind, identity: str, request: Request, config: CheckpointConfig) -> Request:
    """Return the request with the run that it goes on with, or begins: `@persist`. Reads the store.

    The id of the state names the first run; the runs that continue its state are `ID.2`, `ID.3` and so on. Each begins
    with the state of the one before as its inputs, so it can be resumed, forked and read like any run. A name that a
    run of another state has is passed over.

    Raises ConfigError for an id that cannot name a run.
    """
    given = dict(request.inputs_of_caller or {})
    try:
        state_id = as_run_id((request.inputs or {})[ID])
    except ConfigError as error:
        raise ConfigError(f"The id of a flow with @persist is the run_id of its run. {error}") from None
    free, record = _newest(state_id, identity, config)
    if record is None:
        return replace(request, run_id=free, is_begun=False)
    recorded: JsonObject = record.run["inputs"]
    if not record.finished:
        exact = not codec.holds_secret(recorded)  # else the record has masks
        asked = {name: codec.encode(value) for name, value in given.items() if name != ID}
        same = exact and all(name in recorded and value == recorded[name] for name, value in asked.items())
        inputs = None if same else {**codec.decode(recorded), **given}
        return replace(request, run_id=record.run["run_id"], inputs=inputs, state_id=state_id, is_begun=True)
    left: dict[str, Any] = {name: codec.decode(value) for name, value in record.value("")["state"].items()}
    kept = {name: value for name, value in left.items() if kind.is_open or name in kind.fields}
    inputs = {**(request.inputs or {}), **kept, **given, ID: state_id}
    return replace(request, run_id=free, inputs=inputs, is_begun=False)


def _newest(state_id: str, identity: str, config: CheckpointConfig) -> tuple[str, Record | None]:
    """Return the name that the next run of a state gets, and the record of its newest run; None if there is none.

    A run of this name that is of another flow is left to the kickoff, which refuses it.
    """
    provider = provider_for(config.location, config.provider)
    if not exists(config.location, provider):
        return state_id, None
    named = re.compile(re.escape(state_id) + r"(?:\.(\d+))?")
    with opened(provider, config.location) as store:
        numbers = {
            int(match[1] or 1): info.run_id
            for info in store.branches()
            if info.base is None and info.identity == identity and (match := named.fullmatch(info.run_id))
        }
        free = f"{state_id}.{max(numbers) + 1}" if numbers else state_id
        for number in sorted(numbers, reverse=True):
            record = find_lineage(store, numbers[number], "main").record()
            if not record.seq:  # it was deleted since it was listed
                return _newest(state_id, identity, config)
            if _state_of(record) in (state_id, None):
                return free, record
        return free, None


def _state_of(record: Record) -> str | None:
    """Return the id of the state that a run began with: an input, or else its run_id; None if the record masks it."""
    given = str(codec.decode(record.run["inputs"].get(ID)) or record.run["run_id"])
    return None if MASK in given else given


def _event_fields(outcome: Outcome) -> dict[str, Any]:
    state = {name: codec.decode(one) for name, one in outcome.state.items()}
    return {"result": outcome.result, "state": state, "usage": outcome.usage}
