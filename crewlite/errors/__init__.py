"""Every error a caller can meet, as one tree.

Each class says what was found, what was wanted and what to do next; it keeps the data its message was made from; it
is also the built-in a caller would catch without knowing crewlite; and its `code` never changes. Nor does its module,
as the failures of recorded steps name it.

    CrewliteError
    ├── ConfigError (ValueError) ── NoModel, BindMissing, UnknownProvider, MissingKey, VariantsRefused,
    │   UnknownOption, WrongArguments (TypeError), KnowledgeMissing (FileNotFoundError)
    ├── NotCodable (TypeError)
    ├── MissingInput (KeyError)
    ├── RefError (LookupError) ── ChangeUnused
    ├── StoreError (OSError) ── StoreUnusable, StoreBusy
    ├── JournalCorrupt (ValueError) ── SchemaTooNew, CheckpointMismatch
    ├── BranchExists, RunExists (ValueError)
    ├── BranchConflictError, RunCancelled, RunEnded, EffectsRepeat, CheckpointIsBehind, InDoubt, Suspended,
    │   OnLoopThread, ProgramEnding,
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

from crewlite.errors.answers import *
from crewlite.errors.definition import *
from crewlite.errors.effects import *
from crewlite.errors.foreign import *
from crewlite.errors.guards import *
from crewlite.errors.llm import *
from crewlite.errors.record import *
from crewlite.errors.recovery import *
from crewlite.errors.root import *
from crewlite.errors.run import *
from crewlite.errors.stops import *

_defined = {
    name for name, value in globals().items() if getattr(value, "__module__", "").startswith("crewlite.errors.")
}

_INSIDE = {"add_note", "attribute_of", "came_from", "notes_of", "repr_of"}
__all__ = sorted(_defined - _INSIDE)  # noqa: PLE0605 - all that the modules above define
