"""Events of agents that plan."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _ReasoningEvent(BaseEvent):
    agent_role: str


class AgentReasoningStartedEvent(_ReasoningEvent):
    """An agent begins to plan."""

    type: Literal["agent_reasoning_started"] = "agent_reasoning_started"
    attempt: int
    """The number of the attempt at this plan, from 1."""


class AgentReasoningCompletedEvent(_ReasoningEvent):
    """A plan is recorded."""

    type: Literal["agent_reasoning_completed"] = "agent_reasoning_completed"
    attempt: int
    plan: str
    ready: bool
    """Whether the work begins with it, unless there are no more attempts."""


class AgentReasoningFailedEvent(_ReasoningEvent, ErrorFields):
    """No plan could be made."""

    type: Literal["agent_reasoning_failed"] = "agent_reasoning_failed"
    attempt: int


class StepObservationStartedEvent(_ReasoningEvent):
    """A step of a plan was carried out, and its agent looks at what it came to."""

    type: Literal["step_observation_started"] = "step_observation_started"
    step_number: int
    step_description: str


class StepObservationCompletedEvent(_ReasoningEvent):
    """What an agent says of a step of its plan is recorded."""

    type: Literal["step_observation_completed"] = "step_observation_completed"
    step_number: int
    step_description: str
    step_completed_successfully: bool
    key_information_learned: str
    goal_already_achieved: bool
    needs_full_replan: bool
    replan_reason: str


class StepObservationFailedEvent(_ReasoningEvent, ErrorFields):
    """An agent could not look at what a step of its plan came to."""

    type: Literal["step_observation_failed"] = "step_observation_failed"
    step_number: int
    step_description: str


class PlanRefinementEvent(_ReasoningEvent):
    """What is left of a plan is put into other words."""

    type: Literal["plan_refinement"] = "plan_refinement"
    step_number: int
    refinements: tuple[str, ...]


class PlanReplanTriggeredEvent(_ReasoningEvent):
    """What is left of a plan leads nowhere, and another is made."""

    type: Literal["plan_replan_triggered"] = "plan_replan_triggered"
    step_number: int
    replan_reason: str
    replan_count: int
    """How many plans there were before this one."""


class GoalAchievedEarlyEvent(_ReasoningEvent):
    """The goal is achieved before all steps of the plan are carried out."""

    type: Literal["goal_achieved_early"] = "goal_achieved_early"
    step_number: int
    steps_completed: int
    steps_remaining: int
