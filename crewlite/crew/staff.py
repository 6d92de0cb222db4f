"""Assign the tasks of a crew to its agents or its manager, with their models and coworkers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from crewlite import durable
from crewlite.agent.agent import Agent
from crewlite.agent.guardrail import models_of
from crewlite.agent.knowing import Known
from crewlite.agent.persona import Worker
from crewlite.concurrency import resources
from crewlite.crew.crew import Crew
from crewlite.crew.process import Process
from crewlite.errors import NoModel
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM, with_fallbacks
from crewlite.llm.models import resolve_llm
from crewlite.task.assignment import Assignment
from crewlite.task.task import Task

if TYPE_CHECKING:
    from crewlite.crew import learned
    from crewlite.crew.learned import Suggestions
else:  # only for crews that were trained
    learned = lazy("crewlite.crew.learned")

MANAGER = Agent(
    role="Crew Manager",
    goal="Have your coworkers bring about the best possible answer to every task.",
    backstory=(
        "You lead a crew. You do not do the work yourself: you split it, delegate the parts to the coworkers who fit "
        "them, ask them what you need to know, and look at what they bring. What is wrong or missing you send back "
        "with the reason. When the whole meets what is expected, you give it as your own final answer."
    ),
)
"""The manager of a hierarchical crew that has none of its own. These texts are part of what each task asks, so every
task would run again if they changed."""


def assignments(crew: Crew) -> list[Assignment]:
    """Return the assignment of each task. Raises NoModel, which names every agent without a model."""
    staff = _Staff(crew)
    made = [staff.assignment(task) for task in crew.tasks]
    if staff.without:
        raise NoModel(list(dict.fromkeys(staff.without)))
    return [one for one in made if one]


def workers_of(made: Iterable[Assignment]) -> list[Worker]:
    """Return all who work on these tasks, each once."""
    return list(dict.fromkeys([worker for one in made for worker in (one.worker, *one.coworkers)]))


def models(made: Sequence[Assignment]) -> list[BaseLLM]:
    """Return the models that doing these tasks may call, without fallbacks."""
    workers = workers_of(made)
    guardrails = [guardrail for worker in workers for guardrail in worker.agent.guardrails]
    guardrails += [guardrail for one in made for guardrail in one.chain]
    judges = [resolve_llm([llm], agent="Guardrail") for llm in models_of(guardrails)]
    return [*[worker.llm for worker in workers], *judges]


async def ready(llms: Iterable[BaseLLM]) -> None:
    """Check that these models and their fallbacks can be called, before the first call is paid; not in a preview."""
    if not durable.scope().dry:
        for model in {id(model): model for llm in llms for model in with_fallbacks(llm)}.values():
            await resources.ready(model)


def planning_model(crew: Crew, made: Sequence[Assignment]) -> BaseLLM:
    """Return the model that plans for the crew."""
    return resolve_llm([crew.planning_llm, crew.llm, made[0].worker.llm], agent="Crew Planner")


def suggestions_for(crew: Crew) -> Suggestions:
    """Return what the agents of a crew have learned in training, by role. Raises ConfigError for an unusable file."""
    if crew.lessons is not None or crew.trained_agents_file is None:
        return crew.lessons or {}
    managers = (MANAGER,) if crew.process is Process.hierarchical and not crew.manager_agent else ()
    return learned.suggestions_in(crew.trained_agents_file, [one.role for one in (*crew.people(), *managers)])


class _Staff:
    """The workers of a crew, each made once."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._people, self._workers = crew, crew.people(), dict[Agent, Worker | None]()
        self._suggestions = suggestions_for(crew)
        self.without: list[str] = []
        """The roles of the agents without a model."""

    def assignment(self, task: Task) -> Assignment | None:
        """Return the assignment of a task; None if an agent in it has no model."""
        crew = self._crew
        doing = (crew.manager_agent or MANAGER) if crew.process is Process.hierarchical else task.agent
        assert doing
        worker, others = self._worker(doing), crew.coworkers_in(task, self._people)
        coworkers = [one for other in others if (one := self._worker(other))] if others else []
        if worker is None or len(coworkers) < len(others):
            return None
        return Assignment(task, worker, tuple(coworkers), crew.task_callback)

    def _worker(self, agent: Agent) -> Worker | None:
        if agent not in self._workers:
            self._workers[agent] = self._made(agent)
        return self._workers[agent]

    def _made(self, agent: Agent) -> Worker | None:
        crew = self._crew
        manages = agent is MANAGER or agent is crew.manager_agent
        try:
            llm = resolve_llm([agent.llm, crew.manager_llm if manages else None, crew.llm], agent=agent.role)
        except NoModel:
            self.without.append(agent.role)
            return None
        suggestions = tuple(self._suggestions.get(agent.role, ()))
        known, callback = Known(agent, crew), agent.step_callback or crew.step_callback
        return Worker(agent, llm, agent.budget, known, callback, suggestions)
