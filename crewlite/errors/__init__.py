"""Every error a caller can meet, as one tree.

Each class says what was found, what was wanted and what to do next; it keeps the data its message was made from; it
is also the built-in a caller would catch without knowing crewlite; and its `code` never changes. Nor does its module,
as the failures of recorded steps name it.

    CrewliteError
    ├── ConfigError (ValueError) ── NoModel, BindMissing, UnknownProvider, MissingKey, VariantsRefused,
    │   UnknownOption (TypeError)
    ├── NotCodable (TypeError)
    ├── MissingInput (KeyError)
    ├── RefError (LookupError) ── ChangeUnused
    ├── StoreError (OSError) ── StoreUnusable, StoreBusy
    ├── JournalCorrupt (ValueError) ── SchemaTooNew, CheckpointMismatch
    ├── BranchExists, RunExists (ValueError)
    ├── BranchConflictError, RunCancelled, RunEnded, EffectsRepeat, CheckpointIsBehind, InDoubt, Suspended,
    │   OnLoopThread,
    │   MaxIterations, RecoveryAborted, RecoveryEscalated, Redacted, StateConflict, StepCrashed, StepDeadlock,
    │   StepRaised (RuntimeError)
    ├── RunMismatch (ValueError) ── InputsChanged, TaskGone, TaskDrifted, QuestionsChanged,
    │   NonDeterminism, AnswerMisfit
    ├── StepTimeout, DeadlineExceeded, AnswerTimeout (TimeoutError)
    ├── BudgetExceeded (RuntimeError) ── TimeBudgetExceeded (TimeoutError)
    ├── LLMError (RuntimeError) ── LLMEmptyReply, ContentRefused, ScriptExhausted
    │   ├── RecordingMissing (LookupError), RecordingDamaged (ValueError)
    │   ├── LLMUnavailable (ConnectionError) ── LLMTimeout (TimeoutError)
    │   └── LLMRejected ── LLMAuthError (PermissionError), ContextOverflow
    ├── TooManyCalls (RecursionError)
    ├── CallVetoed (RuntimeError) ── CircuitOpen (ConnectionError)
    └── OutputInvalid, GuardrailFailed, AnswerRefused (ValueError)
"""

from crewlite.errors.answers import (
    AnswerMisfit as AnswerMisfit,
    AnswerRefused as AnswerRefused,
    AnswerTimeout as AnswerTimeout,
)
from crewlite.errors.definition import (
    BindMissing as BindMissing,
    ConfigError as ConfigError,
    MissingInput as MissingInput,
    MissingKey as MissingKey,
    NoModel as NoModel,
    NotCodable as NotCodable,
    UnknownOption as UnknownOption,
    UnknownProvider as UnknownProvider,
    VariantsRefused as VariantsRefused,
)
from crewlite.errors.effects import EffectsRepeat as EffectsRepeat, RepeatedCall as RepeatedCall
from crewlite.errors.guards import CallVetoed as CallVetoed, CircuitOpen as CircuitOpen
from crewlite.errors.llm import (
    ContentRefused as ContentRefused,
    ContextOverflow as ContextOverflow,
    LLMAuthError as LLMAuthError,
    LLMEmptyReply as LLMEmptyReply,
    LLMError as LLMError,
    LLMRejected as LLMRejected,
    LLMTimeout as LLMTimeout,
    LLMUnavailable as LLMUnavailable,
    RecordingDamaged as RecordingDamaged,
    RecordingMissing as RecordingMissing,
    ScriptExhausted as ScriptExhausted,
)
from crewlite.errors.record import (
    BranchConflictError as BranchConflictError,
    BranchExists as BranchExists,
    ChangeUnused as ChangeUnused,
    CheckpointMismatch as CheckpointMismatch,
    JournalCorrupt as JournalCorrupt,
    RefError as RefError,
    RunExists as RunExists,
    SchemaTooNew as SchemaTooNew,
    StoreBusy as StoreBusy,
    StoreError as StoreError,
    StoreUnusable as StoreUnusable,
)
from crewlite.errors.recovery import RecoveryAborted as RecoveryAborted, RecoveryEscalated as RecoveryEscalated
from crewlite.errors.root import (
    CrewliteError as CrewliteError,
    did_you_mean as did_you_mean,
    ends_run as ends_run,
    meant as meant,
    meant_setting as meant_setting,
    nearest as nearest,
    text_of as text_of,
)
from crewlite.errors.run import (
    CheckpointIsBehind as CheckpointIsBehind,
    DeadlineExceeded as DeadlineExceeded,
    GuardrailFailed as GuardrailFailed,
    InDoubt as InDoubt,
    InputsChanged as InputsChanged,
    MaxIterations as MaxIterations,
    NonDeterminism as NonDeterminism,
    OnLoopThread as OnLoopThread,
    OutputInvalid as OutputInvalid,
    PlaceIsBehind as PlaceIsBehind,
    QuestionsChanged as QuestionsChanged,
    Redacted as Redacted,
    RunCancelled as RunCancelled,
    RunEnded as RunEnded,
    RunMismatch as RunMismatch,
    StateConflict as StateConflict,
    StepCrashed as StepCrashed,
    StepDeadlock as StepDeadlock,
    StepRaised as StepRaised,
    StepTimeout as StepTimeout,
    Suspended as Suspended,
    TaskDrifted as TaskDrifted,
    TaskGone as TaskGone,
    TooManyCalls as TooManyCalls,
)
from crewlite.errors.stops import (
    CONTROL_FLOW as CONTROL_FLOW,
    NOT_TO_SWALLOW as NOT_TO_SWALLOW,
    BudgetExceeded as BudgetExceeded,
    TimeBudgetExceeded as TimeBudgetExceeded,
)

_INSIDE = ("CONTROL_FLOW", "NOT_TO_SWALLOW", "PlaceIsBehind")
_defined = {
    name for name, value in globals().items() if getattr(value, "__module__", "").startswith("crewlite.errors.")
}

__all__ = sorted(_defined.difference(_INSIDE))  # noqa: PLE0605 - all that is imported above
