"""What to do about a failure: decided here, purely, for model calls, tools, tasks and steps alike."""

from crewlite.recovery.failure import Failure, FailureKind
from crewlite.recovery.policy import DEFAULT, Abort, FailurePolicy, Ladder, Remedy, Retry, Rule

__all__ = ["DEFAULT", "Abort", "Failure", "FailureKind", "FailurePolicy", "Ladder", "Remedy", "Retry", "Rule"]
