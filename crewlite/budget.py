"""Budgets: what a crew, a task or an agent may use. Settings, so they are no part of any question."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field

from crewlite.concurrency.pacing import Pace
from crewlite.usage import Usage


def no_limit() -> Any:
    """Return the field of a definition for a limit in US dollars or seconds: more than 0, and None without one.

    Infinity is no limit either. Definitions with it are recorded, so it must be taken.
    """
    return Field(default=None, gt=0)


class Budget(NamedTuple):
    """What one step and everything inside it may use; None for no limit.

    The first four hold for the step over all kickoffs of its run, `max_rpm` for all runs of the process together.
    """

    kind: str
    """crew, task or agent."""
    name: str
    max_tokens: int | None
    """Of prompts and completions."""
    max_cost_usd: float | None
    max_execution_time: float | None
    """Seconds at work: without the time in which the run waits for people, for `max_rpm`, or for a process to run
    it."""
    max_iter: int | None
    """Replies of models."""
    max_rpm: int | None
    """Model calls that begin within a minute. An agent's limit applies to the agent itself, not to its coworkers."""
    pace: Pace

    @property
    def limits_work(self) -> bool:
        """Whether it limits anything but the pace of calls."""
        limits = (self.max_tokens, self.max_cost_usd, self.max_execution_time, self.max_iter)
        return limits != (None, None, None, None)

    @property
    def limits_anything(self) -> bool:
        """Whether it has any limit."""
        return self.max_rpm is not None or self.limits_work

    @property
    def owner(self) -> str:
        """Whose budget it is, for messages."""
        return f"{self.kind} {self.name!r}"

    def reached(self, usage: Usage) -> tuple[str, float, float] | None:
        """Return the first limit that this usage has reached, as its setting, the limit, and what is used of it."""
        used: dict[str, tuple[float | None, float | None]] = {
            "max_tokens": (self.max_tokens, usage.total_tokens),
            "max_cost_usd": (self.max_cost_usd, usage.cost),
            "max_iter": (self.max_iter, usage.requests),
        }
        for setting, (limit, amount) in used.items():
            if limit is not None and amount is not None and amount >= limit:
                return setting, limit, amount
        return None
