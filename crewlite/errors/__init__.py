"""Every error a caller can meet, as one tree.

Each class says what was found, what was wanted and what to do next; it keeps the data its message was made from; it
is also the built-in a caller would catch without knowing crewlite; and its `code` never changes.

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
    │   NonDeterminism
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

from crewlite.errors.answers import AnswerRefused, AnswerTimeout
from crewlite.errors.definition import (
    BindMissing,
    ConfigError,
    MissingInput,
    MissingKey,
    NoModel,
    NotCodable,
    UnknownOption,
    UnknownProvider,
    VariantsRefused,
)
from crewlite.errors.effects import EffectsRepeat, RepeatedCall
from crewlite.errors.guards import CallVetoed, CircuitOpen
from crewlite.errors.llm import (
    ContentRefused,
    ContextOverflow,
    LLMAuthError,
    LLMEmptyReply,
    LLMError,
    LLMRejected,
    LLMTimeout,
    LLMUnavailable,
    RecordingDamaged,
    RecordingMissing,
    ScriptExhausted,
)
from crewlite.errors.record import (
    BranchConflictError,
    BranchExists,
    ChangeUnused,
    CheckpointMismatch,
    JournalCorrupt,
    RefError,
    RunExists,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    StoreUnusable,
)
from crewlite.errors.recovery import RecoveryAborted, RecoveryEscalated
from crewlite.errors.root import (
    CrewliteError,
    did_you_mean,
    ends_run,
    meant,
    meant_setting,
    nearest,
    text_of,
)
from crewlite.errors.run import (
    CheckpointIsBehind,
    DeadlineExceeded,
    GuardrailFailed,
    InDoubt,
    InputsChanged,
    MaxIterations,
    NonDeterminism,
    OnLoopThread,
    OutputInvalid,
    PlaceIsBehind as PlaceIsBehind,
    QuestionsChanged,
    Redacted,
    RunCancelled,
    RunEnded,
    RunMismatch,
    StateConflict,
    StepCrashed,
    StepDeadlock,
    StepRaised,
    StepTimeout,
    Suspended,
    TaskDrifted,
    TaskGone,
    TooManyCalls,
)
from crewlite.errors.stops import (
    CONTROL_FLOW as CONTROL_FLOW,
    STOPS as STOPS,
    BudgetExceeded,
    TimeBudgetExceeded,
)

__all__ = [
    "AnswerRefused",
    "AnswerTimeout",
    "BindMissing",
    "BranchConflictError",
    "BranchExists",
    "BudgetExceeded",
    "CallVetoed",
    "ChangeUnused",
    "CheckpointIsBehind",
    "CheckpointMismatch",
    "CircuitOpen",
    "ConfigError",
    "ContentRefused",
    "ContextOverflow",
    "CrewliteError",
    "DeadlineExceeded",
    "EffectsRepeat",
    "GuardrailFailed",
    "InDoubt",
    "InputsChanged",
    "JournalCorrupt",
    "LLMAuthError",
    "LLMEmptyReply",
    "LLMError",
    "LLMRejected",
    "LLMTimeout",
    "LLMUnavailable",
    "MaxIterations",
    "MissingInput",
    "MissingKey",
    "NoModel",
    "NonDeterminism",
    "NotCodable",
    "OnLoopThread",
    "OutputInvalid",
    "QuestionsChanged",
    "RecordingDamaged",
    "RecordingMissing",
    "RecoveryAborted",
    "RecoveryEscalated",
    "Redacted",
    "RefError",
    "RepeatedCall",
    "RunCancelled",
    "RunEnded",
    "RunExists",
    "RunMismatch",
    "SchemaTooNew",
    "ScriptExhausted",
    "StateConflict",
    "StepCrashed",
    "StepDeadlock",
    "StepRaised",
    "StepTimeout",
    "StoreBusy",
    "StoreError",
    "StoreUnusable",
    "Suspended",
    "TaskDrifted",
    "TaskGone",
    "TimeBudgetExceeded",
    "TooManyCalls",
    "UnknownOption",
    "UnknownProvider",
    "VariantsRefused",
    "did_you_mean",
    "ends_run",
    "meant",
    "meant_setting",
    "nearest",
    "text_of",
]
