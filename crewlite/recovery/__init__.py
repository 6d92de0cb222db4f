"""What to do about a failure: decided here, purely, for model calls, tools, tasks and steps alike."""

from crewlite.recovery.failure import Failure, FailureKind
from crewlite.recovery.policy import DEFAULT, FailurePolicy, Rule
from crewlite.recovery.remedy import Abort, Fallback, Policy, Remedy, Retry

__all__ = [
    "DEFAULT",
    "Abort",
    "Failure",
    "FailureKind",
    "FailurePolicy",
    "Fallback",
    "Policy",
    "Remedy",
    "Retry",
    "Rule",
]
