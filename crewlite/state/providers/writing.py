"""What every store needs before it writes: checks of the commits against what is stored, and the errors of writes."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from crewlite.errors import BranchConflictError, StoreError
from crewlite.state.format.commit import ForkBase, RewindTarget
from crewlite.state.format.entry import Entry, Head, InvalidEntry
from crewlite.state.providers.base import BranchInfo, Commit
from crewlite.state.providers.reading import sound_part


def begins_from_nothing(commit: Commit) -> bool:
    """Return whether a commit begins a run from nothing: it creates a branch, is no fork, and brings no later commits.

    Whoever imports a run, or stores one that was in memory, brings all its commits at once.
    """
    return commit.run is not None and not commit.run.get("base") and len(commit.entries) == 1


def committed_at(commit: Commit) -> float:
    """Return the time to store as the branch's last sign of life, in seconds since the epoch.

    That is the time of the last entry, which is long ago in an imported run; without entries, the current time.
    """
    return datetime.fromisoformat(commit.entries[-1].commit["at"]).timestamp() if commit.entries else time.time()


def not_saved(location: str, what: str, error: OSError) -> StoreError:
    """Build the error for a write that failed. `what` says what was not done: "the label was not saved"."""
    remedy = "free space on its disk" if is_full(error) else "make the location readable and writable"
    return StoreError(location, f"{what} ({error}). Nothing that was saved before is lost: {remedy}, and try again")


def is_full(error: Exception) -> bool:
    """Return whether a write failed because the disk is full, or what this user may use of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def no_branch(run_id: str, branch: str, expected: int) -> BranchConflictError:
    """Build the error for a write after commit `expected` of a branch that does not exist."""
    again = (
        f"To start the run again, kick off with run_id={run_id!r}."
        if branch == "main"
        else "To create it again, fork the run again, from a checkpoint that still exists."
    )
    problem = f"does not exist: it was deleted, or never stored. Nothing was written to it. {again}"
    return BranchConflictError(run_id, branch, expected=expected, found="no branch", problem=problem)


def no_base(commit: Commit, base: ForkBase) -> BranchConflictError:
    """Build the error for a fork whose base is not stored."""
    problem = (
        f"was not created: it is to be forked from commit {base['seq']} of {base['branch']!r}, which is not stored, or "
        f"not any more, or whose checkpoint is not. Fork again, from a checkpoint that still exists."
    )
    return BranchConflictError(*commit.key, expected=commit.after, found="no base", problem=problem)


def check_base(
    commit: Commit, base: ForkBase, sum_at: Callable[[int], str | None], begins: Callable[[], int | None]
) -> None:
    """Raise BranchConflictError unless the commit that a fork starts from, and that of its checkpoint, are stored.

    A prune may have removed the checkpoint's commit alone, if a rewind had abandoned it. `sum_at(seq)` returns the
    checksum of a commit of the branch that is forked, `begins()` the number of the first one: an earlier checkpoint is
    one that the branch has inherited. Call this under the lock of the append.
    """
    stored, checkpoint = sum_at(base["seq"]) == base["sum"], base["place"]
    if stored and checkpoint and sum_at(checkpoint["seq"]) is None:
        stored = checkpoint["seq"] < (begins() or 0)
    if not stored:
        raise no_base(commit, base)


def check_rewrite(
    location: str,
    run_id: str,
    branch: str,
    own: Sequence[Entry],
    entries: Sequence[Entry],
    *,
    found: Sequence[tuple[int, str]],
    forks: Iterable[BranchInfo],
) -> None:
    """Check the arguments of `Store.rewrite` against the store. Call it under the lock that the rewrite holds.

    `found` are the seq and the seal of each entry that is stored, `forks` all branches of the run. Raises what
    `Store.rewrite` raises.
    """
    expected = own[-1].seq if own else 0
    if not found:
        raise no_branch(run_id, branch, expected)
    if not own or list(found) != [(entry.seq, entry.seal) for entry in own]:
        raise BranchConflictError(run_id, branch, expected=expected, found=found[-1][0])
    sums, kept = {entry.sum for entry in entries}, {entry.seq for entry in entries}
    for fork in forks:
        if fork.base and fork.base["branch"] == branch:
            checkpoint = fork.base["place"]  # a checkpoint of this branch, or of one that this branch is forked from
            lost = checkpoint and checkpoint["seq"] >= own[0].seq and checkpoint["seq"] not in kept
            if lost or fork.base["sum"] not in sums:
                problem = (
                    f"was not rewritten: branch {fork.branch!r} is forked from a commit that would be removed. Prune "
                    f"again: that reads which forks there are now, and keeps what they are forked from."
                )
                raise BranchConflictError(run_id, branch, expected=expected, found="a fork", problem=problem)
    try:
        _check_replaces(run_id, branch, own, entries)
    except InvalidEntry as problem:
        where = f"branch {branch!r} of run {run_id!r} was not rewritten"
        raise StoreError(
            location,
            f"{where}, and nothing has changed: the new entries do not hold what the branch holds ({problem}). The "
            f"code that made them has a defect: report it with this message",
        ) from None


def _check_replaces(run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
    """Raise InvalidEntry unless `entries` can replace the journal `own`: they begin and end with the same commits.

    The seq and checksum of each must be those of an entry of `own`, so that later entries and forks stay chained to it.
    """
    ends = {entry.head for entry in own}
    read, problem = sound_part(((one.body, one.seal, one.seq) for one in entries), run_id, branch, branch)
    if problem:
        raise InvalidEntry(problem)
    for entry in read:
        if entry.head not in ends:
            raise InvalidEntry(f"commit {entry.seq} has another checksum")
    if not read or read[-1].head != own[-1].head:
        raise InvalidEntry(f"commit {own[-1].seq} is not the last one")
    if _rewinds(read) != _rewinds(own):
        raise InvalidEntry("the commits that rewind the branch are different")
    if read[0].commit["run"] != own[0].commit["run"]:
        raise InvalidEntry("the first commit begins another branch")


def _rewinds(entries: Iterable[Entry]) -> list[tuple[int, RewindTarget]]:
    found = [(entry.first, entry.commit.get("rewind")) for entry in entries]
    return [(first, back) for first, back in found if back]


def check_bases(commits: Sequence[Commit]) -> None:
    """Raise BranchConflictError unless each of these commits of a new run creates a branch, its base's commit first."""
    made: set[tuple[str, Head]] = set()
    for commit in commits:
        if commit.run is None:
            raise no_branch(*commit.key, commit.after)
        base = commit.run.get("base")
        if base and (base["branch"], (base["seq"], base["sum"])) not in made:
            raise no_base(commit, base)
        made |= {(commit.branch, entry.head) for entry in commit.entries}


def check_remove(run_id: str, expected: Mapping[str, Head], found: Mapping[str, Head]) -> None:
    """Raise BranchConflictError if the heads of a run, now `found`, are not as `expected`."""
    for branch in sorted(expected.keys() | found.keys()):
        was, now = expected.get(branch, (0, "")), found.get(branch)
        if now is None:
            raise no_branch(run_id, branch, was[0])
        if now != was:
            raise BranchConflictError(run_id, branch, expected=was[0], found=now[0])
