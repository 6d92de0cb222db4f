"""The settings for an agent that plans. Light to import, as definitions hold them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crewlite.definition import Described


class PlanningConfig(Described):
    """How an agent plans its work, carries out the plan, and evaluates the result of each step."""

    reasoning_effort: Literal["low", "medium", "high"] = "medium"
    """low: the plan is carried out as it is. medium: after each step its model may say that the goal is achieved, or
    that another plan is needed. high: it may also put what is left into other words."""
    observe_steps: bool = True
    """False carries the plan out as it is, whatever the effort."""
    max_attempts: int | None = Field(default=None, ge=1)
    """Plans, until one is ready; None for one."""
    max_steps: int = Field(default=20, ge=1)
    """Steps in all, of all plans."""
    max_replans: int = Field(default=3, ge=0)
    """How often another plan may be made."""
    max_step_iterations: int = Field(default=15, ge=1)
    """Replies that one step may take."""
