"""Errors of records that cannot be found, read or written."""

from __future__ import annotations

from collections.abc import Sequence

from crewlite.errors.root import CrewliteError
from crewlite.texts.resuming import branch_ref, call, call_again, in_shell, to_resume
from crewlite.texts.wording import listed

_LISTED = 6  # candidates that a message names


class RefError(CrewliteError, LookupError):
    """A ref names nothing, or more than one thing. `candidates` are refs that may have been meant."""

    code = "ref"

    def __init__(self, ref: str, problem: str, candidates: Sequence[str] = ()) -> None:
        self.ref, self.candidates = ref, tuple(dict.fromkeys(candidates))
        listing = f" Candidates: {listed(self.candidates, _LISTED)}." if candidates else ""
        super().__init__(f"{ref!r} {problem}{'' if problem.endswith('?') else '.'}{listing}")


class ChangeUnused(RefError):
    """The run of a fork does not use a change that the fork has made: an edit, or a step that is to run again.

    Raised at the end of the step around it, else at the end of the run, if the step was not requested. Raised before
    the step runs if it was edited and is `requested` with another question: an edit of what an agent said or heard is
    no answer to that.
    """

    code = "change_unused"
    ends_run = True

    def __init__(self, addresses: Sequence[str], *, requested: bool = False) -> None:
        problem = (
            "was edited or marked to run again, but this branch has not requested it, and another kickoff would end in "
            "the same way. Fork again without that change, or with inputs that lead to this step"
        )
        if requested:
            problem = (
                "was edited, but this branch asks the step another question than the edit answers, and another kickoff "
                "would end in the same way. Fork again without that edit, and edit the step's new outcome in a fork of "
                "that fork"
            )
        super().__init__(", ".join(addresses), problem)
        self.addresses, self.requested = tuple(addresses), requested


class StoreError(CrewliteError, OSError):
    """A write to the store or a read from it failed."""

    code = "store"
    ends_run = True

    def __init__(self, location: str, problem: str) -> None:
        super().__init__(f"{location}: {problem}")
        self.location, self.problem = location, problem


class StoreUnusable(StoreError):
    """The store cannot be used at all. Raised at kickoff, before anything was paid."""

    code = "store_unusable"


class StoreBusy(StoreError):
    """Other programs were writing to the store for the complete waiting time. Nothing was changed: try again.

    `stopped`: the number of the process that has the lock and is stopped, as by Ctrl-Z; None if none is known.
    """

    code = "store_busy"

    def __init__(self, location: str, seconds: float, stopped: int | None = None) -> None:
        found = (
            f"other programs have been writing to it for {seconds:g} s, and nothing was changed. Try again; if that "
            f"does not help, one of them hangs and holds the store: end that program"
        )
        if stopped is not None:
            found = (
                f"process {stopped} has locked it, and has been stopped for {seconds:g} s. Nothing was changed. Let "
                f"that process continue (kill -CONT {stopped}) or end it, and try again"
            )
        super().__init__(location, found)
        self.seconds, self.stopped = seconds, stopped


class JournalCorrupt(CrewliteError, ValueError):
    """A journal is damaged: it does not hold what was written. `sound` is the newest checkpoint before the damage.

    `location` is that of its store; None where the damage was found in data whose store is not known.
    """

    code = "journal_corrupt"
    ends_run = True

    def __init__(
        self, where: str, problem: str, sound: str | None, location: str | None = None, *, is_export: bool = False
    ) -> None:
        """`is_export`: the data are an export of a run, which no store holds yet."""
        repair = "History(location).doctor(repair=True)"
        if location is not None:
            repair = f"History({location!r}).doctor(repair=True), or `{in_shell('doctor --repair', location)}`"
        newest = f"The newest intact checkpoint is {sound}. " if sound else ""
        advice = (
            f"{newest}crewlite changed nothing: restore a backup; or salvage the readable part with {repair}; or begin "
            f"a run with another run_id."
        )
        if is_export:
            advice = "Nothing was imported: export the run again."
        super().__init__(f"{where}: {problem}. {advice}")
        self.where, self.problem, self.sound, self.location = where, problem, sound, location


class SchemaTooNew(JournalCorrupt):
    """The data was written by a newer crewlite, and was left untouched."""

    code = "schema_too_new"

    def __init__(self, where: str, found: object, known: int) -> None:
        CrewliteError.__init__(
            self,
            f"{where} has schema {found}; this crewlite reads up to {known}. "
            f"It was left untouched: upgrade crewlite to use it.",
        )
        self.where, self.problem, self.sound, self.location = where, f"it has schema {found}", None, None
        self.found, self.known = found, known


class CheckpointMismatch(JournalCorrupt):
    """A checkpoint file contradicts its journal: it was edited by hand, or moved away from its journal."""

    code = "checkpoint_mismatch"


class BranchConflictError(CrewliteError, RuntimeError):
    """The branch is in use elsewhere, or was changed or deleted since it was read. Nothing was overwritten.

    `expected` and `found` are numbers of the last commit; `found` is None while `holder` runs the branch. `holder` is
    "" if nobody is known to run it. A store that found something else gives the `problem`: what it found and what to
    do, as the end of a sentence about the branch. `kind` is that of the definition of the run. `state_id` names the
    state of `@persist` whose next turn was wanted, while another one is at work; else it is "".
    """

    code = "branch_conflict"
    ends_run = True

    def __init__(
        self,
        run_id: str,
        branch: str,
        *,
        expected: int | None = None,
        found: int | str | None = None,
        holder: str = "",
        kind: str = "crew",
        problem: str = "",
    ) -> None:
        holder = holder or ("" if problem or found is not None else "this process")
        self.run_id, self.branch, self.expected, self.found, self.holder = run_id, branch, expected, found, holder
        self.problem, self.state_id = problem, ""
        if kind == "state":
            if holder:
                wrong = f"is held by {holder}, and cannot be opened again until it is closed there, with close() or at "
                wrong += "the end of its `with`"
            else:
                wrong = problem or f"{_conflict(expected, found)}, then open it again"
            fork = "Or open a fork of it, made with History(location).fork(...)."
            super().__init__(f"State {branch_ref(run_id, branch)!r} {wrong}. {fork}")
            return
        again = to_resume(run_id, branch)
        if not problem and found is None:
            problem = (
                f"is being run by {holder}. To wait for its result, {call(kind)} with {again}, wait=True; or fork it."
            )
        super().__init__(
            f"Branch {branch!r} of run {run_id!r} "
            + (problem or f"{_conflict(expected, found)}, then {call_again(kind)} with {again}; or fork the run.")
        )

    def of_turn(self, state_id: str) -> BranchConflictError:
        """Return this error for a kickoff that wanted to be the next turn of a state that `@persist` keeps."""
        problem = (
            f"is being run by {self.holder}: it is a turn of the state {state_id!r}, and the next one begins when "
        )
        problem += "it has ended. To wait for that, kick off with wait=True"
        error = BranchConflictError(self.run_id, self.branch, holder=self.holder, kind="flow", problem=problem)
        error.state_id = state_id
        return error


def _conflict(expected: int | None, found: int | str | None) -> str:
    at = f"commit {found}" if isinstance(found, int) else found
    if found == expected:
        where = f"holds another {at} than was expected"
    elif expected:
        where = f"is at {at}, and commit {expected} was expected"
    else:
        where = f"is at {at}, and was expected not to exist yet"
    return f"{where}: another process has changed it in the meantime. Wait until no process runs it"


class BranchExists(CrewliteError, ValueError):
    """A fork was given the name of a branch that exists already."""

    code = "branch_exists"

    def __init__(self, run_id: str, branch: str) -> None:
        super().__init__(
            f"Run {run_id!r} has a branch {branch!r} already, so a fork cannot have that name. Choose another branch=, "
            f"or leave it out; to resume the existing branch, kick off with {to_resume(run_id, branch)}."
        )
        self.run_id, self.branch = run_id, branch


class RunExists(CrewliteError, ValueError):
    """A run was to be imported, but the location has another run with its run_id."""

    code = "run_exists"

    def __init__(self, run_id: str, location: str, path: str, *, found: str, wanted: str) -> None:
        super().__init__(
            f"Run {run_id!r} is in {location} already and differs from the one in {path} (digests {found[:8]}, "
            f"{wanted[:8]}). Nothing was changed. To go on with the run that is there, kick off with run_id={run_id!r} "
            f"in {location} and without restore_from; to have both, take another location; or, if the existing run is "
            f"not needed any more, call History({location!r}).delete({run_id!r}) first."
        )
        self.run_id, self.location, self.path, self.found, self.wanted = run_id, location, path, found, wanted
