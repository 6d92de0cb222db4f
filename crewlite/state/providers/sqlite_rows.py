"""The rows of checkpoints in a database: an index, which can be rebuilt from the journals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crewlite.codec import digest
from crewlite.state.format.commit import CheckpointRecord

COLUMNS = ("id", "seq", "parent_id", "trigger", "address", "label", "created_at", "sum")
PUT_CHECKPOINT = f"INSERT OR REPLACE INTO place (branch_id, {', '.join(COLUMNS)}) VALUES (?,?,?,?,?,?,?,?,?)"  # noqa: S608

MAY_REWIND = "instr(body, x'22726577696e64223a7b') > 0"
"""The condition of the index of commits that may rewind their branch: the bytes are `"rewind":{`, also inside texts."""


def checkpoint_row(run_id: str, branch: str, checkpoint: CheckpointRecord) -> tuple[Any, ...]:
    """Build the row of a checkpoint, without its first column, the number of the branch."""
    seq, parent, label = checkpoint["seq"], checkpoint["parent"], checkpoint.get("label")
    named = (seq, parent, checkpoint["trigger"], checkpoint["address"], label, checkpoint["at"])
    return (checkpoint["id"], *named, row_digest([checkpoint["id"], run_id, branch, *named]))


def row_digest(row: Sequence[Any]) -> str:
    """Return a checksum of a checkpoint row, so that a listing detects changes without reading the journal."""
    return digest([item if isinstance(item, str | int | None) else repr(item) for item in row])
