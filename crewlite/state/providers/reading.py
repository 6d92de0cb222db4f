"""What any store can work out from entries alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from crewlite.errors import BranchConflictError
from crewlite.state.entry import Entry, Facts, Unsound
from crewlite.state.providers.base import BranchInfo, Commit, Head, PlaceInfo


def branch_info(first: Entry) -> BranchInfo:
    """The listing line of a branch, from its first entry."""
    run = first.facts["run"]
    return BranchInfo(
        run_id=run["run_id"],
        branch=run["branch"],
        uid=run["uid"],
        identity=run["identity"],
        kind=run["definition"]["kind"],
        name=run["definition"]["name"],
        started_at=first.facts["at"],
        base=run.get("base"),
    )


def in_order(branches: Iterable[BranchInfo]) -> list[BranchInfo]:
    """Branches as listings have them: newest run first, those of a run in the order they were made."""
    made = sorted(branches, key=lambda info: (info.base is not None, info.started_at, info.branch))
    return sorted(made, key=lambda info: info.uid, reverse=True)


def place_info(run: Facts, place: Facts) -> PlaceInfo:
    """The listing line of a place."""
    return PlaceInfo(
        id=place["id"],
        run_id=run["run_id"],
        branch=run["branch"],
        seq=place["seq"],
        parent_id=place["parent"],
        trigger=place["trigger"],
        address=place["address"],
        label=place.get("label"),
        created_at=place["at"],
    )


def live_places(entries: Sequence[Entry]) -> list[Facts]:
    """The facts of the places that a branch's own journal names and has not dropped, in order."""
    found: dict[str, Facts] = {}
    for entry in entries:
        for gone, _ in entry.facts.get("drops", ()):
            found.pop(gone, None)
        if place := entry.facts.get("place"):
            found[place["id"]] = place
    return list(found.values())


def check_follows(entry: Entry, before: Sequence[Entry], run_id: str, branch: str, seq: int) -> None:
    """Raises Unsound if an entry is not the next one of this branch, or is stored under another number than its own."""
    facts = entry.facts
    first = facts["folded"]["first"] if "folded" in facts else entry.seq
    if before:
        if "run" in facts:
            raise Unsound("a run begins here, in the middle of another")
        expected = before[-1].seq + 1
    else:
        if "run" not in facts:
            raise Unsound("no run begins here")
        run = facts["run"]
        if (run["run_id"], run["branch"]) != (run_id, branch):
            raise Unsound(f"it belongs to branch {run['branch']!r} of run {run['run_id']!r}")
        expected = run["base"]["seq"] + 1 if run.get("base") else 1
    if (entry.seq, first) != (seq, expected):
        raise Unsound(f"commit {expected} is missing")


def told_at(commit: Commit) -> float:
    """When a branch was last heard of, seconds since the epoch: now, or when its last entry was made, if imported."""
    return datetime.fromisoformat(commit.entries[-1].facts["at"]).timestamp() if commit.entries else time.time()


def newest_sound_place(entries: Sequence[Entry], ref: Callable[[dict[str, Any]], str]) -> str | None:
    """The ref of the newest place among entries that were read without a fault."""
    places = live_places(entries)
    return ref(places[-1]) if places else None


def check_rewrite(
    run_id: str, branch: str, expected: Head, found: Head | None, kept: Sequence[Entry], forks: Iterable[BranchInfo]
) -> None:
    """Raises BranchConflictError if a branch is not at the expected head, or a fork of it would lose its base."""
    if found != expected:
        raise BranchConflictError(run_id, branch, expected=expected[0], found=found[0] if found else "its end")
    sums = {entry.sum for entry in kept}
    for fork in forks:
        if fork.base and fork.base["branch"] == branch and fork.base["sum"] not in sums:
            raise BranchConflictError(run_id, branch, expected=expected[0], found=f"the base of {fork.branch!r}")


def check_bases(commits: Sequence[Commit]) -> None:
    """Raises BranchConflictError if a fork among commits that make a run has no base among those before it."""
    made: set[tuple[str, int, str]] = set()
    for commit in commits:
        base = commit.run.get("base") if commit.run else None
        if base and (base["branch"], base["seq"], base["sum"]) not in made:
            gone = "a base that is not there"
            raise BranchConflictError(commit.run_id, commit.branch, expected=commit.after, found=gone)
        made |= {(commit.branch, entry.seq, entry.sum) for entry in commit.entries}


def check_remove(run_id: str, expected: dict[str, Head], found: dict[str, Head]) -> None:
    """Raises BranchConflictError if a run has moved since it was looked at."""
    for branch in sorted(expected.keys() | found.keys()):
        if expected.get(branch) != found.get(branch):
            was, now = expected.get(branch, (0, ""))[0], found.get(branch, (0, ""))[0]
            raise BranchConflictError(run_id, branch, expected=was, found=now)
