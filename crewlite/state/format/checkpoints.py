"""The checkpoints of a branch: which there are, their order and parents, and which of them may be dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry
from crewlite.state.format.rewinds import Ranges, is_abandoned

SNAPSHOT = "snapshot"
"""The trigger of a checkpoint made with `state.snapshot()`."""


class BranchCheckpoints(dict[str, CheckpointRecord]):
    """The checkpoints of a branch by their ids, those of its bases included. A record adds and removes them."""

    def __init__(self) -> None:
        super().__init__()
        self.abandoned: Ranges = ()
        """The ranges of commits that rewinds have abandoned."""
        self.newest: CheckpointRecord | None = None
        """The checkpoint at the latest valid commit."""
        self.highest_version = 0
        """The highest version of a checkpoint so far, dropped ones included."""
        self.dropped: dict[str, str | None] = {}
        """The ids of removed checkpoints, each with the id of its parent."""
        self.inherited: frozenset[str] = frozenset()
        """The ids of checkpoints of the branches that this one is forked from."""

    def add(self, checkpoint: CheckpointRecord) -> None:
        """Add the checkpoint that a commit has created."""
        if "version" not in checkpoint:  # written by an earlier release, or as the base of a fork
            checkpoint = {**checkpoint, "version": self.highest_version + 1}
        self.highest_version = max(self.highest_version, checkpoint["version"])
        self[checkpoint["id"]] = checkpoint
        newest = self.newest
        if self.is_valid(checkpoint["seq"]) and (newest is None or position_of(checkpoint) > position_of(newest)):
            self.newest = checkpoint

    def forget(self, dropped: Mapping[str, str | None]) -> None:
        """Remove checkpoints. `dropped` maps their ids to the ids of their parents."""
        for gone, parent in dropped.items():
            self.pop(gone, None)
            self.dropped[gone] = parent
        if self.newest and self.newest["id"] in dropped:
            self.newest = self.newest_up_to()

    def rewind(self, abandoned: Ranges) -> None:
        """Note a rewind, after which these ranges of commits are abandoned."""
        self.abandoned = abandoned
        self.newest = self.newest_up_to()

    def is_valid(self, seq: int) -> bool:
        """Return whether a commit is valid: no later commit has gone back to before it."""
        return not is_abandoned(seq, self.abandoned)

    def newest_up_to(self, seq: float = float("inf")) -> CheckpointRecord | None:
        """Return the last valid checkpoint at or before a commit; None if there is none."""
        valid = (one for one in self.values() if one["seq"] <= seq and self.is_valid(one["seq"]))
        return max(valid, key=position_of, default=None)

    def labelled(self, label: str) -> CheckpointRecord | None:
        """Return the valid checkpoint with this label; None if there is none."""
        return next((one for one in self.values() if one.get("label") == label and self.is_valid(one["seq"])), None)

    def droppable(self, kept: Collection[str]) -> list[CheckpointRecord]:
        """Return the checkpoints that may be dropped, in the order in which to drop them.

        Those that a rewind has abandoned come first, then the others, from the oldest. Checkpoints with a label are
        left out, those of the bases, and those whose ids are in `kept`.
        """
        free = (one for at, one in self.items() if at not in kept and at not in self.inherited)
        return sorted((one for one in free if not one.get("label")), key=lambda one: self.is_valid(one["seq"]))

    def parent(self, checkpoint: CheckpointRecord) -> str | None:
        """Return the id of the nearest ancestor of a checkpoint that was not removed; None if there is none.

        A checkpoint that was made later to label an earlier place is no ancestor of the checkpoints after that place,
        unless the checkpoint there was removed: then it takes its place.
        """
        parent = self._kept_ancestor(checkpoint["parent"])
        if parent == checkpoint["parent"] or not self.is_valid(checkpoint["seq"]):
            return parent
        since = self[parent]["seq"] if parent else 0
        labels = [one for one in self.values() if one.get("label") and self.is_valid(one["seq"])]
        between = [one for one in labels if one["seq"] > since and position_of(one) < position_of(checkpoint)]
        return max(between, key=position_of)["id"] if between else parent

    def _kept_ancestor(self, parent: str | None) -> str | None:
        """Return `parent`, or the nearest of its ancestors, that was not removed; None if there is none."""
        for _ in range(len(self.dropped) + 1):
            if parent is None or parent in self:
                return parent
            parent = self.dropped.get(parent)
        return None  # the parents form a circle, which crewlite never writes

    def first_misplaced(self, sums: Mapping[int, str]) -> CheckpointRecord | None:
        """Return the first one whose commit is missing or changed. `sums`: the checksums of all entries, by seq."""
        for one in self.values():
            found = sums.get(one["seq"])
            if found is None or one.get("sum", found) != found:
                return one
        return None


def recorded_in(entry: Entry) -> Iterator[CheckpointRecord]:
    """Yield the checkpoints that an entry records: the one that it creates, and the one that its fork starts from."""
    if place := entry.commit.get("place"):
        yield place
    if (base := entry.commit.get("run", {}).get("base")) and base["place"]:
        yield base["place"]


def position_of(checkpoint: CheckpointRecord) -> tuple[int, str]:
    """Return the key by which the checkpoints of a branch are ordered: by their commit, then the oldest first."""
    return checkpoint["seq"], checkpoint["id"]


def event_fields(checkpoint: CheckpointRecord) -> dict[str, Any]:
    """Return the fields with which events name a checkpoint."""
    return {"checkpoint_id": checkpoint["id"], "trigger": checkpoint["trigger"], "parent_id": checkpoint["parent"]}
