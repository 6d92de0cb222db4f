"""The definition of a crew, and its verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, cast

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from crewlite import kinds
from crewlite.agent.agent import Agent
from crewlite.agent.coworkers import problems_of
from crewlite.agent.guardrail import models_of, without_models
from crewlite.agent.input_files import FILES, as_files
from crewlite.budget import Budget, no_limit
from crewlite.crew.output import CrewOutput
from crewlite.crew.process import Process
from crewlite.crew.repeated import Repeated
from crewlite.definitions.definition import Definition, check_inputs, check_takes
from crewlite.definitions.field_list import FieldList
from crewlite.definitions.last_kickoff import Kickoff, keep, last
from crewlite.definitions.prompts_by_path import by_part
from crewlite.definitions.takes import Takes, left_out
from crewlite.errors import ConfigError
from crewlite.kinds import Kind
from crewlite.knowledge.knowledge import Knowledge, KnowledgeConfig, as_config, sources_of
from crewlite.knowledge.sources import KnowledgeSource, as_sources
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM, with_fallbacks
from crewlite.llm.models import ChatModel, as_model
from crewlite.recovery.port import Policy
from crewlite.runtime.kickoffs.request import (
    Bind,
    Finished,
    FromCheckpoint,
    KickoffOptions,
    Progress,
    Request,
    kickoff_options,
)
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.state.config import CheckpointConfig
from crewlite.task.output import TaskOutput
from crewlite.task.task import ConditionalTask, Task
from crewlite.texts.logs import logger
from crewlite.usage import Usage

if TYPE_CHECKING:
    from crewlite.crew.learned import Suggestions
    from crewlite.encoding.codec import Json
    from crewlite.runtime.kickoffs.root import Root
    from crewlite.state.format.record import Record

files = lazy("crewlite.project.crew_files")
rebuild = lazy("crewlite.crew.rebuild")  # the engine and what is made with it: who only defines a crew need not wait
root = lazy("crewlite.crew.root")

log = logger("crewlite")
_GIVEN = {"before_kickoff_callbacks": "the inputs", "after_kickoff_callbacks": "the CrewOutput"}


class Crew(Definition, Repeated, Runnable[CrewOutput]):
    """Agents and the tasks they work through.

    ```python
    from crewlite import Agent, Crew, Task

    researcher = Agent(role="Researcher", goal="Find what matters")
    research = Task(description="What drives {topic}?", expected_output="Three bullets", agent=researcher)
    crew = Crew(tasks=[research], llm="offline", checkpoint=True)
    result = crew.kickoff(inputs={"topic": "tides"}, run_id="tides-1")
    ```

    Run the script again with the same run_id: the run continues where it stopped, and no recorded work is paid again.
    """

    agents: Takes[Sequence[Agent], FieldList[Agent]] = left_out(FieldList())
    """If left out: those of the tasks, in order, also of tasks that are added later. A list that is set or changed
    stays as it is. The agents of the tasks work in the crew either way."""
    tasks: Takes[Sequence[Task], FieldList[Task]]
    """They may be added later, but a kickoff needs one."""
    name: str = "crew"
    process: Takes[Process | Literal["sequential", "hierarchical"], Process] = left_out(Process.sequential)
    max_concurrency: int | None = Field(default=None, ge=1, strict=True)
    """How many tasks are at work at once, where some are async; None: as many as can be."""
    llm: Takes[BaseLLM | str | ChatModel | None, BaseLLM | str | None] = left_out(None)
    """For agents without a model of their own; None takes CREWLITE_MODEL."""
    manager_llm: Takes[BaseLLM | str | ChatModel | None, BaseLLM | str | None] = left_out(None)
    """The model of the manager of a hierarchical crew, unless manager_agent has one. None in any other crew."""
    manager_agent: Agent | None = None
    """The manager of a hierarchical crew, in the place of one that is made. It has no tools of its own. None in any
    other crew."""
    planning: bool = False
    """A plan is made before the first task, in one recorded step, and its text is given to each task."""
    planning_llm: Takes[BaseLLM | str | ChatModel | None, BaseLLM | str | None] = left_out(None)
    """Makes the plan; None takes the crew's model, else that of the first task."""
    before_kickoff_callbacks: Takes[Sequence[Callable[..., Any]], FieldList[Callable[..., Any]]] = left_out(FieldList())
    """Called in order with the inputs, before the first task; each returns the inputs to go on with, or changes those
    that it is given. May be async. What each returns is recorded, so a resume does not call it again."""
    after_kickoff_callbacks: Takes[Sequence[Callable[..., Any]], FieldList[Callable[..., Any]]] = left_out(FieldList())
    """Called in order with the result; each may change its `raw` and `json_dict`, or return a copy that differs in
    these, or a new `raw`. May be async. Recorded."""
    knowledge_sources: Takes[Sequence[KnowledgeSource | str | Path], FieldList[KnowledgeSource]] = left_out(FieldList())
    """What all its agents know, beside what each knows itself."""
    knowledge: Knowledge | None = None
    """Sources as one object, beside those in knowledge_sources."""
    knowledge_config: Takes[KnowledgeConfig | Mapping[str, Any] | None, Mapping[str, Any] | None] = left_out(None)
    """As for Agent, for agents that have none."""
    step_callback: Callable[..., Any] | None = None
    """For agents without a step_callback of their own."""
    task_callback: Callable[[TaskOutput], Any] | None = None
    """Called with the output of every task, after the task's own callback. May be async."""
    trained_agents_file: str | PathLike[str] | None = None
    """A file that `train` has written: each agent gets the suggestions for its role. With a new file, its tasks are
    asked something else."""
    max_tokens: int | None = Field(default=None, ge=1)
    """A budget: the tokens that a run may use, with all resumes. When it is used up, the run stops with BudgetExceeded;
    kicked off again with more, it goes on."""
    max_cost_usd: float | None = no_limit()
    """US dollars that a run may use, likewise."""
    max_execution_time: float | None = no_limit()
    """Seconds at work, likewise."""
    max_iter: int | None = Field(default=None, ge=1)
    """Replies of models that a run may use, likewise."""
    max_rpm: int | None = Field(default=None, ge=1)
    """Model calls of all its agents that begin within a minute, in all runs of the process; others wait."""
    verbose: bool = False
    """Show progress while it runs."""
    streamed: bool = Field(default=False, alias="stream")
    """Given as `stream=True`: `kickoff` returns a StreamingOutput, and models are asked for their replies in pieces."""
    output_log_file: bool | str | PathLike[str] | None = None
    """A file that each kickoff appends its progress to: a line for each important event, or all events as JSON lines if
    the name ends in `.json`. True is `logs.txt`."""
    checkpoint: CheckpointConfig | bool | None = None
    """True takes the defaults: JSON files in ./.checkpoints, one per finished task."""
    failure_policy: Policy | None = None
    """Decides on failures of everything inside: tasks, model calls, tools; None inherits from an enclosing flow."""

    _lessons: Mapping[str, Sequence[str]] | None = PrivateAttr(default=None)
    """Suggestions in the place of those in its file."""

    run_kind: ClassVar[Kind] = kinds.CREW

    _llm = field_validator("llm", "manager_llm", mode="before")(as_model)
    _sources = field_validator("knowledge_sources", mode="before")(as_sources)
    _knows = field_validator("knowledge_config", mode="before")(as_config)

    @field_validator("before_kickoff_callbacks", "after_kickoff_callbacks", mode="before")
    @classmethod
    def _is_list_of_functions(cls, value: object, info: ValidationInfo) -> object:
        if callable(value):
            raise ConfigError(f"{info.field_name} is one function; wanted a list: {info.field_name}=[...]")
        for number, callback in enumerate(value if isinstance(value, list | tuple) else ()):
            check_takes(callback, f"{info.field_name}[{number}]", _GIVEN[info.field_name or ""])
        return value

    @field_validator("trained_agents_file", mode="after")
    @classmethod
    def _is_recorded(cls, value: str | PathLike[str] | None) -> str | None:
        return None if value is None else fspath(value)

    @model_validator(mode="after")
    def _drop_manager(self) -> Crew:
        """Leave out what only the manager of a hierarchical crew uses, as CrewAI does, and log a warning."""
        for name in ("manager_llm", "manager_agent"):
            if self.process is not Process.hierarchical and getattr(self, name) is not None:
                log.warning("crewlite: %s of a crew has no effect without process=Process.hierarchical.", name)
                vars(self)[name] = None
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Crew:
        self._check()
        return self

    def _check(self) -> None:
        """Raise ConfigError if its parts do not fit together: they may have been set since it was made."""
        given = self.agents if "agents" in self.model_fields_set else ()
        if not given:  # not as a field that is set: a copy with other tasks has the agents of those
            self.agents.hold(dict.fromkeys(task.agent for task in self.tasks if task.agent))
            self.__pydantic_fields_set__.discard("agents")
        problems = list[str]()
        managed = self.process is Process.hierarchical
        problems += self._managed_by(given) if managed else ()
        people, earlier = self.people(), set[Task]()
        for task in self.tasks:
            if task.agent is None and not managed:
                problems.append(f"task {task.title!r} has no agent: Task(..., agent=...)")
            for other in task.context or ():
                if other not in earlier:
                    problems.append(f"task {task.title!r} builds on {other.title!r}, which {self._where(other, task)}")
            problems += self._out_of_reach(task, people)
            earlier.add(task)
        if self.tasks and isinstance(self.tasks[0], ConditionalTask):
            problems.append(f"task {self.tasks[0].title!r} is the first, so its condition has no output to decide by")
        if len(earlier) < len(self.tasks):
            problems.append("a task is listed twice; make a second Task")
        if problems:
            raise ConfigError("; ".join(problems))

    def _where(self, task: Task, builder: Task) -> str:
        """Return in words where a task is that `builder` builds on, and that no earlier one in the list is."""
        if task in self.tasks:
            return "is the task itself: take it out of its context" if task is builder else "comes later"
        namesake = task.name and any(one.name == task.name for one in self.tasks)
        return f"is not in this crew{', though another task of that name is: build on that one' if namesake else ''}"

    def _out_of_reach(self, task: Task, people: Sequence[Agent]) -> Iterator[str]:
        """Yield the problems that keep the agent of a task from working with coworkers."""
        if not (coworkers := self.coworkers_in(task, people)):
            return
        doing = self.manager_agent if self.process is Process.hierarchical else task.agent
        tools = (*(doing.tools if doing else ()), *task.tools)
        yield from problems_of(f"task {task.title!r}", [one.role for one in coworkers], tools)

    def _managed_by(self, given: Sequence[Agent]) -> Iterator[str]:
        """Yield the problems that keep the crew from being hierarchical."""
        if self.manager_llm is None and self.manager_agent is None:
            yield "a hierarchical crew needs manager_llm=... or manager_agent=..."
        if self.manager_agent and self.manager_agent.tools:
            yield "manager_agent has tools; a manager works through the agents, so give the tools to one of them"
        if self.manager_agent and self.manager_agent in self.agents:
            yield "manager_agent is also one of the agents; a manager works through others"
        if not given and any(task.agent in (None, self.manager_agent) for task in self.tasks):
            yield "a task without an agent, or with the manager as its agent, needs agents=[...] to delegate to"

    @property
    def run_name(self) -> str:
        """The crew's name."""
        return self.name

    @kickoff_options("kickoff of a crew")
    def as_request(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        input_files: Mapping[str, Any] | Sequence[Any] | None = None,
        **options: Unpack[KickoffOptions],
    ) -> Request:
        """Build the request of a kickoff with these arguments. Files become inputs, so a resume knows them."""
        check_inputs(inputs)
        given = {**(inputs or {}), FILES: files} if (files := as_files(input_files)) else inputs
        return Request(given, streamed=self.streamed, **options)

    def relies_on(self) -> tuple[Definition, ...]:
        """Return the crew, its tasks and its agents."""
        return self, *self.tasks, *self.people()

    def as_root(self, request: Request) -> Root[CrewOutput]:
        """Build the Root that the engine runs. Raises NoModel, which names every agent without a model."""
        self._check()
        return cast("Root[CrewOutput]", root.CrewRoot(self))

    def as_result(self, finished: Finished[CrewOutput]) -> CrewOutput:
        """Return the output, with its durability: how reliably the run was saved."""
        same = finished.value.durability == finished.durability
        return finished.value if same else finished.value.model_copy(update={"durability": finished.durability})

    def _note_kickoff(self, progress: Progress) -> None:
        """Let `task.output` and `usage_metrics` return what this kickoff came to."""

        def output_of(task: int) -> Callable[[CrewOutput], TaskOutput | None]:
            whole = len(self.tasks)
            return lambda output: output.tasks_output[task] if len(output.tasks_output) == whole else None

        tasks = {task: Kickoff(lambda: progress.outcome, output_of(n)) for n, task in enumerate(self.tasks)}
        keep({self: Kickoff(lambda: progress.outcome, lambda output: output.token_usage), **tasks})

    @property
    def budget(self) -> Budget:
        """The limits on the tokens, cost and time of a run."""
        limits = self.max_tokens, self.max_cost_usd, self.max_execution_time, self.max_iter, self.max_rpm
        return Budget(kinds.CREW.name, self.name, *limits, self._pace)

    @property
    def usage_metrics(self) -> Usage | None:
        """The usage of the last kickoff in this context, which is also `token_usage` of its result; None before one."""
        found: Usage | None = last(self)
        return found

    @classmethod
    def from_yaml(
        cls, agents: str | PathLike[str], tasks: str | PathLike[str] | None = None, *, bind: Bind = None, **fields: Any
    ) -> Self:
        """Build a crew from two YAML files, with CrewAI's keys: `Crew.from_yaml("config", bind=[search])`.

        Args:
            agents: The file of agents; or the folder that holds `agents.yaml` and `tasks.yaml`.
            tasks: The file of tasks, which run in the order of the file.
            bind: The objects that the files only name: tools, models, callbacks and output classes, by name. A list of
                tools binds each tool by its own name.
            fields: The other fields of the Crew.

        Raises:
            ConfigError: a file has unknown or repeated keys, values of a wrong type, or names that nothing has. It
                lists all of them, each with its line.
        """
        crew: Self = files.crew_of(cls, agents, tasks, bind, fields)
        return crew

    @classmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Self:
        """Rebuild the crew from the record of its run, as `from_checkpoint` does."""
        crew: Self = rebuild.rebuilt(cls, source, bind)
        return crew

    def known_by(self) -> list[str]:
        """Return the names of its tasks; of a task without a name, the description."""
        return [task.name or task.description for task in self.tasks]

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return inputs as the runs of the crew record them."""
        return inputs

    def input_names(self) -> list[str]:
        """Return the placeholders in the texts of its tasks and agents."""
        names: list[str] = root.input_names(self)
        return names

    def check_edit(self, record: Record, address: str, value: Json) -> None:
        """Raise ConfigError for an edited answer that does not fit the output class of its task."""
        root.check_edit(self, record, address, value)

    def secret_sources(self) -> tuple[object, ...]:
        """Return the live objects whose fields are searched for secrets, the crew itself first."""
        own = [self.llm, self.manager_llm, self.planning_llm]
        own += models_of(guardrail for task in self.tasks for guardrail in task.chain)
        models = [part for llm in own if isinstance(llm, BaseLLM) for part in with_fallbacks(llm)]
        people = [part for agent in self.people() for part in agent.secret_sources()]
        work = [part for task in self.tasks for part in (task, *task.tools)]
        return (self, *models, *people, *work, *sources_of(self))

    def inner_settings(self) -> tuple[CheckpointConfig | bool | None, ...]:
        """Return the checkpoint settings of its tasks and their agents."""
        return (*[task.checkpoint for task in self.tasks], *[agent.checkpoint for agent in self.people()])

    def people(self) -> tuple[Agent, ...]:
        """Return all its agents, each once, with a manager_agent last."""
        manager = (self.manager_agent,) if self.manager_agent else ()
        return tuple(dict.fromkeys((*self.agents, *[task.agent for task in self.tasks if task.agent], *manager)))

    def coworkers_in(self, task: Task, people: Sequence[Agent]) -> tuple[Agent, ...]:
        """Return the coworkers to whom the agent of this task, or the manager, may delegate work.

        `people`: what `people` returns, which is the same for all tasks.
        """
        agent, managed = task.agent, self.process is Process.hierarchical
        if managed and agent and agent is not self.manager_agent:
            return (agent,)
        if not managed and not (agent and agent.allow_delegation):
            return ()
        return tuple(one for one in people if one is not self.manager_agent and one is not agent)

    def taught(self, suggestions: Suggestions) -> Self:
        """Return a copy whose agents get these suggestions, by role, instead of those in trained_agents_file."""
        copied = self.model_copy()
        copied._lessons = suggestions
        return copied

    @property
    def lessons(self) -> Suggestions | None:
        """The suggestions that `taught` has set; None for a crew that uses its trained_agents_file."""
        return self._lessons

    def with_model(self, llm: BaseLLM | str) -> Self:
        """Return a copy in which every agent uses this model."""
        judged = {task: {"guardrail": None, "guardrails": without_models(task.chain)} for task in self.tasks}
        made = self._with_parts({agent: agent.with_model(llm) for agent in self.people()}, judged)
        changed = {name: llm for name in ("manager_llm", "planning_llm") if getattr(self, name)}
        return made.model_copy(update={"llm": llm, **changed})

    def with_prompts(self, prompts: Mapping[str, str]) -> Self:
        """Return a copy with other texts, by paths such as `tasks.research.description` and `agents.Researcher.goal`.

        Of tasks these are `description` and `expected_output`, of agents `goal` and `backstory`. Raises ConfigError for
        a path that names no text.
        """
        agents = {agent: f"agents.{agent.role}" for agent in self.people()}
        tasks = {task: f"tasks.{task.address_name or number}" for number, task in enumerate(self.tasks, 1)}
        fields = dict.fromkeys(tasks.values(), ("description", "expected_output"))
        given = by_part(prompts, {**fields, **dict.fromkeys(agents.values(), ("goal", "backstory"))})
        people = {agent: agent.with_(**given[path]) if path in given else agent for agent, path in agents.items()}
        return self._with_parts(people, {task: given.get(path, {}) for task, path in tasks.items()})

    def _with_parts(self, people: Mapping[Agent, Agent], fields: Mapping[Task, Mapping[str, Any]]) -> Self:
        """Return a copy with these agents in place of its own, and with other fields of its tasks."""
        tasks: dict[Task, Task] = {}
        for task in self.tasks:  # a task builds on earlier ones only
            context = None if task.context is None else FieldList(tasks[other] for other in task.context)
            agent = people[task.agent] if task.agent else None
            tasks[task] = task.model_copy(update={"agent": agent, "context": context, **fields[task]})
        agents = FieldList(people[agent] for agent in self.agents)
        manager = people[self.manager_agent] if self.manager_agent else None
        made = self.model_copy(update={"agents": agents, "tasks": FieldList(tasks.values()), "manager_agent": manager})
        if "agents" not in self.model_fields_set:
            made.__pydantic_fields_set__.discard("agents")
        return made
