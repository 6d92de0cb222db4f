"""The decision that follows a failure, for model calls, tools, tasks and steps. Pure: it neither waits nor retries."""

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
