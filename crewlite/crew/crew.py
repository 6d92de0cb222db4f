"""The definition of a crew, and its verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import EnumType, StrEnum
from typing import Any, ClassVar, Self
from uuid import UUID

from pydantic import Field, model_validator

from crewlite.agent.agent import Agent
from crewlite.codec import JsonObject
from crewlite.crew.binding import described, rebound
from crewlite.crew.drift import Cast, compare, shares
from crewlite.crew.output import CrewOutput
from crewlite.crew.rebuild import rebuilt
from crewlite.crew.step import crew_step, question
from crewlite.definition import Definition
from crewlite.durable import together
from crewlite.errors import ConfigError, NoModel
from crewlite.events.registry import checkpoint_event_types
from crewlite.llm.base import BaseLLM
from crewlite.llm.call import ways
from crewlite.llm.models import resolve_llm
from crewlite.permits import width
from crewlite.refs import as_run_id
from crewlite.runtime.door import run_sync
from crewlite.runtime.engine import kickoff
from crewlite.runtime.facts import facts_of
from crewlite.runtime.fork import ForkVerb
from crewlite.runtime.kickoff import FromCheckpoint, Request, Root, identity_of
from crewlite.runtime.preview import Preview, preview
from crewlite.runtime.rebuild import Bind
from crewlite.state.commit import RunStart
from crewlite.state.config import CheckpointConfig
from crewlite.state.fork import TEMPLATES
from crewlite.task.step import Filled
from crewlite.task.task import Task
from crewlite.templates import placeholders

_SILENT = frozenset(name for name in checkpoint_event_types() if name.startswith("lite_agent_"))


class _Known(EnumType):
    """An enum that says what it has when it is asked for what it has not."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_") or name in cls._member_map_:
            return super().__getattribute__(name)
        known = ", ".join(f"{cls.__name__}.{member}" for member in cls._member_map_)
        raise AttributeError(f"{cls.__name__} has no {name!r}; this release knows {known} only")


class Process(StrEnum, metaclass=_Known):
    """In which order a crew works."""

    sequential = "sequential"
    """One task after the other."""


class Crew(Definition):
    """Agents and the tasks they work through.

    ```python
    from crewlite import Agent, Crew, Task

    researcher = Agent(role="Researcher", goal="Find what matters")
    research = Task(description="What drives {topic}?", expected_output="Three bullets", agent=researcher)
    crew = Crew(tasks=[research], llm="offline", checkpoint=True)
    result = crew.kickoff(inputs={"topic": "tides"}, run_id="tides-1")
    ```

    Run the script again with the same run_id and it goes on where it stopped; nothing recorded is paid again.
    """

    agents: tuple[Agent, ...] = ()
    """May be left out: every task names its agent."""
    tasks: tuple[Task, ...] = Field(min_length=1)
    name: str = "crew"
    process: Process = Process.sequential
    llm: BaseLLM | str | None = None
    """For agents without a model of their own; None takes CREWLITE_MODEL."""
    verbose: bool = False
    """Show progress while it runs."""
    checkpoint: CheckpointConfig | bool | None = None
    """True takes the defaults: JSON files in ./.checkpoints, one per finished task."""

    fork: ClassVar[ForkVerb] = ForkVerb()

    @classmethod
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Bind = None) -> Self:
        """Rebuild a crew from what its run recorded; its `kickoff()` goes on with that run.

        What is plain was recorded. Models, tools, callbacks and classes were not: only that there were some, and what
        they were called. They are passed in `bind`; one error lists all that are missing. Reads the disk, writes
        nothing and imports nothing.

        Args:
            config: A ref to the run, or CheckpointConfig(restore_from=ref).
            bind: What no record holds, by path (`agents.Researcher.llm`, `agents.Researcher.tools.search`,
                `tasks.research.callback`, `llm` for the crew's own) or by last word: `search` binds every missing tool
                of that name. None as a value leaves the part out. The path of a plain field overrides what was
                recorded. A list of tools binds each by its name. An `LLM(...)` is rebuilt from its settings if its key
                is in the environment.

        Raises:
            BindMissing: live parts that were not passed; it lists all of them.
            ConfigError: a key of `bind` that binds nothing, or a part that does not fit.
            RefError, JournalCorrupt, StoreError: the ref names nothing, or nothing sound.
            RunMismatch: a run of something else than a crew.
        """
        return rebuilt(cls, config, bind)

    @model_validator(mode="after")
    def _fits_together(self) -> Crew:
        problems = []
        for number, task in enumerate(self.tasks):
            if task.agent is None:
                problems.append(f"task {task.title!r} has no agent: Task(..., agent=...)")
            for other in task.context or ():
                if other not in self.tasks[:number]:
                    where = "comes later" if other in self.tasks else "is not in this crew"
                    problems.append(f"task {task.title!r} builds on {other.title!r}, which {where}")
        if len(set(self.tasks)) < len(self.tasks):
            problems.append("a task is listed twice; make a second Task")
        if problems:
            raise ConfigError("; ".join(problems))
        return self

    def kickoff(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
    ) -> CrewOutput:
        """Run the crew and wait for its result.

        Args:
            inputs: Values for the `{placeholders}` of tasks and agents. A resume needs none, or the same.
            run_id: Name of the run: started if new, gone on with if unfinished, its stored result if finished.
            from_checkpoint: A ref, or CheckpointConfig(restore_from=ref), to go on from. Fields that are set on it
                override the crew's own configuration.
            answers: For calls in doubt: address to result.
            rerun: Addresses of calls in doubt to make again.
            resume: Go on with the newest unfinished run of this crew with these inputs that nobody is at work on; begin
                a new run if there is none.

        Raises:
            ConfigError, MissingInput, NoModel, StoreUnusable: before anything was paid.
            RunMismatch, InputsChanged, QuestionsChanged, PlaceIsBehind, TaskGone, TaskDrifted, BranchConflictError: a
                resume that cannot be.
            InDoubt: a call declared effect="once" was cut in the middle.
            StoreError: a save failed, with on_save_error="raise".
        """
        request = Request(inputs, run_id, from_checkpoint, answers, rerun, resume)
        return run_sync("kickoff", lambda: self._kickoff(request), lambda: request.how_to_go_on("crew"))

    async def akickoff(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
    ) -> CrewOutput:
        """`kickoff`, to await on a loop of your own."""
        return await self._kickoff(Request(inputs, run_id, from_checkpoint, answers, rerun, resume))

    def kickoff_for_each(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        run_id: str | UUID | None = None,
        max_concurrency: int | None = None,
    ) -> list[CrewOutput]:
        """Run the crew once for each set of inputs, side by side. Results come in the order of the inputs.

        At most `max_concurrency` runs are at work at once: 32, unless CREWLITE_MAX_CONCURRENCY says otherwise.

        With a `run_id`, the runs are `run_id.0`, `run_id.1`, ..., each of which can be gone on with alone. If one
        fails, the others still end before the failure is raised. Raises ConfigError for a crew that is bound to a run,
        and what `kickoff` raises.
        """
        if self._bound is not None:
            raise ConfigError(
                "This crew is bound to one run, and kickoff_for_each starts several: "
                "crew.bound_to(None).kickoff_for_each(...)"
            )
        name = None if run_id is None else as_run_id(run_id)
        requests = [Request(each, f"{name}.{n}" if name else None) for n, each in enumerate(inputs)]

        if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
            raise ConfigError(f"max_concurrency is {max_concurrency!r}; wanted a whole number, 1 or more")
        free = asyncio.Semaphore(max_concurrency or width())

        async def in_turn(request: Request) -> CrewOutput:
            async with free:
                return await self._kickoff(request)

        async def all_of_them() -> list[CrewOutput]:
            return await together([in_turn(request) for request in requests])

        return run_sync("kickoff_for_each", all_of_them, lambda: "Call kickoff_for_each again with the same run_id.")

    def identity(self) -> str:
        """The same for every crew of this name whose tasks have these names, or else descriptions."""
        return identity_of("crew", self.name, [task.name or task.description for task in self.tasks])

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inputs as its runs record them."""
        return inputs

    def input_names(self) -> list[str]:
        """The placeholders in the texts of its tasks and agents."""
        parts = (*self.tasks, *self._people())
        texts = [getattr(part, name, None) for part in parts for name in TEMPLATES]
        return [name for text in texts if text for name in placeholders(text)]

    def preview(self, inputs: Mapping[str, Any] | None = None, *, from_checkpoint: FromCheckpoint = None) -> Preview:
        """What `kickoff` would do with these arguments: which tasks answer from the record, which run, and why.

        For a crew that is bound, as `fork` returns it, or with a ref. Asks no model, does no step and writes nothing;
        the run may be at work meanwhile. Raises what kickoff raises before it pays for anything, and ConfigError if it
        is not told what to go on from.
        """
        request = Request(inputs, None, from_checkpoint)
        return run_sync("preview", lambda: self._preview(request), lambda: "Nothing was changed.")

    async def apreview(
        self, inputs: Mapping[str, Any] | None = None, *, from_checkpoint: FromCheckpoint = None
    ) -> Preview:
        """`preview`, to await on a loop of your own."""
        return await self._preview(Request(inputs, None, from_checkpoint))

    async def _preview(self, request: Request) -> Preview:
        return await preview(self._root(self._cast()), request.going_on_from(self._bound))

    async def _kickoff(self, request: Request) -> CrewOutput:
        cast = self._cast()
        with request.shown(self.verbose or any(agent.verbose for _, agent, _ in cast)):
            return await kickoff(self._root(cast), request.going_on_from(self._bound))

    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for."""
        models = ways(self.llm) if isinstance(self.llm, BaseLLM) else ()
        people = [part for agent in self._people() for part in agent.secret_sources()]
        work = [part for task in self.tasks for part in (task, *task.tools)]
        return (self, *models, *people, *work)

    def _root(self, cast: Cast) -> Root[CrewOutput]:
        return Root(
            kind="crew",
            name=self.name,
            definition=self._facts(described(self.tasks, self._people())),
            identity=self.identity(),
            setting=self.checkpoint,
            inner=tuple(setting for task, agent, _ in cast for setting in (task.checkpoint, agent.checkpoint)),
            natural=frozenset({"task_completed"}),
            silent=_SILENT,
            holds=(*self.secret_sources(), *(llm for _, _, llm in cast)),
            check=lambda inputs: _fill(cast, inputs),
            asks=lambda inputs: question(self, cast, inputs),
            compare=lambda record, inputs: compare(record, cast, inputs),
            shares=lambda record, inputs, mask: shares(record, cast, inputs, mask),
            default_name=Crew.model_fields["name"].default,
            step=lambda inputs, run: crew_step(self, cast, inputs, run),
            asks_people=any(task.human_input or _wants_approval(agent, task) for task, agent, _ in cast),
            rebind=self._rebind,
        )

    def _cast(self) -> Cast:
        """Who does what with which model. Raises NoModel naming every agent without one."""
        cast, without = [], []
        for task in self.tasks:
            assert task.agent
            try:
                cast.append((task, task.agent, resolve_llm([task.agent.llm, self.llm], agent=task.agent.role)))
            except NoModel:
                without.append(task.agent.role)
        if without:
            raise NoModel(list(dict.fromkeys(without)))
        return cast

    def _people(self) -> tuple[Agent, ...]:
        """All its agents, each once."""
        return tuple(dict.fromkeys((*self.agents, *(task.agent for task in self.tasks if task.agent))))

    def _facts(self, tasks: list[JsonObject]) -> JsonObject:
        own = facts_of(self, Crew, ("name", "agents", "tasks"))
        agents = [facts_of(agent, Agent) for agent in self._people()]
        return {"kind": "crew", "name": self.name, **own, "agents": agents, "tasks": tasks}

    def _rebind(self, run: RunStart, finished: frozenset[str]) -> JsonObject:
        recorded = run["definition"]["tasks"]
        return self._facts(rebound(recorded, self.tasks, self._people(), finished, run["run_id"]))


def _wants_approval(agent: Agent, task: Task) -> bool:
    return any(tool.requires_approval for tool in (*agent.tools, *task.tools))


def _fill(cast: Cast, inputs: Mapping[str, Any]) -> None:
    for task, agent, _ in cast:
        Filled.of(task, agent, inputs)
