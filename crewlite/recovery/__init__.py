"""The decision that follows a failure, for model calls, tools, tasks and steps.

Decisions are pure: they neither wait nor retry. Only CircuitBreaker keeps state, and only LLMClassifier asks a model.
"""

from crewlite.recovery.breaker import CircuitBreaker
from crewlite.recovery.classify import (
    Classifier,
    HybridClassifier,
    LLMClassifier,
    RulesClassifier,
)
from crewlite.recovery.failure import Failure, FailureKind
from crewlite.recovery.guards import (
    EarlierCall,
    Guard,
    GuardedCall,
    LoopDetector,
    RequireIdempotency,
    RiskThreshold,
)
from crewlite.recovery.policy import (
    DEFAULT,
    FailurePolicy,
    usual_policy,
)
from crewlite.recovery.remedy import (
    Abort,
    Compensate,
    Escalate,
    Fallback,
    Policy,
    Remedy,
    Replan,
    Resume,
    Retry,
    Rollback,
    Suspend,
)
from crewlite.recovery.strategies import (
    Rule,
    abort,
    backoff_and_retry,
    chain,
    compensate,
    escalate,
    replan,
    resume_from_subgoal,
    retry,
    retry_with_tool_manifest,
    rollback_to_checkpoint,
    sequence,
    suspend,
)
from crewlite.recovery.symptoms import Symptom
from crewlite.recovery.types import Evidence, FailureType, RecordedStep

__all__ = [
    "DEFAULT",
    "Abort",
    "CircuitBreaker",
    "Classifier",
    "Compensate",
    "EarlierCall",
    "Escalate",
    "Evidence",
    "Failure",
    "FailureKind",
    "FailurePolicy",
    "FailureType",
    "Fallback",
    "Guard",
    "GuardedCall",
    "HybridClassifier",
    "LLMClassifier",
    "LoopDetector",
    "Policy",
    "RecordedStep",
    "Remedy",
    "Replan",
    "RequireIdempotency",
    "Resume",
    "Retry",
    "RiskThreshold",
    "Rollback",
    "Rule",
    "RulesClassifier",
    "Suspend",
    "Symptom",
    "abort",
    "backoff_and_retry",
    "chain",
    "compensate",
    "escalate",
    "replan",
    "resume_from_subgoal",
    "retry",
    "retry_with_tool_manifest",
    "rollback_to_checkpoint",
    "sequence",
    "suspend",
    "usual_policy",
]
