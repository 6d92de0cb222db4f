"""Every error a caller can meet, as one tree.

Each class says what was found, what was wanted and what to do next; it keeps the data its message was made from; it
is also the built-in a caller would catch without knowing crewlite; and its `code` never changes.

    CrewliteError
    ├── ConfigError (ValueError) ── NoModel, BindMissing, UnknownProvider, MissingKey
    ├── NotCodable (TypeError)
    ├── MissingInput (KeyError)
    ├── RefError (LookupError)
    ├── StoreError (OSError) ── StoreUnusable, StoreBusy
    ├── JournalCorrupt (ValueError) ── SchemaTooNew, CheckpointMismatch
    ├── BranchExists, RunExists (ValueError)
    ├── BranchConflictError, PlaceIsBehind, InDoubt, OnLoopThread, MaxIterations, Redacted (RuntimeError)
    ├── RunMismatch (ValueError) ── InputsChanged, TaskGone, TaskDrifted
    ├── StepTimeout (TimeoutError)
    ├── LLMError (RuntimeError) ── LLMEmptyReply, ContentRefused, ScriptExhausted
    │   ├── RecordingMissing (LookupError), RecordingDamaged (ValueError)
    │   ├── LLMUnavailable (ConnectionError) ── LLMTimeout (TimeoutError)
    │   └── LLMRejected ── LLMAuthError (PermissionError), ContextOverflow
    └── OutputInvalid (ValueError)
"""

from crewlite.errors.definition import (
    BindMissing,
    ConfigError,
    MissingInput,
    MissingKey,
    NoModel,
    NotCodable,
    UnknownProvider,
)
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
    CheckpointMismatch,
    JournalCorrupt,
    RefError,
    RunExists,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    StoreUnusable,
)
from crewlite.errors.root import CrewliteError, text_of
from crewlite.errors.run import (
    InDoubt,
    InputsChanged,
    MaxIterations,
    OnLoopThread,
    OutputInvalid,
    PlaceIsBehind,
    Redacted,
    RunMismatch,
    StepTimeout,
    TaskDrifted,
    TaskGone,
)

__all__ = [
    "BindMissing",
    "BranchConflictError",
    "BranchExists",
    "CheckpointMismatch",
    "ConfigError",
    "ContentRefused",
    "ContextOverflow",
    "CrewliteError",
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
    "NotCodable",
    "OnLoopThread",
    "OutputInvalid",
    "PlaceIsBehind",
    "RecordingDamaged",
    "RecordingMissing",
    "Redacted",
    "RefError",
    "RunExists",
    "RunMismatch",
    "SchemaTooNew",
    "ScriptExhausted",
    "StepTimeout",
    "StoreBusy",
    "StoreError",
    "StoreUnusable",
    "TaskDrifted",
    "TaskGone",
    "UnknownProvider",
    "text_of",
]
