"""A crew as a step: its tasks in order, each given what it builds on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crewlite import durable, events, kinds
from crewlite.agent.agent import Agent
from crewlite.codec import decode
from crewlite.crew.binding import match
from crewlite.crew.drift import Cast, answered, compare, kept
from crewlite.crew.output import CrewOutput
from crewlite.durable import Drift, Scope, Stamp, Step
from crewlite.errors import MissingInput
from crewlite.llm.call import ways
from crewlite.runtime.frame import Frame
from crewlite.runtime.run import Run
from crewlite.state.addresses import around
from crewlite.task.output import TaskOutput
from crewlite.task.step import Filled, Given, task_step
from crewlite.task.task import Task
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.crew.crew import Crew


def crew_step(crew: Crew, cast: Cast, inputs: dict[str, Any], run: Run | None) -> Step[CrewOutput]:
    """The step. In a run of its own the tasks keep their recorded addresses and the result is made from the record."""

    async def act() -> CrewOutput:
        outputs = await _tasks(cast, inputs, run)
        return _result(outputs, run, _drifted_here())

    return Step(
        kind=kinds.CREW,
        name=crew.name,
        work=act,
        question=question(crew, cast, inputs),
        voice=_Voice(crew, inputs),
        encode=lambda result: _encode(result, cast, inputs, run),
        decode=lambda data: _decode(data, cast, inputs, run),
        with_usage=lambda result, usage: result.model_copy(update={"token_usage": usage}),
    )


def question(crew: Crew, cast: Cast, inputs: dict[str, Any]) -> list[Any]:
    """What a crew is asked: its tasks, filled in. What they build on is each task's own question."""
    return [crew.name, *(Filled.of(task, agent, inputs).asked() for task, agent, _ in cast)]


async def _tasks(cast: Cast, inputs: dict[str, Any], run: Run | None) -> list[TaskOutput]:
    """Every task in order. What a fork's inputs have changed, and what builds on that, does not answer as it did."""
    scope = durable.scope()
    addresses = [fact["address"] for fact in run.record.run["definition"]["tasks"]] if run else None
    earlier = [decode(inputs) for _, inputs in run.record.earlier_inputs] if run else []
    edited = run.record.edited | around(run.record.edited) if run else frozenset()
    done: dict[Task, Given] = {}
    changed: set[Task] = set()
    outputs = []
    if not scope.dry:
        await _ready(cast, addresses, run)
    for number, (task, agent, llm) in enumerate(cast):
        address = addresses[number] if addresses else scope.take("task", task.name)
        wanted = done if task.context is None else task.context
        context = [done[other] for other in wanted]
        filled = Filled.of(task, agent, inputs)
        asks_other = any(_asked(task, agent, other) != filled.asked() for other in earlier)
        if asks_other or not changed.isdisjoint(wanted) or address in edited:
            changed.add(task)
        drift = _drift(scope, address, changed=task in changed or run is None)
        output = await scope.step(task_step(filled, llm, context, address=address, drift=drift))
        done[task] = Given(address, task.title, output.raw)
        was = None
        if isinstance(scope, Frame) and address in scope.drifted:
            was = kept(scope.run.record, address, filled, context)
        outputs.append(answered(output, was))
    return outputs


def _drifted_here() -> tuple[str, ...]:
    """The steps in the crew that is running whose answers were kept, though they are asked something else."""
    scope = durable.scope()
    return tuple(scope.drifted) if isinstance(scope, Frame) else ()


def _drift(scope: Scope, address: str, *, changed: bool) -> Drift:
    """What a finished task does that is asked something else: because of a fork's edits or inputs, it runs again.

    Of a crew that is part of something else, nobody knows what it is asked else because of them; so all of it may be.
    """
    if not isinstance(scope, Frame) or not changed:
        return "configured"
    record = scope.run.record
    if address in record.edited:
        return "keep"
    other_inputs = record.inputs_of(address) != record.run["inputs"]
    return "again" if other_inputs or record.edited else "configured"


async def _ready(cast: Cast, addresses: list[str] | None, run: Run | None) -> None:
    """See that every model which is still to be asked can be, before the first one is paid."""
    done = run.record.outcomes if run and addresses else {}
    left = [llm for n, (_, _, llm) in enumerate(cast) if not addresses or addresses[n] not in done]
    for model in {id(model): model for llm in left for model in ways(llm)}.values():
        await model.ready()


def _asked(task: Task, agent: Agent, inputs: dict[str, Any]) -> Any:
    """What a task asked with other inputs; None if they would not do."""
    try:
        return Filled.of(task, agent, inputs).asked()
    except MissingInput:
        return None


def _result(outputs: list[TaskOutput], run: Run | None, drifted: Sequence[str]) -> CrewOutput:
    last = outputs[-1]
    return CrewOutput(
        raw=last.raw,
        pydantic=last.pydantic,
        json_dict=last.json_dict,
        tasks_output=tuple(outputs),
        token_usage=Usage(),
        run_id=run.run_id if run else None,
        durability=run.durability if run else "off",
        drifted=tuple(drifted),
    )


def _encode(result: CrewOutput, cast: Cast, inputs: dict[str, Any], run: Run | None) -> Any:
    """As the root of a run: only which tasks; what they said is recorded already."""
    if run:
        return {"tasks": [fact["address"] for fact in run.record.run["definition"]["tasks"]]}
    data: dict[str, Any] = {"outputs": [output.raw for output in result.tasks_output]}
    if not result.drifted:
        return data
    others = {}
    for number, ((task, agent, _), output) in enumerate(zip(cast, result.tasks_output, strict=True)):
        asked = Filled.of(task, agent, inputs).texts
        if other := {name: getattr(output, name) for name, text in asked.items() if getattr(output, name) != text}:
            others[str(number)] = other
    return data | {"drifted": list(result.drifted), "answered": others}


def _decode(data: Any, cast: Cast, inputs: dict[str, Any], run: Run | None) -> CrewOutput:
    if run is None:
        made = [
            Filled.of(task, agent, inputs)
            .output_of({"raw": raw})
            .model_copy(update=data.get("answered", {}).get(str(number), {}))
            for number, ((task, agent, _), raw) in enumerate(zip(cast, data["outputs"], strict=True))
        ]
        return _result(made, None, data.get("drifted", ()))
    others = {drifted.address: drifted for drifted in compare(run.record, cast, inputs).drifted}
    recorded = run.record.run["definition"]["tasks"]
    live = {address: task for task, address in match(recorded, [task for task, _, _ in cast]).items()}
    agents = {task: agent for task, agent, _ in cast}
    outputs = []
    for fact in recorded:
        value, task = run.record.value(fact["address"]), live.get(fact["address"])
        if task:
            output = Filled.of(task, agents[task], inputs).output_of(value)
            outputs.append(answered(output, others.get(fact["address"])))
        else:
            about = {"name": fact.get("name"), "description": fact["description"], "expected_output": ""}
            outputs.append(TaskOutput(**about, raw=value["raw"], agent=value["agent"]))
    inner = [at for fact in recorded for at in run.record.outcomes[fact["address"]].drifted]
    return _result(outputs, run, [*others, *inner])


@dataclass(frozen=True, slots=True)
class _Voice:
    source: Crew
    inputs: dict[str, Any]

    def started(self, stamp: Stamp) -> events.CrewKickoffStartedEvent:
        return events.CrewKickoffStartedEvent(**stamp, crew_name=self.source.name, inputs=self.inputs)

    def completed(self, stamp: Stamp, value: CrewOutput) -> events.CrewKickoffCompletedEvent:
        total = value.token_usage.total_tokens
        return events.CrewKickoffCompletedEvent(**stamp, crew_name=self.source.name, output=value, total_tokens=total)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.CrewKickoffFailedEvent:
        return events.CrewKickoffFailedEvent(**stamp, crew_name=self.source.name, error=error, error_type=error_type)
