"""Writing to a branch from outside of its run: who runs it, appending beside other processes, errors of storage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from crewlite.errors import BranchConflictError, CrewliteError
from crewlite.state.format.commit import Claim, CommitParts
from crewlite.state.format.record import Record
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.opening import queue_here
from crewlite.state.providers import Commit, Store
from crewlite.state.providers.writing import not_saved

T = TypeVar("T")
_TRIES = 20  # others may commit meanwhile, though hardly that often in a row


def holder(store: Store, run_id: str, branch: str, claim: Claim | None) -> str | None:
    """Return the live process that runs a branch, such as "process 7 on lamp" (its host); None if none does.

    Every verb that must not disturb a running branch calls this. `claim`: the claim of the branch as recorded, which
    names the process that acquired it last; None if the branch was released.
    """
    return holder_at(store.location, run_id, branch, claim, store.touched(run_id, branch))


def holder_at(location: str, run_id: str, branch: str, claim: Claim | None, touched: float) -> str | None:
    """Return what `holder` returns, without a store. `touched`: the last sign of life, in seconds since the epoch."""
    return "this process" if queue_here(location, run_id, branch) else held_by(claim, touched)


def check_idle(store: Store, record: Record, what: str) -> None:
    """Raise BranchConflictError if a live process runs the branch of a record. `what` ends the error's sentence."""
    run_id, branch = record.run["run_id"], record.run["branch"]
    if by := holder(store, run_id, branch, record.claim):
        raise BranchConflictError(run_id, branch, holder=by, problem=f"is being run by {by}, {what}")


def commit_beside(record: Record, parts: CommitParts) -> Commit:
    """Build a commit to a branch that no live process runs. If its last holder died at work, the commit says so.

    Otherwise the commit would be taken for a sign of life of a holder on another machine.
    """
    died: CommitParts = {"released": True, "died": True} if record.claim else {}
    return Commit.of(record.run["run_id"], record.run["branch"], record.head, {**parts, **died})


def appended(store: Store, make: Callable[[], tuple[Sequence[Commit], T]]) -> T:
    """Append the commits that `make` builds from what is recorded. `make` returns (commits, value); return the value.

    If another process has committed meanwhile, `make` is called again. Without commits, nothing is written. Raises
    what `make` raises, and BranchConflictError if others were faster each time.
    """
    for left in reversed(range(_TRIES)):
        commits, value = make()
        try:
            if commits:
                store.append(commits)
            break
        except BranchConflictError:
            if not left:
                raise
    return value


@contextlib.contextmanager
def saving(location: str, what: str) -> Iterator[None]:
    """Raise StoreError for an OSError of the block. `what` says what was not done: "the label was not saved"."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CrewliteError):
            raise
        raise not_saved(location, what, error) from error
