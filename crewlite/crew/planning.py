"""Plan the tasks of a crew: a model makes one plan before the first task, and each task gets its part as text.

Planning is a recorded step, so a resume uses the same plan. The definitions of the tasks do not change.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from crewlite import durable, kinds
from crewlite.agent.loop import answer_as
from crewlite.agent.opening import with_recovery
from crewlite.crew.crew import Crew
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.events.family import FamilyEvents
from crewlite.llm.base import BaseLLM, Message
from crewlite.state.format.record import Record
from crewlite.step_parts import INHERITED, Drift
from crewlite.task.assignment import ContextItem, FilledTask
from crewlite.texts import templates

_PROMPTS = "crewlite.crew"
NAME = "plan#1"
"""What its address ends in: a crew makes one plan."""


class TaskPlan(BaseModel):
    """The plan for one task."""

    task: int = Field(description="The number of the task")
    plan: str = Field(description="Step by step, how its agent should go about it")


class CrewPlan(BaseModel):
    """The plans for all tasks."""

    plans: list[TaskPlan]


def plan_step(crew: Crew, llm: BaseLLM, tasks: Sequence[FilledTask], *, address: str, drift: Drift) -> Step[list[str]]:
    """Build the step in which the model plans: it returns a text for each task; "" for one that the plan leaves out."""

    async def act() -> list[str]:
        plan = await _asked(crew, llm, tasks)
        made = {one.task: one.plan for one in plan.plans}
        return [made.get(number, "") for number in range(1, len(tasks) + 1)]

    return Step(
        kind=kinds.PLAN,
        name=None,
        work=act,
        question=[one.asked() for one in tasks],
        events=FamilyEvents.plain(crew, kinds.PLAN),
        encode=codec.encode,
        decode=codec.decode,
        placeholder=lambda: [""] * len(tasks),
        address=address,
        policies=INHERITED,
        drift=drift,
    )


async def _asked(crew: Crew, llm: BaseLLM, tasks: Sequence[FilledTask]) -> CrewPlan:
    system: Message = {"role": "system", "content": templates.render(_PROMPTS, "planner.j2")}
    user: Message = {"role": "user", "content": templates.render(_PROMPTS, "plan.j2", tasks=tasks)}
    messages = with_recovery([user], (), durable.scope().recovery())
    who, title = "Crew Planner", f"plan of crew {crew.name!r}"
    return await answer_as(CrewPlan, llm, [system, *messages], role=who, title=title, verbose=crew.verbose, at=0)


def planned(texts: Sequence[str], number: int) -> list[ContextItem]:
    """Return a task's part of the plan as context; [] without a plan."""
    return [ContextItem(NAME, kinds.PLAN.name, texts[number])] if number < len(texts) else []


def recorded_plan(record: Record) -> list[str]:
    """Return the plan that a run has recorded, a text for each task; [] if it has none."""
    return list(codec.decode(record.value(NAME))) if NAME in record.outcomes else []
