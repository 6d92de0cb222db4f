"""A crew at work: its tasks in order, each given what it builds on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crewlite import durable, events, kinds, resources
from crewlite.codec import decode
from crewlite.crew.binding import compare, drifted_task, match
from crewlite.crew.crew import Crew
from crewlite.crew.output import CrewOutput
from crewlite.durable import Drift, Scope, Stamp, Step
from crewlite.errors import MissingInput
from crewlite.llm.base import with_fallbacks
from crewlite.runtime.questions import Drifted
from crewlite.runtime.run import Run
from crewlite.runtime.step_scope import StepScope
from crewlite.state.format.addresses import around
from crewlite.task.output import TaskOutput
from crewlite.task.step import Assignment, ContextItem, FilledTask, task_step
from crewlite.task.task import Task
from crewlite.usage import Usage

_SHOWN = ("description", "expected_output")  # texts of its question that a task's output tells


@dataclass(frozen=True, slots=True)
class Kickoff:
    """A crew with its tasks filled in. In a run of its own they keep their recorded addresses."""

    crew: Crew
    assignments: Sequence[Assignment]
    filled: Sequence[FilledTask]
    inputs: dict[str, Any]
    run: Run | None
    """None if the crew is a step of somebody else's run."""

    def step(self, question: Any) -> Step[CrewOutput]:
        """The step."""
        return Step(
            kind=kinds.CREW,
            name=self.crew.name,
            work=self._work,
            question=question,
            voice=_Voice(self.crew, self.inputs),
            encode=self._encode,
            decode=self._decode,
            with_usage=lambda result, usage: result.model_copy(update={"token_usage": usage}),
            child_policy=self.crew.failure_policy,
        )

    async def _work(self) -> CrewOutput:
        """Every task in order. What a fork's inputs have changed, and what builds on it, does not answer as before."""
        scope, run = durable.scope(), self.run
        addresses = self._addresses()
        earlier = [decode(inputs) for _, inputs in run.record.earlier_inputs] if run else []
        edited = run.record.edited | around(run.record.edited) if run else frozenset()
        done: dict[Task, ContextItem] = {}
        changed: set[Task] = set()
        outputs = []
        if not scope.dry:
            await self._ready(addresses)
        for number, (assignment, filled) in enumerate(zip(self.assignments, self.filled, strict=True)):
            task = assignment.task
            address = addresses[number] if addresses else scope.reserve_address("task", task.name)
            wanted = done if task.context is None else task.context
            context = [done[other] for other in wanted]
            asks_other = any(_asked(assignment, other) != filled.asked() for other in earlier)
            if asks_other or not changed.isdisjoint(wanted) or address in edited:
                changed.add(task)
            drift = _drift(scope, address, changed=task in changed or run is None)
            output = await scope.step(task_step(filled, context, address=address, drift=drift))
            done[task] = ContextItem(address, task.title, output.raw)
            was = None
            if isinstance(scope, StepScope) and address in scope.children.drifted:
                was = drifted_task(scope.run.record, address, filled, context)
            outputs.append(_answered(output, was))
        return self._result(outputs, scope.children.drifted if isinstance(scope, StepScope) else ())

    async def _ready(self, addresses: Sequence[str]) -> None:
        """See that every model which is still to be asked can be, before the first one is paid."""
        done = self.run.record.outcomes if self.run else {}
        left = [one.llm for n, one in enumerate(self.assignments) if not addresses or addresses[n] not in done]
        for model in {id(model): model for llm in left for model in with_fallbacks(llm)}.values():
            await resources.ready(model)

    def _addresses(self) -> list[str]:
        """Where the tasks are recorded; none if the crew is a step of somebody else's run."""
        return [fact["address"] for fact in self.run.record.run["definition"]["tasks"]] if self.run else []

    def _result(self, outputs: Sequence[TaskOutput], drifted: Sequence[str]) -> CrewOutput:
        last = outputs[-1]
        return CrewOutput(
            raw=last.raw,
            pydantic=last.pydantic,
            json_dict=last.json_dict,
            tasks_output=tuple(outputs),
            token_usage=Usage(),
            run_id=self.run.run_id if self.run else None,
            durability=self.run.durability if self.run else "off",
            drifted=tuple(drifted),
        )

    def _encode(self, result: CrewOutput) -> Any:
        """As the root of a run: only which tasks; what they said is recorded already."""
        if self.run:
            return {"tasks": self._addresses()}
        data: dict[str, Any] = {"outputs": [output.raw for output in result.tasks_output]}
        if not result.drifted:
            return data
        others = {}
        for number, (filled, output) in enumerate(zip(self.filled, result.tasks_output, strict=True)):
            texts = {name: getattr(output, name) for name in _SHOWN}
            if other := {name: text for name, text in texts.items() if text != filled.texts[name]}:
                others[str(number)] = other
        return data | {"drifted": list(result.drifted), "answered": others}

    def _decode(self, data: Any) -> CrewOutput:
        if self.run is None:
            made = [
                filled.output_of({"raw": raw}).model_copy(update=data.get("answered", {}).get(str(number), {}))
                for number, (filled, raw) in enumerate(zip(self.filled, data["outputs"], strict=True))
            ]
            return self._result(made, data.get("drifted", ()))
        record = self.run.record
        others = {drifted.address: drifted for drifted in compare(record, self.filled).drifted}
        recorded = record.run["definition"]["tasks"]
        filled = {one.task: one for one in self.filled}
        live = {address: filled[task] for task, address in match(recorded, list(filled)).items()}
        outputs = []
        for fact in recorded:
            value, one = record.value(fact["address"]), live.get(fact["address"])
            if one:
                outputs.append(_answered(one.output_of(value), others.get(fact["address"])))
            else:
                about = {"name": fact.get("name"), "description": fact["description"], "expected_output": ""}
                outputs.append(TaskOutput(**about, raw=value["raw"], agent=value["agent"]))
        inner = [at for fact in recorded for at in record.outcomes[fact["address"]].drifted]
        return self._result(outputs, [*others, *inner])


def _answered(output: TaskOutput, drifted: Drifted | None) -> TaskOutput:
    """A task's output with the texts that it answers."""
    texts = {name: drifted.answered[name] for name in _SHOWN if name in drifted.answered} if drifted else {}
    return output.model_copy(update=texts) if texts else output


def _asked(assignment: Assignment, inputs: dict[str, Any]) -> Any:
    """What a task asked with other inputs; None if they would not do."""
    try:
        return assignment.filled(inputs).asked()
    except MissingInput:
        return None


def _drift(scope: Scope, address: str, *, changed: bool) -> Drift:
    """What a finished task does that is asked something else: because of a fork's edits or inputs, it runs again.

    Of a crew that is part of something else, nobody knows what it is asked else because of them; so all of it may be.
    """
    if not isinstance(scope, StepScope) or not changed:
        return "configured"
    record = scope.run.record
    if address in record.edited:
        return "keep"
    other_inputs = record.inputs_of(address) != record.run["inputs"]
    return "rerun" if other_inputs or record.edited else "configured"


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
