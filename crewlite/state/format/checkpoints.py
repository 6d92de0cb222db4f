"""The checkpoints of a branch: their order, their parents, and whether the journal holds their commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry

SNAPSHOT = "snapshot"
"""The trigger of a checkpoint made with `state.snapshot()`."""


def recorded_in(entry: Entry) -> Iterator[CheckpointRecord]:
    """Yield the checkpoints that an entry records: the one that it creates, and the one that its fork starts from."""
    if place := entry.commit.get("place"):
        yield place
    if (base := entry.commit.get("run", {}).get("base")) and base["place"]:
        yield base["place"]


def along(checkpoint: CheckpointRecord) -> tuple[int, str]:
    """Return a sort key: the order of the checkpoints of a branch."""
    return checkpoint["seq"], checkpoint["id"]


def parent_of(
    checkpoint: CheckpointRecord,
    kept: Mapping[str, CheckpointRecord],
    dropped: Mapping[str, str | None],
    counts: Callable[[int], bool],
) -> str | None:
    """Return the id of the nearest ancestor in `kept`, or None. `dropped`: removed checkpoints with their parents.

    A checkpoint that was made later to label an earlier place is no ancestor of the checkpoints after that place,
    unless the checkpoint there was removed: then it takes its place. `counts` takes the number of a commit, and returns
    False if a rewind has abandoned that commit.
    """
    parent = _kept_ancestor(checkpoint["parent"], kept, dropped)
    if parent == checkpoint["parent"]:
        return parent
    since = kept[parent]["seq"] if parent else 0
    labels = [one for one in kept.values() if one.get("label") and counts(one["seq"])]
    between = [one for one in labels if one["seq"] > since and along(one) < along(checkpoint)]
    if not between or not counts(checkpoint["seq"]):
        return parent
    return max(between, key=along)["id"]


def _kept_ancestor(parent: str | None, kept: Collection[str], dropped: Mapping[str, str | None]) -> str | None:
    """Return `parent`, or the nearest of its ancestors, that is in `kept`; None if there is none."""
    for _ in range(len(dropped) + 1):
        if parent is None or parent in kept:
            return parent
        parent = dropped.get(parent)
    return None  # the parents form a circle, which crewlite never writes


def droppable(
    checkpoints: Iterable[CheckpointRecord], counts: Callable[[int], bool], kept: Collection[str]
) -> list[CheckpointRecord]:
    """Return the checkpoints that may be dropped, in the order in which to drop them.

    Those that a rewind has abandoned come first, then the others, from the oldest. Checkpoints with a label are left
    out, and those whose ids are in `kept`. `counts` takes the number of a commit, and returns False if a rewind has
    abandoned that commit.
    """
    free = [one for one in checkpoints if not one.get("label") and one["id"] not in kept]
    return sorted(free, key=lambda one: counts(one["seq"]))


def at_no_commit(checkpoints: Iterable[CheckpointRecord], sums: Mapping[int, str]) -> CheckpointRecord | None:
    """Return the first checkpoint whose commit is missing or changed. `sums`: the checksums of all entries, by seq."""
    for one in checkpoints:
        found = sums.get(one["seq"])
        if found is None or one.get("sum", found) != found:
            return one
    return None


def naming(checkpoint: CheckpointRecord) -> dict[str, Any]:
    """Return the fields with which events name a checkpoint."""
    return {"checkpoint_id": checkpoint["id"], "trigger": checkpoint["trigger"], "parent_id": checkpoint["parent"]}
