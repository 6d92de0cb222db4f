"""Cancel a run from any process: a commit at the head of its branch makes the store refuse the run's own commits."""

from __future__ import annotations

from crewlite.errors import BranchConflictError, RunCancelled, RunEnded, RunMismatch, StoreBusy
from crewlite.state.format.entry import STATE, Head
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.lineage import read_lineage, recorded
from crewlite.state.providers import Commit, Store
from crewlite.system.steady_clock import steady

_PATIENCE = 10.0  # seconds to try to find a gap between two commits of a run that commits all the time


def cancel(store: Store, run_id: str, branch: str) -> None:
    """Mark a branch as cancelled. Raises RefError, RunMismatch, RunEnded; StoreBusy if the run commits too often."""
    until = steady() + _PATIENCE
    head, looked = _head(store, run_id, branch), True
    while head:
        try:
            store.append([Commit.of(run_id, branch, head, {"released": True, "cancelled": True})])
        except BranchConflictError as faster:
            if steady() > until:
                raise StoreBusy(store.location, _PATIENCE) from faster
            total = store.sum_at(run_id, branch, faster.found) if isinstance(faster.found, int) else None
            looked = not total
            head = (faster.found, total) if total and isinstance(faster.found, int) else _head(store, run_id, branch)
        else:
            if not looked:
                _head(store, run_id, branch)  # raises RunEnded if the run has ended meanwhile
            return


def why_refused(store: Store, run_id: str, branch: str, after: int, error: BranchConflictError) -> Exception:
    """Return RunCancelled if a commit after number `after` cancelled the branch; otherwise `error`.

    The returned `error` names the kind of the run, which a store does not know, and the live process that has acquired
    the branch since.
    """
    found = read_lineage(store, run_id, branch)
    record, later = found.record(), [entry.commit for entry in found.entries if entry.seq > after]
    if any("cancelled" in commit for commit in later):
        return RunCancelled(run_id, branch, kind=record.kind)
    if error.problem:
        return error
    taken = any("claim" in commit for commit in later)
    if taken and (by := held_by(record.claim, store.touched(run_id, branch))):
        return BranchConflictError(run_id, branch, holder=by, kind=record.kind)
    return BranchConflictError(run_id, branch, expected=error.expected, found=error.found, kind=record.kind)


def _head(store: Store, run_id: str, branch: str) -> Head | None:
    """Return the head of a branch; None if it is cancelled already. Raises RefError, RunMismatch, RunEnded."""
    record = recorded(store, run_id, branch)
    if record.kind == STATE:
        raise RunMismatch(f"{run_id}/{branch} is a saved state, not a run, so there is nothing to cancel")
    if record.finished or record.failed:
        raise RunEnded(run_id, branch, "is finished" if record.finished else "has failed")
    return None if record.cancelled else record.head
