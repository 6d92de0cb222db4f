"""A policy to begin with: call again what may work later, do again what a hint may mend, and leave the rest."""

from __future__ import annotations

from crewlite.recovery.policy import FailurePolicy
from crewlite.recovery.rule import Rule
from crewlite.recovery.strategies import backoff_and_retry, replan, rollback_to_checkpoint


def usual_policy(base: float = 1.0) -> FailurePolicy:
    """Build a policy for crews and flows. `base`: about the seconds before a first retry; later ones come after more.

    Services that fail are called again. Work that went wrong is done again, told what was wrong. A failure of unknown
    type is left as it is: the step fails, or the model is told of its tool.
    """
    return FailurePolicy(
        (Rule(frozenset({"unavailable", "timeout"}), 3, base), Rule(frozenset({"empty"}), 1)),
        EXTERNAL_FAULT=backoff_and_retry(3, base),
        TIMEOUT=backoff_and_retry(3, base),
        HALLUCINATED_STATE=rollback_to_checkpoint(),
        **dict.fromkeys(_MENDED_BY_A_NEW_PLAN, replan()),  # type: ignore[arg-type]
    )


_MENDED_BY_A_NEW_PLAN = (
    "WRONG_TOOL_CALLED",
    "CONSTRAINT_IGNORED",
    "LOOP_DETECTED",
    "PLAN_INCOMPLETE",
    "SCHEMA_MISMATCH",
    "CONTEXT_OVERFLOW",
    "GOAL_DRIFT",
)
