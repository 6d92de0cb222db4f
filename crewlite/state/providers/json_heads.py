"""The length of each journal at its newest checkpoint, so that an older copy of the journal is recognised.

    location/heads/<run>/<branch>.json             the number and checksum of that commit, and the checkpoint

The file is outside `journal/`, because a backup may restore that directory alone. It is not synced: it states a length
that the journal must have at least, so an outdated file does no harm. A file that cannot be read is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from crewlite import disk
from crewlite.codec import JsonObject
from crewlite.ids import short
from crewlite.state.format.entry import Entry
from crewlite.state.providers.json_paths import Paths


class HeadFiles:
    """The head files of one location."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def read(self, run_id: str, branch: str) -> JsonObject:
        """Return the head file of a branch; {} without a readable one. Call this before reading the journal."""
        try:
            found: Any = json.loads(self._paths.head(run_id, branch).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, run_id: str, branch: str, begun: str, entry: Entry) -> None:
        """Write the head file, with the place of the newest checkpoint, which `entry` holds.

        `begun`: the checksum of the first entry, which identifies the journal.
        """
        path = self._paths.head(run_id, branch)
        disk.make_directory(path.parent)
        said = {"begun": begun, "seq": entry.seq, "sum": entry.sum, "checkpoint": entry.commit["place"]["id"]}
        disk.replace(path, json.dumps(said).encode() + b"\n", durable=False)

    def remove(self, run_id: str) -> None:
        """Delete the head files of a run."""
        disk.remove_directory(self._paths.heads(run_id))


def lacking(head: JsonObject, entries: Sequence[Entry]) -> str | None:
    """Return a sentence about the commits that a journal lacks according to its head file; None if it has them all."""
    seq, begun = head.get("seq"), head.get("begun")
    if not entries or begun != entries[0].sum or type(seq) is not int or seq <= entries[-1].seq:
        return None  # also if the head file is of an earlier branch with the same name
    checkpoint = short(str(head.get("checkpoint")))
    ends = f"it ends at commit {entries[-1].seq}, though checkpoint {checkpoint} was made at {seq}"
    return f"{ends}, so it may be an older copy"
