"""The decision that follows a failure, for model calls, tools, tasks and steps.

Decisions are pure: they neither wait nor retry. Only CircuitBreaker keeps state, and only LLMClassifier asks a model.
Names are imported at their first use, as most definitions set no policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.recovery.breaker import *
    from crewlite.recovery.classify import *
    from crewlite.recovery.failure import *
    from crewlite.recovery.guards import *
    from crewlite.recovery.policy import *
    from crewlite.recovery.port import *
    from crewlite.recovery.remedy import *
    from crewlite.recovery.strategies import *
    from crewlite.recovery.types import *

_NAMES = {
    "recovery.breaker": "CircuitBreaker",
    "recovery.classify": "Classifier HybridClassifier LLMClassifier RulesClassifier Symptom",
    "recovery.failure": "Failure FailureKind",
    "recovery.guards": "EarlierCall Guard GuardedCall LoopDetector RequireIdempotency RiskThreshold",
    "recovery.policy": "DEFAULT FailurePolicy usual_policy",
    "recovery.port": "Policy",
    "recovery.remedy": "Abort Compensate Escalate Fallback Remedy Replan Resume Retry Rollback Suspend",
    "recovery.strategies": "Rule abort backoff_and_retry chain compensate escalate replan resume_from_subgoal "
    "retry retry_with_tool_manifest rollback_to_checkpoint sequence suspend",
    "recovery.types": "Evidence FailureType RecordedStep",
}

__all__, __getattr__ = first_use("crewlite.recovery", _NAMES)
