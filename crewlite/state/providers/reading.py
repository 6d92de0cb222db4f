"""What every store needs when it reads: entries that are verified, and the items of its listings."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from crewlite.errors import JournalCorrupt, SchemaTooNew
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry, InvalidEntry, chained, parse, start_of, unseal
from crewlite.state.format.forms import check_recorded_inputs
from crewlite.state.format.rewinds import Ranges, is_abandoned
from crewlite.state.providers.base import BranchInfo, CheckpointInfo, End
from crewlite.state.providers.locations import not_read

LAST = 4
"""How many entries at the end of a journal `end_of` looks at."""
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


def checkpoint_info(run: Mapping[str, Any], checkpoint: CheckpointRecord, abandoned: Ranges = ()) -> CheckpointInfo:
    """Build the item of a listing for a checkpoint. `abandoned`: the abandoned ranges of commits of its branch."""
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
        abandoned=is_abandoned(checkpoint["seq"], abandoned),
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


def newest_sound_checkpoint(entries: Sequence[Entry], ref: Callable[[CheckpointRecord], str]) -> str | None:
    """Return the ref of the newest checkpoint in these intact entries; None if they hold none."""
    checkpoints = live_checkpoints(entries)
    return ref(checkpoints[-1]) if checkpoints else None


def unreadable(problem: Exception, where: str, location: str) -> Exception:
    """Return the error for a branch, of the store at this location, whose first entry cannot be read."""
    if isinstance(problem, OSError) and problem.errno != errno.EINVAL:  # see disk.opened
        return not_read(where, problem)
    return problem if isinstance(problem, SchemaTooNew) else JournalCorrupt(where, str(problem), None, location)
