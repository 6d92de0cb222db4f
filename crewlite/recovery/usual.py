"""A policy to begin with: call again what may work later, do again what a hint may mend, and leave the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crewlite.recovery.failure import Failure
from crewlite.recovery.policy import FailurePolicy
from crewlite.recovery.remedy import Policy, Remedy, most_of
from crewlite.recovery.strategies import abort, backoff_and_retry, replan, rollback_to_checkpoint


@dataclass(frozen=True, slots=True)
class ByListener:
    """One strategy for failures that a model is told of if they are given up, and another one for the rest.

    The model may call the same tool again, and each of its calls has a budget of its own.
    """

    told: Policy
    others: Policy

    @property
    def most(self) -> int:
        """The largest number of remedies that it may choose."""
        return max(most_of(self.told), most_of(self.others))

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return what the strategy for this failure chooses."""
        return (self.told if failure.is_told else self.others).decide(failure, past)


def usual_policy(base: float = 1.0) -> FailurePolicy:
    """Build a policy for crews and flows. `base`: about the seconds before a first retry; later ones come after more.

    Services that fail are called again. Work that went wrong is done again, told what was wrong. A failure of unknown
    type, and a budget that is used up, is left as it is: the step fails, or the model is told of its tool.
    """
    return FailurePolicy(
        EXTERNAL_FAULT=ByListener(backoff_and_retry(2, base), backoff_and_retry(5, base)),
        TIMEOUT=ByListener(backoff_and_retry(1, base), backoff_and_retry(2, base)),
        WRONG_TOOL_CALLED=_AGAIN,
        CONSTRAINT_IGNORED=_AGAIN,
        LOOP_DETECTED=_AGAIN,
        PLAN_INCOMPLETE=_AGAIN,
        SCHEMA_MISMATCH=_AGAIN,
        CONTEXT_OVERFLOW=_AGAIN,
        GOAL_DRIFT=_AGAIN,
        HALLUCINATED_STATE=rollback_to_checkpoint(max_rollbacks=2),
        BUDGET_EXHAUSTED=abort(),
        UNKNOWN=abort(),
    )


_AGAIN = replan(max_replans=2)
