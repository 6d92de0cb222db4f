"""The decision that follows a failure, for model calls, tools, tasks and steps.

Decisions are pure: they neither wait nor retry. Only CircuitBreaker keeps state, and only LLMClassifier asks a model.
"""

from crewlite.recovery.breaker import CircuitBreaker
from crewlite.recovery.by_model import HybridClassifier, LLMClassifier
from crewlite.recovery.classify import Classifier
from crewlite.recovery.failure import Failure, FailureKind
from crewlite.recovery.guards import (
    EarlierCall,
    Guard,
    GuardedCall,
    LoopDetector,
    RequireIdempotency,
    RiskThreshold,
)
from crewlite.recovery.policy import DEFAULT, FailurePolicy
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
from crewlite.recovery.rule import Rule
from crewlite.recovery.rules import RulesClassifier
from crewlite.recovery.strategies import (
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
from crewlite.recovery.usual import usual_policy

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
