"""A crew as the engine sees it during one kickoff: its assignments, the facts for the record, and its root step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Self

from crewlite import kinds
from crewlite.agent.agent import Agent
from crewlite.agent.persona import Filling
from crewlite.crew import callbacks
from crewlite.crew.binding import compare, described, match, rebound, shares
from crewlite.crew.crew import Crew
from crewlite.crew.order import needs_of
from crewlite.crew.output import CrewOutput
from crewlite.crew.staff import assignments, planning_model, workers_of
from crewlite.crew.step import Kickoff
from crewlite.durable import Step
from crewlite.encoding.codec import Json, JsonObject
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError, MissingInput
from crewlite.events.registry import checkpoint_event_types
from crewlite.runtime.kickoffs.facts import facts_of
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.questions import Comparison
from crewlite.runtime.steps.run import Run
from crewlite.state.format.addresses import outer
from crewlite.state.format.commit import RunStart
from crewlite.state.format.record import Record
from crewlite.state.verbs.accepted_inputs import inputs_of_definition
from crewlite.task.assignment import FilledTask

_OTHERS = ("lite_agent_", "crew_test_", "crew_train_", "agent_evaluation_", "task_evaluation")


class CrewRoot(Root[CrewOutput]):
    """A crew in one kickoff. It fills in the texts only once.

    Raises ConfigError if the crew has no tasks, NoModel if an agent has no model.
    """

    default_events = frozenset({"task_completed"})
    never_emitted = frozenset(name for name in checkpoint_event_types() if name.startswith(_OTHERS))
    default_name = Crew.model_fields["name"].default

    def __init__(self, crew: Crew) -> None:
        super().__init__(crew)
        if not crew.tasks:
            raise ConfigError(f"crew {crew.name!r} has no tasks: crew.tasks.append(Task(...))")
        self._crew, self._assignments, self._needs = crew, assignments(crew), needs_of(crew.tasks)
        self._filled: tuple[Mapping[str, Any], list[FilledTask]] | None = None
        self._facts: list[JsonObject] = []
        """Its facts once they were needed; roots of further kickoffs share them."""
        self._planning_llm = planning_model(crew, self._assignments) if crew.planning else None
        workers = workers_of(self._assignments)
        self.secret_sources += tuple(worker.llm for worker in workers)
        self.secret_sources += (self._planning_llm,) if self._planning_llm else ()
        people = [worker.agent for worker in workers]
        tools = [agent.may_use(agent.tools) for agent in people]
        tools += [
            task.agent.may_use(task.tools) if task.agent else tuple(task.tools) for task in crew.tasks if task.tools
        ]
        self.asks_approval = any(tool.requires_approval for given in tools for tool in given)
        self.asks_people = any(task.human_input for task in crew.tasks)
        self.log_file = _log_file(crew.output_log_file)
        self.verbose = crew.verbose or any(agent.verbose for agent in people)
        if any(one.coworkers for one in self._assignments):
            self.never_emitted = frozenset()

    def facts(self) -> JsonObject:
        """Return its texts with their placeholders, and the address that each task will have."""
        if not self._facts:
            self._facts.append(facts_of_crew(self._crew))
        return self._facts[0]

    def again(self) -> Self:
        """Return this root for another kickoff, whose inputs differ."""
        made = super().again()
        made._filled = None
        return made

    def facts_now(self, run: RunStart, finished: frozenset[str]) -> JsonObject:
        """Return the facts for a resumed run, in which each task keeps its recorded address. Raises TaskGone."""
        tasks, people = self._crew.tasks, self._crew.people()
        return facts_of_crew(self._crew, rebound(run["definition"]["tasks"], tasks, people, finished, run["run_id"]))

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise MissingInput if an input is missing, unless callbacks may still add it."""
        if not self._crew.before_kickoff_callbacks:
            try:
                self._with(inputs)
            except MissingInput as error:
                others = [name for name in self._crew.input_names() if name not in inputs and name != error.name]
                raise MissingInput(error.name, where=error.where, given=error.given, others=others) from None

    def question(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return what its root step is asked: the tasks, filled in but without the outputs that they build on.

        If callbacks prepare the inputs: the inputs that the callbacks get, and the tasks with their placeholders.
        """
        if self._crew.before_kickoff_callbacks:
            filling = Filling(inputs, known=False)
            unfilled = [one.filled(filling).asked() for one in self._assignments]
            return [self.name, {"prepared": comparable(dict(inputs))}, *unfilled]
        return [self.name, *[filled.asked() for filled in self._with(inputs)]]

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[CrewOutput]:
        """Build the root step, which works through the tasks."""
        kickoff = Kickoff(self._crew, self._assignments, self._with, inputs, self._needs, self._planning_llm, run)
        return kickoff.step(self.question(inputs))

    def compare(self, record: Record, inputs: Mapping[str, Any]) -> Comparison:
        """Compare what each task is asked now with what it was asked in the finished run."""
        return compare(record, self._with(callbacks.recorded_inputs(self._crew, record) or inputs))

    def shares(self, record: Record, inputs: Mapping[str, Any], mask: Callable[[str], str]) -> bool:
        """Return whether it may go on with the run: see `binding.shares`."""
        return shares(record, self._crew.tasks, inputs, mask)

    def _with(self, inputs: Mapping[str, Any]) -> list[FilledTask]:
        """Return its tasks with the inputs filled in. Raises MissingInput."""
        if self._filled is None or not _is_same(self._filled[0], inputs):
            filling = Filling(inputs)
            self._filled = inputs, [one.filled(filling) for one in self._assignments]
        return self._filled[1]


def _log_file(setting: bool | str | PathLike[str] | None) -> str | None:
    return "logs.txt" if setting is True else fspath(setting) if setting else None


def facts_of_crew(crew: Crew, tasks: Sequence[JsonObject] | None = None) -> JsonObject:
    """Return the facts about a crew for the record. `tasks`: those about its tasks; None for those of a new run."""
    own, people = facts_of(crew, Crew, ("name", "agents", "tasks", "manager_agent")), crew.people()
    agents = [facts_of(agent, Agent) for agent in people]
    tasks = described(crew.tasks, people) if tasks is None else tasks
    manager = {"manager": people.index(crew.manager_agent)} if crew.manager_agent else {}
    return {"kind": "crew", "name": crew.name, **own, **manager, "agents": agents, "tasks": list(tasks)}


def input_names(crew: Crew) -> list[str]:
    """Return the names of the placeholders in a crew's texts."""
    return inputs_of_definition(facts_of_crew(crew)) or []


def check_edit(crew: Crew, record: Record, address: str, value: Json) -> None:
    """Raise ConfigError for an edited answer of a task, or of a guardrail of it, that does not fit its output class."""
    if kinds.at(address).is_task:
        edited, answer = address, kinds.TASK.given(value)
    elif kinds.at(address) is kinds.GUARDRAIL and value[0] and value[1] is not None:
        edited, answer = outer(address), value[1]
    else:
        return
    for task, known in match(record.run["definition"]["tasks"], crew.tasks).items():
        if known == edited and task.shape:
            task.shape.check_edit(address, answer, f"task {task.title!r}")


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether both hold the same objects: not every value can be compared for equality."""
    return one.keys() == other.keys() and all(other[name] is value for name, value in one.items())
