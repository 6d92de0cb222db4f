"""Every error a caller can meet, as one tree.

Each class says what was found, what was wanted and what to do next; it keeps the data its message was made from; it
is also the built-in a caller would catch without knowing crewlite; and its `code` never changes.

    CrewliteError
    ├── ConfigError (ValueError) ── NoModel, BindMissing
    ├── NotCodable (TypeError)
    ├── MissingInput (KeyError)
    ├── RefError (LookupError)
    ├── StoreError (OSError) ── StoreUnusable, StoreBusy
    ├── JournalCorrupt (ValueError) ── SchemaTooNew, CheckpointMismatch
    ├── BranchExists, RunExists (ValueError)
    ├── BranchConflictError, PlaceIsBehind, InDoubt, OnLoopThread, MaxIterations, Redacted (RuntimeError)
    ├── RunMismatch (ValueError) ── InputsChanged, TaskGone, TaskDrifted
    ├── StepTimeout (TimeoutError)
    ├── LLMError (RuntimeError) ── LLMUnavailable, LLMEmptyReply, ScriptExhausted
    └── OutputInvalid (ValueError)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar


class CrewliteError(Exception):
    """The root of the tree. `code` is stable across releases."""

    code: ClassVar[str] = "crewlite"


def text_of(error: BaseException) -> str:
    """What an error says, also if its own `__str__` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return f"(its text cannot be read: {type(failure).__name__})"


class ConfigError(CrewliteError, ValueError):
    """A definition or a setting cannot work; found before anything was paid."""

    code = "config"


class NoModel(ConfigError):
    """Agents without a model. Nothing is ever billed to a model nobody chose."""

    code = "no_model"

    def __init__(self, agents: Sequence[str]) -> None:
        names = ", ".join(repr(agent) for agent in agents)
        super().__init__(
            f"No model for {names}. Give the agent or the crew an `llm=`, or set CREWLITE_MODEL "
            f"(CREWLITE_MODEL=offline answers without a network)."
        )
        self.agents = tuple(agents)


class BindMissing(ConfigError):
    """A definition cannot be rebuilt from its record alone: what was live in it is to be passed."""

    code = "bind_missing"

    def __init__(self, where: str, missing: Mapping[str, str], hints: Sequence[str] = ()) -> None:
        listing = ", ".join(f"{path!r}: <{wanted}>" for path, wanted in missing.items())
        also = f" And {'; '.join(hints)}" if hints else ""
        super().__init__(
            f"The {where} was made with what no record holds. Pass it: bind={{{listing}}}. The last word of a path "
            f"binds every such part of that name; None leaves one out.{also}"
        )
        self.where, self.missing = where, tuple(missing)


class NotCodable(CrewliteError, TypeError):
    """A value that no record can hold. `path` leads to it."""

    code = "not_codable"

    def __init__(self, path: str, value: object, why: str = "") -> None:
        found = type(value).__qualname__
        super().__init__(
            f"{path or 'the value'} is a {found}, which cannot be recorded{f' ({why})' if why else ''}. "
            f"Wanted: plain data, a dataclass, an enum or a pydantic model. Next: return the data, not the live object."
        )
        self.path, self.found = path, found


class MissingInput(CrewliteError, KeyError):
    """A `{placeholder}` that the inputs do not fill."""

    code = "missing_input"

    def __init__(self, name: str, *, where: str, given: Sequence[str]) -> None:
        have = ", ".join(given) or "none"
        self.message = (
            f"{where} asks for {{{name}}}, which the inputs do not hold (given: {have}). "
            f"Pass kickoff(inputs={{{name!r}: ...}}), or write {{{{{name}}}}} for the braces themselves."
        )
        super().__init__(self.message)
        self.name, self.where, self.given = name, where, tuple(given)

    def __str__(self) -> str:
        return self.message


class RefError(CrewliteError, LookupError):
    """A ref names nothing, or more than one thing."""

    code = "ref"

    def __init__(self, ref: str, problem: str, candidates: Sequence[str] = ()) -> None:
        listing = f" Candidates: {', '.join(candidates[:12])}." if candidates else ""
        super().__init__(f"{ref!r} {problem}.{listing}")
        self.ref, self.candidates = ref, tuple(candidates)


class StoreError(CrewliteError, OSError):
    """A write or a read of the store failed."""

    code = "store"

    def __init__(self, location: str, problem: str) -> None:
        super().__init__(f"{location}: {problem}")
        self.location, self.problem = location, problem


class StoreUnusable(StoreError):
    """The store cannot work at all; found at kickoff, before anything was paid."""

    code = "store_unusable"


class StoreBusy(StoreError):
    """Others have been writing to the store all the time that was waited for. Nothing was changed: try again."""

    code = "store_busy"

    def __init__(self, location: str, seconds: float) -> None:
        super().__init__(
            location,
            f"others have been writing to it for {seconds:g} s, and nothing was changed. Try again; if that does not "
            f"help, some program holds it without moving: end that",
        )
        self.seconds = seconds


class JournalCorrupt(CrewliteError, ValueError):
    """A journal does not say what was written to it. `sound` is the newest place before the damage."""

    code = "journal_corrupt"

    def __init__(self, where: str, problem: str, sound: str | None) -> None:
        newest = f"The newest sound place is {sound}." if sound else "No sound place comes before it."
        super().__init__(
            f"{where}: {problem}. {newest} Nothing was changed: bring back a copy that is whole, let "
            f"History(location).doctor(repair=True) save what is sound, or start again with another run_id."
        )
        self.where, self.sound = where, sound


class SchemaTooNew(JournalCorrupt):
    """Written by a newer crewlite; left untouched."""

    code = "schema_too_new"

    def __init__(self, where: str, found: object, known: int) -> None:
        CrewliteError.__init__(
            self,
            f"{where} has schema {found}; this crewlite reads up to {known}. "
            f"It was left untouched: upgrade crewlite to use it.",
        )
        self.where, self.sound, self.found, self.known = where, None, found, known


class CheckpointMismatch(JournalCorrupt):
    """A checkpoint file that its journal contradicts: edited by hand, or torn from its journal."""

    code = "checkpoint_mismatch"


class BranchConflictError(CrewliteError, RuntimeError):
    """Somebody else moved the branch first; nothing of theirs was overwritten."""

    code = "branch_conflict"

    def __init__(
        self,
        run_id: str,
        branch: str,
        *,
        expected: int | None = None,
        found: int | str | None = None,
        holder: str = "this process",
    ) -> None:
        where = f"is being run by {holder}" if found is None else f"is at {found}, not at {expected}"
        again = f"run_id={run_id!r}" if branch == "main" else f"from_checkpoint='{run_id}/{branch}'"
        super().__init__(
            f"Branch {branch!r} of run {run_id!r} {where}: another kickoff of it is at work. Wait for it to end, then "
            f"kick off again with {again}; or fork the run, to go on beside it."
        )
        self.run_id, self.branch, self.expected, self.found, self.holder = run_id, branch, expected, found, holder


class BranchExists(CrewliteError, ValueError):
    """A fork under a name that is taken."""

    code = "branch_exists"

    def __init__(self, run_id: str, branch: str) -> None:
        super().__init__(
            f"Run {run_id!r} has a branch {branch!r} already, and two lines of work in one would be mixed up. Choose "
            f"another branch=, or none; to go on with that one, kick off from_checkpoint='{run_id}/{branch}'."
        )
        self.run_id, self.branch = run_id, branch


class RunExists(CrewliteError, ValueError):
    """An import of a run whose run_id is taken by one that stands elsewhere."""

    code = "run_exists"

    def __init__(self, run_id: str, location: str, path: str, *, found: str, wanted: str) -> None:
        super().__init__(
            f"Run {run_id!r} is in {location} already and is not as {path} has it (digests {found[:8]}, "
            f"{wanted[:8]}). Nothing was changed. Import it into another location; or, if the one that is there is "
            f"not needed any more, History({location!r}).delete({run_id!r}) first."
        )
        self.run_id, self.location, self.path, self.found, self.wanted = run_id, location, path, found, wanted


class PlaceIsBehind(CrewliteError, RuntimeError):
    """The branch went on beyond the place asked for."""

    code = "place_is_behind"

    def __init__(self, place: str, *, run_id: str, branch: str, after: Sequence[str], head: str) -> None:
        super().__init__(
            f"Place {place} is behind the head of {run_id}/{branch}: {', '.join(after)} came after it, and resuming "
            f"there would abandon recorded work. To go on from the head, resume from {head!r} or with "
            f"run_id={run_id!r}; to start again at this place, fork it: crew.fork({place!r})."
        )
        self.place, self.run_id, self.branch, self.after, self.head = place, run_id, branch, tuple(after), head


class InDoubt(CrewliteError, RuntimeError):
    """A call declared effect="once" was cut in the middle: nobody can know whether it took effect."""

    code = "in_doubt"

    def __init__(self, address: str, what: str) -> None:
        super().__init__(
            f"{what} at {address} was cut in the middle, and it is declared effect='once'. Look whether it took "
            f"effect, then kick off again with answers={{{address!r}: <its result>}} if it did, "
            f"or rerun=[{address!r}] if it did not."
        )
        self.address, self.what = address, what


class RunMismatch(CrewliteError, ValueError):
    """The recorded run is not the run that was asked for."""

    code = "run_mismatch"


class InputsChanged(RunMismatch):
    """A resume with other inputs than the recorded ones."""

    code = "inputs_changed"

    def __init__(self, run_id: str, names: Sequence[str]) -> None:
        super().__init__(
            f"Run {run_id!r} was started with other inputs ({', '.join(names)} differ). To go on, kick off without "
            f"inputs or with the recorded ones; to try other inputs, fork the run: "
            f"crew.fork({run_id!r}).kickoff(inputs), or use another run_id."
        )
        self.run_id, self.names = run_id, tuple(names)


class TaskGone(RunMismatch):
    """Finished tasks that nothing in the definition answers to."""

    code = "task_gone"

    def __init__(self, run_id: str, tasks: Sequence[str]) -> None:
        super().__init__(
            f"Run {run_id!r} has finished {', '.join(tasks)}, but no task of this crew answers to it. Bring the task "
            f"back (matched by name, else by description, else by order), or start a new run_id."
        )
        self.run_id, self.tasks = run_id, tuple(tasks)


class TaskDrifted(RunMismatch):
    """A finished task whose question changed, with on_drift="error"."""

    code = "task_drifted"

    def __init__(self, run_id: str, address: str) -> None:
        super().__init__(
            f"{address} of run {run_id!r} is finished, but what it asks has changed since. Undo the change, or set "
            f"on_drift='keep' (keep the recorded answer) or on_drift='rerun' (run it and its dependents again)."
        )
        self.run_id, self.address = run_id, address


class OnLoopThread(CrewliteError, RuntimeError):
    """A blocking verb was called on the thread that would have to do the work."""

    code = "on_loop_thread"

    def __init__(self, verb: str) -> None:
        super().__init__(f"{verb}() was called on crewlite's own loop, where it would wait for itself: await a{verb}()")
        self.verb = verb


class MaxIterations(CrewliteError, RuntimeError):
    """An agent used up its turns without an answer."""

    code = "max_iterations"

    def __init__(self, agent: str, limit: int) -> None:
        super().__init__(
            f"Agent {agent!r} gave no final answer in {limit} turns (max_iter). Raise max_iter, or look at the tool "
            f"calls it repeats: History(location).run(run_id).steps"
        )
        self.agent, self.limit = agent, limit


class StepTimeout(CrewliteError, TimeoutError):
    """A step did not end within its limit (seconds). Work in a blocked thread is abandoned, not killed."""

    code = "step_timeout"

    def __init__(self, what: str, limit: float) -> None:
        super().__init__(
            f"{what} did not end within {limit:g} s. Raise its limit, or kick off the same run again to go on."
        )
        self.what, self.limit = what, limit


class Redacted(CrewliteError, RuntimeError):
    """Stands for an error whose text held a configured secret."""

    code = "redacted"

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(f"{error_type}: {message}")
        self.error_type = error_type


class LLMError(CrewliteError, RuntimeError):
    """A model call failed."""

    code = "llm"


class LLMUnavailable(LLMError, ConnectionError):
    """The model may answer later: rate limit, server error, lost connection. `retry_after` is in seconds."""

    code = "llm_unavailable"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LLMEmptyReply(LLMError):
    """The model answered with nothing."""

    code = "llm_empty_reply"

    def __init__(self, model: str) -> None:
        super().__init__(f"{model} gave an empty reply: no text and no tool call. Kick off the run again to retry.")
        self.model = model


class ScriptExhausted(LLMError):
    """A ScriptedLLM was asked more often than it has replies."""

    code = "script_exhausted"

    def __init__(self, calls: int) -> None:
        super().__init__(f"ScriptedLLM has {calls} replies and was called once more. Add a reply, or pass a function.")
        self.calls = calls


class OutputInvalid(CrewliteError, ValueError):
    """A task's answer does not have the shape it was asked for."""

    code = "output_invalid"

    def __init__(self, task: str, problem: str, *, tries: int) -> None:
        super().__init__(
            f"{task}: the answer does not fit after {tries} tries: {problem}. Kick off the run again for a new "
            f"attempt, or relax the schema."
        )
        self.task, self.problem, self.tries = task, problem, tries
