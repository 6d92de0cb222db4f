"""An agent that plans before its work. It may carry out the plan step by step, and evaluate the result of each step.

Each plan and each evaluation is a recorded step, so a resume continues in the middle of the recorded plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from crewlite import durable, events, kinds
from crewlite.agent.agent import PlanningConfig
from crewlite.agent.loop import M, Work, answer_as, work
from crewlite.agent.shape import PROMPTS
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.events.family import FamilyEvents
from crewlite.kinds import Kind
from crewlite.llm.base import REMINDER, Message
from crewlite.step_parts import INHERITED
from crewlite.texts import templates

_ATTEMPTS = 3  # plans, until one is ready, where no setting says
_REASONING = (
    events.AgentReasoningStartedEvent,
    events.AgentReasoningCompletedEvent,
    events.AgentReasoningFailedEvent,
)
_OBSERVATION = (
    events.StepObservationStartedEvent,
    events.StepObservationCompletedEvent,
    events.StepObservationFailedEvent,
)


class Plan(BaseModel):
    """A plan, as a model makes it."""

    steps: list[str] = Field(min_length=1, description="What to do, one step after the other")
    ready: bool = Field(
        default=True, description="Whether the work can begin with this plan; false: it must be refined"
    )


class Observation(BaseModel):
    """What a model says of a step that was carried out."""

    step_completed_successfully: bool = Field(default=True, description="Whether the step came to what it should")
    key_information_learned: str = Field(default="", description="What was learned")
    goal_already_achieved: bool = Field(default=False, description="Whether all that was asked for is known by now")
    needs_full_replan: bool = Field(default=False, description="Whether what is left of the plan leads nowhere")
    replan_reason: str = Field(default="", description="Why, if so")
    refined_steps: list[str] = Field(
        default_factory=list, description="What is left of the plan in better words; empty: it stays as it is"
    )


async def prepare(job: Work, talk: list[Message]) -> None:
    """Have an agent that plans do so, and carry out the plan as its settings say. New messages are added to `talk`."""
    agent = job.persona.agent
    if config := agent.planner:
        await _carry_out(_Planning(job, talk, config.max_attempts or 1, config.max_steps), config)
    else:
        planning = _Planning(job, talk, agent.max_reasoning_attempts or _ATTEMPTS, None)
        _say(talk, "plan_made.j2", steps=await planning.steps())


async def _carry_out(planning: _Planning, config: PlanningConfig) -> None:
    job, talk, replans = planning.job, planning.talk, 0
    left, done = await planning.steps(), 0
    observes = config.observe_steps and config.reasoning_effort != "low"
    while left and done < config.max_steps:
        step, left, done = left[0], left[1:], done + 1
        _say(talk, "plan_step.j2", step=step, number=done)
        await work(dataclasses.replace(job, shape=None, max_iter=config.max_step_iterations), talk)
        if not observes:
            continue
        look = _Look(planning, done, step, left, replans if replans < config.max_replans else None, config)
        seen = await durable.scope().step(look.step())
        event, _ = look.follows(seen) or (None, {})
        if event is events.GoalAchievedEarlyEvent:
            break
        if event is events.PlanReplanTriggeredEvent:
            replans += 1
            left = await planning.steps(seen.replan_reason, left)
        elif event is events.PlanRefinementEvent:
            left = list(seen.refined_steps)
    _say(talk, "plan_done.j2")


def _say(talk: list[Message], prompt: str, **values: Any) -> None:
    talk.append({"role": "user", "content": templates.render(PROMPTS, prompt, **values), "name": REMINDER})


@dataclass(frozen=True, slots=True)
class _Planning:
    """Has an agent make plans, for its work and in its conversation."""

    job: Work
    talk: list[Message]
    attempts: int
    most: int | None
    """Steps that a plan may have."""

    async def steps(self, reason: str = "", left: Sequence[str] = ()) -> list[str]:
        """Have plans made until one is ready or no attempt is left; return the steps of the last one.

        `left`: the remaining steps of an earlier plan, which is replaced for this `reason`.
        """
        steps = list(left)
        for attempt in range(1, self.attempts + 1):
            plan = await durable.scope().step(self._step(attempt, reason if attempt == 1 else "", steps))
            steps = plan.steps[: self.most]
            if plan.ready:
                break
        return steps

    def _step(self, attempt: int, reason: str, refine: Sequence[str]) -> Step[Plan]:
        async def act() -> Plan:
            tools = [tool.name for tool in self.job.tools]
            more = {"reason": reason, "refine": refine, "tools": tools, "most": self.most}
            return await self.ask("plan.j2", Plan, **more)

        def plan_fields(plan: Plan) -> dict[str, Any]:
            steps = "\n".join(f"{number}. {step}" for number, step in enumerate(plan.steps, 1))
            return {"plan": steps, "ready": plan.ready}

        who = self.job.persona
        about = {"agent_role": who.role, "attempt": attempt}
        return _step(kinds.REASONING, act, Plan, FamilyEvents(who.agent, _REASONING, about, of_outcome=plan_fields))

    async def ask(self, prompt: str, form: type[M], **values: Any) -> M:
        """Ask the agent's model for data of the pydantic class `form`, and return it."""
        who, title = self.job.persona, f"plan of {self.job.title}"
        asked = templates.render(PROMPTS, prompt, **values)
        messages = (*self.talk, {"role": "user", "content": asked, "name": REMINDER})
        return await answer_as(form, who.llm, messages, role=who.role, title=title, verbose=who.agent.verbose)


@dataclass(frozen=True, slots=True)
class _Look:
    """The evaluation of a step of a plan, by the agent's model."""

    planning: _Planning
    number: int
    step_text: str
    left: Sequence[str]
    replans: int | None
    """The number of new plans so far; None if no further plan is allowed."""
    config: PlanningConfig

    def step(self) -> Step[Observation]:
        """Build the step that evaluates."""
        who = self.planning.job.persona
        about = {"agent_role": who.role, "step_number": self.number, "step_description": self.step_text}
        step_events = FamilyEvents(
            who.agent, _OBSERVATION, about, of_outcome=lambda seen: seen.model_dump(exclude={"refined_steps"})
        )
        return _step(kinds.OBSERVATION, self._seen, Observation, step_events)

    async def _seen(self) -> Observation:
        seen = await self.planning.ask("observe.j2", Observation, step=self.step_text, left=self.left)
        if follows := self.follows(seen):
            agent, (event, fields) = self.planning.job.persona.agent, follows
            about = {"agent_role": self.planning.job.persona.role, "step_number": self.number, **fields}
            await durable.scope().announce(agent, event, about)
        return seen

    def follows(self, seen: Observation) -> tuple[type[Any], dict[str, Any]] | None:
        """Return the event of what follows for the plan, with its fields; None if it is carried on as it is."""
        if seen.goal_already_achieved:
            return events.GoalAchievedEarlyEvent, {"steps_completed": self.number, "steps_remaining": len(self.left)}
        if seen.needs_full_replan and self.replans is not None:
            reason = {"replan_reason": seen.replan_reason}
            return events.PlanReplanTriggeredEvent, {**reason, "replan_count": self.replans + 1}
        if seen.refined_steps and self.left and self.config.reasoning_effort == "high":
            return events.PlanRefinementEvent, {"refinements": tuple(seen.refined_steps)}
        return None


def _step(kind: Kind, act: Callable[[], Any], model: type[Any], step_events: FamilyEvents) -> Step[Any]:
    return Step(
        kind=kind,
        name=None,
        work=act,
        question=None,
        chained=True,
        events=step_events,
        encode=lambda value: codec.encode(value.model_dump(mode="json")),
        decode=lambda data: model.model_validate(codec.decode(data)),
        policies=INHERITED,
    )
