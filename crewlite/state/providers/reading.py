"""Functions on entries that every store needs: the items of listings, and the checks before it reads or writes."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from crewlite.errors import BranchConflictError, JournalCorrupt, SchemaTooNew, StoreError, StoreUnusable
from crewlite.state.format.commit import CheckpointRecord, ForkBase, Rewind
from crewlite.state.format.entry import Entry, Head, InvalidEntry, chained, parse, start_of, unseal
from crewlite.state.format.forms import check_recorded_inputs
from crewlite.state.format.rewinds import Ranges, is_abandoned
from crewlite.state.providers.base import BranchInfo, CheckpointInfo, Commit, End

FileId = tuple[int, int]
"""The device and the inode of a file or directory, to notice that it was replaced."""
LAST = 4
"""How many entries at the end of a journal `end_of` looks at."""
_FORBIDDEN = "give this user the right to read it, and to enter the directories above it"
_MISPLACED = "look at what is at this path"
_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _FORBIDDEN),
    **dict.fromkeys((errno.EINVAL, errno.ELOOP, errno.ENOTDIR), _MISPLACED),
}
"""What to do about a file that cannot be read, by the number of an error that another try would meet again."""
_WORK = {"claim", "intents", "asked"}
"""Parts of a commit of a run that may not have ended, whatever step the commit holds."""
_WITHOUT_WORK = {"schema", "seq", "at", "drops", "place"}
"""The parts of a commit that a prune or a label adds to a run."""


def branch_info(first: Entry) -> BranchInfo:
    """Build the item of a listing for a branch, from its first entry."""
    run = first.commit["run"]
    return BranchInfo(
        run_id=run["run_id"],
        branch=run["branch"],
        uid=run["uid"],
        identity=run["identity"],
        kind=run["definition"]["kind"],
        name=run["definition"]["name"],
        started_at=first.commit["at"],
        base=run.get("base"),
    )


def verified_branch_info(body: bytes, seal: str, run_id: str, branch: str, where: str) -> BranchInfo:
    """Build the item of a listing for a branch, from the bytes and the seal of its first entry.

    Raises InvalidEntry if they are not those of the first entry of this branch, SchemaTooNew, naming `where`.
    """
    if (start := start_of(body, seal)) and start[1:3] == (run_id, branch):
        at, *_, uid, identity, kind, name = start
        return BranchInfo(run_id, branch, uid, identity, kind, name, at, base=None)
    first = unseal(body, seal, after=None, where=where)
    check_follows(first, [], run_id, branch, first.seq)
    return branch_info(first)


def in_order(branches: Iterable[BranchInfo]) -> list[BranchInfo]:
    """Sort branches for a listing: newest run first, those of a run in the order of their creation."""
    made = sorted(branches, key=lambda info: (info.base is not None, info.started_at, info.branch))
    return sorted(made, key=lambda info: info.uid, reverse=True)


def checkpoint_info(run: Mapping[str, Any], checkpoint: CheckpointRecord, left: Ranges = ()) -> CheckpointInfo:
    """Build the item of a listing for a checkpoint. `left`: the ranges of commits that its branch has abandoned."""
    return CheckpointInfo(
        id=checkpoint["id"],
        run_id=run["run_id"],
        branch=run["branch"],
        seq=checkpoint["seq"],
        parent_id=checkpoint["parent"],
        trigger=checkpoint["trigger"],
        address=checkpoint["address"],
        label=checkpoint.get("label"),
        created_at=checkpoint["at"],
        abandoned=is_abandoned(checkpoint["seq"], left),
    )


def live_checkpoints(entries: Sequence[Entry]) -> list[CheckpointRecord]:
    """Return the checkpoints that these entries create and do not drop, in order."""
    found: dict[str, CheckpointRecord] = {}
    for entry in entries:
        for gone, _ in entry.commit.get("drops", ()):
            found.pop(gone, None)
        if checkpoint := entry.commit.get("place"):
            found[checkpoint["id"]] = checkpoint
    return list(found.values())


def check_follows(entry: Entry, before: Sequence[Entry], run_id: str, branch: str, seq: int) -> None:
    """Raise InvalidEntry unless `entry`, to be stored as number `seq`, follows the entries `before` in this branch."""
    commit = entry.commit
    if before:
        if "run" in commit:
            raise InvalidEntry("this commit begins a run, in the middle of another")
        expected = before[-1].seq + 1
        if "inputs" in commit:
            try:
                check_recorded_inputs(before[0].commit["run"]["definition"]["kind"], commit["inputs"])
            except ValueError as misfit:
                raise InvalidEntry(f"no crewlite wrote this: {misfit}") from None
    else:
        if "run" not in commit:
            raise InvalidEntry("this is the first commit, and does not begin a run")
        run = commit["run"]
        if (run["run_id"], run["branch"]) != (run_id, branch):
            belongs = f"belongs to branch {run['branch']!r} of run {run['run_id']!r}"
            raise InvalidEntry(f"this commit {belongs}; perhaps the journal was copied or renamed")
        base = run.get("base")
        expected = base["seq"] + 1 if base else 1
    if (entry.seq, entry.first) != (seq, expected):
        raise InvalidEntry(f"commit {expected} is missing")
    back = commit.get("rewind")
    if back and (back["seq"], back["sum"]) not in [earlier.head for earlier in before]:
        raise InvalidEntry(f"this commit goes back to commit {back['seq']}, which is missing")


def sound_part(
    records: Iterable[tuple[Any, Any, int | None]], run_id: str, branch: str, where: str
) -> tuple[list[Entry], str | None]:
    """Read the entries of a branch up to the first fault. Returns (entries, a sentence about the fault or None).

    `records`: (body, seal, number) of each, as stored; None for the number if only the body has it. An InvalidEntry
    that the iterator raises is a fault, too. Raises SchemaTooNew, naming `where`.
    """
    found: list[Entry] = []
    try:
        for body, seal, seq in records:
            entry = unseal(body, seal, after=found[-1].sum if found else None, where=where)
            check_follows(entry, found, run_id, branch, entry.seq if seq is None else seq)
            found.append(entry)
    except InvalidEntry as fault:
        return found, str(fault)
    return found, None


def ends_claim(data: Mapping[str, Any]) -> bool:
    """Return whether a commit, damaged or not, releases its branch, or records the result or failure of its run."""
    if "released" in data:
        return True
    steps = data.get("steps")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict) and step.get("address") == "":
            error = step.get("error")
            if not isinstance(error, dict) or error.get("final"):
                return True
    return False


def end_of(records: Sequence[tuple[Any, Any]], head: str | None = None) -> End | None:
    """Return how a run ended, from the (body, seal) of its last `LAST` entries, newest first; None if they do not tell.

    Each is verified against the one before it, so the oldest serves for that alone. `head`: the checksum of the last
    entry, if the store notes it elsewhere as well.
    """
    with contextlib.suppress(InvalidEntry, SchemaTooNew):  # whoever reads the journal says what is wrong with it
        for (body, seal), before in pairwise(records):
            entry = unseal(body, seal, after=chained_sum(*before), where="")
            if head not in (None, entry.sum):
                return None
            if not entry.commit.keys() <= _WITHOUT_WORK:
                return _end_in(entry)
            head = None
    return None


def _end_in(entry: Entry) -> End | None:
    """Return how a run ended by an entry; None if it has not, or if it takes the rest of the journal to tell."""
    steps = entry.commit.get("steps")
    if not steps or steps[-1]["address"] or not entry.commit.keys().isdisjoint(_WORK):
        return None
    if error := steps[-1].get("error"):
        return "failed" if error["final"] else None
    return None if steps[-1].get("again") else "finished"


def chained_sum(body: object, seal: object) -> str:
    """Return the checksum that the commit after this one is chained to. Raises InvalidEntry if this one is damaged."""
    if not isinstance(body, bytes) or not isinstance(seal, str):
        raise InvalidEntry("the commit before this one has lost its bytes")
    return chained(parse(body), seal)


def pays_anew(commit: Commit) -> bool:
    """Return whether a commit begins a run from nothing: it creates a branch, is no fork, and brings no later commits.

    Whoever imports a run, or stores one that was in memory, brings all its commits at once.
    """
    return commit.run is not None and not commit.run.get("base") and len(commit.entries) == 1


def committed_at(commit: Commit) -> float:
    """Return the time to store as the branch's last sign of life, in seconds since the epoch.

    That is the time of the last entry, which is long ago in an imported run; without entries, the current time.
    """
    return datetime.fromisoformat(commit.entries[-1].commit["at"]).timestamp() if commit.entries else time.time()


def newest_sound_checkpoint(entries: Sequence[Entry], ref: Callable[[CheckpointRecord], str]) -> str | None:
    """Return the ref of the newest checkpoint in these intact entries; None if they hold none."""
    checkpoints = live_checkpoints(entries)
    return ref(checkpoints[-1]) if checkpoints else None


def unreadable(problem: Exception, where: str, location: str) -> Exception:
    """Return the error for a branch, of the store at this location, whose first entry cannot be read."""
    if isinstance(problem, OSError) and problem.errno != errno.EINVAL:  # see disk.opened
        return not_read(where, problem)
    return problem if isinstance(problem, SchemaTooNew) else JournalCorrupt(where, str(problem), None, location)


def not_read(path: Path | str, error: OSError) -> StoreError:
    """Build the error for a file or directory that the system does not read at the moment. It need not be damaged."""
    remedy = _REMEDIES.get(error.errno or 0, "try again")
    return StoreError(str(path), f"cannot be read now ({error.strerror}); {remedy}")


def not_saved(location: str, what: str, error: OSError) -> StoreError:
    """Build the error for a write that failed. `what` says what was not done: "the label was not saved"."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = "free space on its disk" if full else "make the location readable and writable"
    return StoreError(location, f"{what} ({error}). Nothing that was saved before is lost: {remedy}, and try again")


def exists(location: str | Path) -> bool:
    """Return whether a file or directory exists. Raises StoreError if the system does not let this process look."""
    try:
        os.stat(location)
    except PermissionError as error:
        raise not_read(location, error) from error
    except (OSError, ValueError):
        return False
    return True


def absolute(location: str) -> Path:
    """Return a location as an absolute path. Raises StoreUnusable if the working directory was deleted."""
    try:
        return Path(location).absolute()
    except FileNotFoundError as error:
        gone = "is relative to the working directory, which was deleted: change to another one, or pass a whole path"
        raise StoreUnusable(location, gone) from error


def real_path(location: str) -> str:
    """Return a location without links, to be compared with others; unchanged if the working directory was deleted."""
    try:
        return os.path.realpath(location)
    except FileNotFoundError:  # which the provider says if it matters
        return location


def file_id(path: Path) -> FileId | None:
    """Return the file or directory at a path; None if there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


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
            raise InvalidEntry(f"commit {entry.seq} has another sum")
    if not read or read[-1].head != own[-1].head:
        raise InvalidEntry(f"commit {own[-1].seq} is not the last one")
    if _rewinds(read) != _rewinds(own):
        raise InvalidEntry("the commits that rewind the branch are different")
    if read[0].commit["run"] != own[0].commit["run"]:
        raise InvalidEntry("the first commit begins another branch")


def _rewinds(entries: Iterable[Entry]) -> list[tuple[int, Rewind]]:
    found = [(entry.first, entry.commit.get("rewind")) for entry in entries]
    return [(first, back) for first, back in found if back]


def check_bases(commits: Sequence[Commit]) -> None:
    """Raise BranchConflictError unless each of these commits of a new run creates a branch, after that of its base."""
    made: set[tuple[str, Head]] = set()
    for commit in commits:
        if commit.run is None:
            raise no_branch(*commit.key, commit.after)
        base = commit.run.get("base")
        if base and (base["branch"], (base["seq"], base["sum"])) not in made:
            raise no_base(commit, base)
        made |= {(commit.branch, entry.head) for entry in commit.entries}


def check_remove(run_id: str, expected: dict[str, Head], found: dict[str, Head]) -> None:
    """Raise BranchConflictError if the heads of a run, now `found`, are not as `expected`."""
    for branch in sorted(expected.keys() | found.keys()):
        was, now = expected.get(branch, (0, "")), found.get(branch)
        if now is None:
            raise no_branch(run_id, branch, was[0])
        if now != was:
            raise BranchConflictError(run_id, branch, expected=was[0], found=now[0])
