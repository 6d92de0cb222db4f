"""The root step of a crew: it works through the tasks, and gives each the outputs that it builds on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crewlite import durable, events, kinds
from crewlite.agent.persona import Filling
from crewlite.concurrency import background
from crewlite.crew import callbacks
from crewlite.crew.binding import compare, match
from crewlite.crew.crew import Crew
from crewlite.crew.order import Needs
from crewlite.crew.output import CrewOutput
from crewlite.crew.staff import models, ready
from crewlite.crew.tasks import TasksAtWork, answered, drift_of, unlike
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import AnswerMisfit, ConfigError, MissingInput
from crewlite.events.family import FamilyEvents
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM
from crewlite.runtime.steps.run import Run
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.format.addresses import around
from crewlite.state.format.record import Record
from crewlite.step_parts import Policies
from crewlite.task.assignment import Assignment, FilledTask
from crewlite.task.output import TaskOutput
from crewlite.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from crewlite.crew import planning
else:  # only for crews that plan
    planning = lazy("crewlite.crew.planning")

_EVENTS = events.CrewKickoffStartedEvent, events.CrewKickoffCompletedEvent, events.CrewKickoffFailedEvent


@dataclass(frozen=True, slots=True)
class Kickoff:
    """One kickoff of a crew. In a run of its own its tasks keep their recorded addresses."""

    crew: Crew
    assignments: Sequence[Assignment]
    fill: Callable[[Mapping[str, Any]], list[FilledTask]]
    """The tasks with inputs filled in. Raises MissingInput."""
    inputs: dict[str, Any]
    """The inputs of the kickoff, before callbacks change them."""
    needs: Sequence[Needs]
    """What each task needs of the others."""
    planning_llm: BaseLLM | None
    """The model that plans; None for a crew that does not plan."""
    run: Run | None
    """None if the crew is a step of another definition's run."""

    def step(self, question: Any) -> Step[CrewOutput]:
        """Build the step. `question`: what it is asked, as Step.question."""
        return Step(
            kind=kinds.CREW,
            name=self.crew.name,
            work=self._work,
            question=question,
            events=FamilyEvents(
                self.crew,
                _EVENTS,
                {"crew_name": self.crew.name},
                of_start=lambda: {"inputs": self.inputs},
                of_outcome=lambda result: {"output": result, "total_tokens": result.token_usage.total_tokens},
            ),
            given=self.inputs if self.crew.before_kickoff_callbacks else None,
            encode=self._encode,
            decode=self._decode,
            with_usage=self._with_usage,
            policies=Policies(inside=self.crew.failure_policy),
            budgets=(self.crew.budget,),
        )

    def _with_usage(self, result: CrewOutput, usage: Usage) -> CrewOutput:
        own = self.run.record.paid.own if self.run else usage
        return result.model_copy(update={"token_usage": usage, "own_usage": own})

    async def _work(self) -> CrewOutput:
        """Do all tasks. Tasks that a fork's inputs have changed run again, with the tasks that build on them."""
        scope = durable.scope()
        addresses = self._addresses()
        await ready(self._to_call(addresses))
        filled = self.fill(await callbacks.prepared(self.crew, self.inputs))
        if not scope.dry and any(one.output_file for one in filled):
            await background.in_thread(self._check_links, filled, addresses)
        addresses = addresses or [scope.reserve_address("task", one.task.address_name) for one in filled]
        changed, inner = self._changed(filled, addresses), self.run is None
        plan = await self._plan(filled, changed) if self.planning_llm else []
        tasks = TasksAtWork(filled, addresses, self.needs, self.crew.max_concurrency, changed, inner, plan)
        outputs = await tasks.work()
        drifted = scope.children.drifted if isinstance(scope, StepScope) else ()
        own = [address for address in addresses if address in drifted]
        result = self._result(outputs, tuple(dict.fromkeys((*own, *drifted))))
        return await self._finished(result) if self.crew.after_kickoff_callbacks else result

    async def _plan(self, filled: Sequence[FilledTask], changed: set[int]) -> list[str]:
        """Return the plan for the tasks. If a fork has changed the plan or a task, all tasks are added to `changed`."""
        assert self.planning_llm
        scope = durable.scope()
        address = scope.reserve_address("plan")
        if changed or (self.run and address in self.run.record.edited.keys() | around(self.run.record.edited)):
            changed |= set(range(len(filled)))
        drift = drift_of(scope, address, changed=bool(changed) or self.run is None)
        return await scope.step(planning.plan_step(self.crew, self.planning_llm, filled, address=address, drift=drift))

    def _changed(self, filled: Sequence[FilledTask], addresses: Sequence[str]) -> set[int]:
        """Return the tasks that a fork has changed: edited ones, and those that the new inputs ask something else."""
        if self.run is None:
            return set()
        record = self.run.record
        if not (record.edited or record.earlier_inputs):
            return set()
        edited = record.edited.keys() | around(record.edited)
        earlier = [Filling(codec.decode(inputs)) for _, inputs in record.earlier_inputs]
        return {
            number
            for number, (one, address) in enumerate(zip(filled, addresses, strict=True))
            if address in edited or any(self._asked(one.assignment, other) != one.asked() for other in earlier)
        }

    def _asked(self, assignment: Assignment, earlier: Filling) -> Any:
        """Return what a task asked with earlier inputs; None if these do not suffice, or callbacks have changed them.

        A wrong None does no harm: a task that is asked what it was asked before answers from the record.
        """
        try:
            return None if self.crew.before_kickoff_callbacks else assignment.filled(earlier).asked()
        except (MissingInput, ConfigError):  # its file must not be where those inputs would have it
            return None

    async def _finished(self, result: CrewOutput) -> CrewOutput:
        """Return the result, with its usage, as the after_kickoff_callbacks change it."""
        with_usage = result.model_copy(update={"token_usage": durable.scope().usage})
        changed = await callbacks.finished(self.crew, with_usage)
        return result.model_copy(update=changed)

    def _to_call(self, addresses: Sequence[str]) -> list[BaseLLM]:
        done = self.run.record.outcomes if self.run else {}
        left = [one for n, one in enumerate(self.assignments) if not addresses or addresses[n] not in done]
        return models(left) + ([self.planning_llm] if self.planning_llm and planning.NAME not in done else [])

    def _check_links(self, filled: Sequence[FilledTask], addresses: Sequence[str]) -> None:
        """Check that every output file that is still to be written may be written to its path."""
        done = self.run.record.outcomes if self.run else {}
        for number, one in enumerate(filled):
            if not addresses or addresses[number] not in done:
                one.check_links()

    def _addresses(self) -> list[str]:
        """Return the recorded addresses of the tasks; [] if the crew is a step of another definition's run."""
        return [fact["address"] for fact in self.run.record.run["definition"]["tasks"]] if self.run else []

    def _result(self, outputs: Sequence[TaskOutput], drifted: Sequence[str]) -> CrewOutput:
        last = next(output for output in reversed(outputs) if not output.skipped)
        return CrewOutput(
            raw=last.raw,
            pydantic=last.pydantic,
            json_dict=last.json_dict,
            tasks_output=tuple(outputs),
            token_usage=NO_USAGE,
            own_usage=NO_USAGE,
            run_id=self.run.run_id if self.run else None,
            durability=self.run.durability if self.run else "off",
            drifted=tuple(drifted),
        )

    def _encode(self, result: CrewOutput) -> Any:
        """Encode the result, without what is recorded elsewhere: in a run of its own, the outputs of the tasks."""
        more = self._changes(result) if self.crew.after_kickoff_callbacks else {}
        if self.run:
            return {"tasks": self._addresses()} | more
        data: dict[str, Any] = {"outputs": [output.raw for output in result.tasks_output]} | more
        others = {}
        for number, (filled, output) in enumerate(zip(self._unprepared(), result.tasks_output, strict=True)):
            if other := unlike(output, filled.texts()):
                others[str(number)] = other
        skipped = [number for number, output in enumerate(result.tasks_output) if output.skipped]
        data |= {"skipped": skipped} if skipped else {}
        paid = [output.token_usage.to_record() for output in result.tasks_output]
        data |= {"paid": paid} if any(paid) else {}
        return data | ({"drifted": list(result.drifted), "answered": others} if result.drifted or others else {})

    def _changes(self, result: CrewOutput) -> dict[str, Any]:
        """Return what the after_kickoff_callbacks have changed of the result, encoded."""
        last = self._result(result.tasks_output, ())
        fields = ((name, getattr(result, name)) for name in callbacks.CHANGEABLE)
        changed = {name: value for name, value in fields if value != getattr(last, name)}
        return {"changed": codec.encode_to_keep(changed)} if changed else {}

    def _unprepared(self) -> list[FilledTask]:
        """Return the tasks filled in, or with their placeholders if callbacks prepare the inputs."""
        if self.crew.before_kickoff_callbacks:
            filling = Filling(self.inputs, known=False)
            return [one.filled(filling) for one in self.assignments]
        return self.fill(self.inputs)

    def _decode(self, data: Any) -> CrewOutput:
        changed: dict[str, Any] = codec.decode(data.get("changed", {}))
        made = self._recorded(self.run, self.run.record) if self.run else self._decode_part(data)
        return made.model_copy(update=changed) if changed else made

    def _decode_part(self, data: Any) -> CrewOutput:
        """Decode the result of a crew that is a step of another definition's run."""
        skipped, others, paid = data.get("skipped", ()), data.get("answered", {}), data.get("paid")
        made = []
        for number, (filled, raw) in enumerate(zip(self._unprepared(), data["outputs"], strict=True)):
            usage = {"token_usage": Usage.of(paid[number])} if paid else {}
            output = filled.output_of({"raw": raw, "skipped": number in skipped})
            made.append(output.model_copy(update=usage | others.get(str(number), {})))
        return self._result(made, data.get("drifted", ()))

    def _recorded(self, run: Run, record: Record) -> CrewOutput:
        now = self.fill(callbacks.recorded_inputs(self.crew, record) or self.inputs)
        others = {drifted.address: drifted for drifted in compare(record, now).drifted}
        recorded = record.run["definition"]["tasks"]
        filled = {one.task: one for one in now}
        live = {address: filled[task] for task, address in match(recorded, list(filled)).items()}
        outputs = []
        for fact in recorded:
            address = fact["address"]
            try:
                output = answered(live[address].output_of(record.value(address)), others.get(address))
            except AnswerMisfit as unfit:
                where = {"run_id": run.run_id, "branch": run.branch}
                raise unfit.at(address, edited=record.outcomes[address].edited, **where) from None
            outputs.append(output.model_copy(update={"token_usage": record.paid.inside(address)}))
        inner = [at for fact in recorded for at in record.outcomes[fact["address"]].drifted]
        return self._result(outputs, [*others, *inner])
