"""Events of budgets."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class BudgetExceededEvent(BaseEvent):
    """A budget is used up, and the run stops. It goes on when it is kicked off with a higher limit."""

    type: Literal["budget_exceeded"] = "budget_exceeded"
    owner: str
    """Whose budget, such as "task 'write'"."""
    setting: str
    """max_tokens, max_cost_usd, max_execution_time or max_iter."""
    limit: float
    used: float
