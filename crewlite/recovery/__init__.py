"""The decision that follows a failure, for model calls, tools, tasks and steps.

Decisions are pure: they neither wait nor retry. Only CircuitBreaker keeps state, and only LLMClassifier asks a model.
"""

from types import ModuleType as _ModuleType

from crewlite.recovery.breaker import CircuitBreaker as CircuitBreaker
from crewlite.recovery.classify import (
    Classifier as Classifier,
    HybridClassifier as HybridClassifier,
    LLMClassifier as LLMClassifier,
    RulesClassifier as RulesClassifier,
)
from crewlite.recovery.failure import Failure as Failure, FailureKind as FailureKind
from crewlite.recovery.guards import (
    EarlierCall as EarlierCall,
    Guard as Guard,
    GuardedCall as GuardedCall,
    LoopDetector as LoopDetector,
    RequireIdempotency as RequireIdempotency,
    RiskThreshold as RiskThreshold,
)
from crewlite.recovery.policy import (
    DEFAULT as DEFAULT,
    FailurePolicy as FailurePolicy,
    usual_policy as usual_policy,
)
from crewlite.recovery.remedy import (
    Abort as Abort,
    Compensate as Compensate,
    Escalate as Escalate,
    Fallback as Fallback,
    Policy as Policy,
    Remedy as Remedy,
    Replan as Replan,
    Resume as Resume,
    Retry as Retry,
    Rollback as Rollback,
    Suspend as Suspend,
)
from crewlite.recovery.strategies import (
    Rule as Rule,
    abort as abort,
    backoff_and_retry as backoff_and_retry,
    chain as chain,
    compensate as compensate,
    escalate as escalate,
    replan as replan,
    resume_from_subgoal as resume_from_subgoal,
    retry as retry,
    retry_with_tool_manifest as retry_with_tool_manifest,
    rollback_to_checkpoint as rollback_to_checkpoint,
    sequence as sequence,
    suspend as suspend,
)
from crewlite.recovery.symptoms import Symptom as Symptom
from crewlite.recovery.types import Evidence as Evidence, FailureType as FailureType, RecordedStep as RecordedStep

__all__ = [name for name, value in globals().items() if name[0] != "_" and not isinstance(value, _ModuleType)]
