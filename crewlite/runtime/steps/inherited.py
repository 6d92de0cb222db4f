"""What a step hands down to the steps inside it: one frozen value, so that no step can change another's."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from crewlite.durable import Step
from crewlite.recovery import Policy
from crewlite.runtime.steps.budgets import HeldBudget
from crewlite.runtime.steps.replay import Mode
from crewlite.runtime.steps.slots import Slots
from crewlite.state.subscriber import Setting
from crewlite.step_parts import Limit


class Inherited(NamedTuple):
    """The settings and the slots that a step hands down to the steps inside it."""

    mode: Mode
    settings: tuple[Setting, ...] = ()
    """Checkpoint settings of this step and the enclosing steps, innermost first."""
    limits: tuple[Limit, ...] = ()
    """Limits on how many steps run at once, which apply to every step inside."""
    policy: Policy | None = None
    """The failure policy of steps inside that inherit one."""
    budgets: tuple[HeldBudget, ...] = ()
    """The budgets of this step and the enclosing steps, outermost first."""
    auto_approve: bool = False
    """Whether calls of tools that require approval are approved."""
    after: int = 0
    """The number of the latest commit that an enclosing step reacts to; 0 for none."""
    slots: Slots | None = None
    """The slots that the step holds under limits, or else those of the nearest enclosing step that has limits."""

    def inside(
        self,
        step: Step[Any],
        settings: tuple[Setting, ...],
        budgets: tuple[HeldBudget, ...] = (),
        slots: Slots | None = None,
    ) -> Inherited:
        """Return what a child step hands down, which has these settings, budgets and slots."""
        mode = self.mode
        if mode.strict_replay is not step.strict_replay:
            mode = dataclasses.replace(mode, strict_replay=step.strict_replay)
        return Inherited(
            mode,
            settings,
            self.limits + step.inherited_limits,
            step.child_policy or self.policy,
            self.budgets + budgets,
            self.auto_approve if step.auto_approve is None else step.auto_approve,
            self.after if step.after is None else max(self.after, step.after),
            slots or self.slots,
        )
