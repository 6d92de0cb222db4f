"""How long each journal was at its newest checkpoint, so that an older copy of it is recognised.

    location/heads/<run>/<branch>.json             the number and sum of that commit, and the checkpoint

The file lies apart from the journals, because those may be brought back from a backup. It is never synced: it only says
what a journal must have at least. A file that cannot be read is ignored.
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
    """The files of one location."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def read(self, run_id: str, branch: str) -> JsonObject:
        """What is known of a branch; {} if nothing is. To be read before the journal it is compared with."""
        try:
            found: Any = json.loads(self._paths.head(run_id, branch).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, run_id: str, branch: str, begun: str, entry: Entry) -> None:
        """Note the newest checkpoint, which `entry` names; `begun` is the sum of the branch's first entry."""
        path = self._paths.head(run_id, branch)
        disk.make_directory(path.parent)
        said = {"begun": begun, "seq": entry.seq, "sum": entry.sum, "checkpoint": entry.commit["place"]["id"]}
        disk.replace(path, json.dumps(said).encode() + b"\n", durable=False)

    def remove(self, run_id: str) -> None:
        """Forget a whole run."""
        disk.remove_directory(self._paths.heads(run_id))


def lacking(head: JsonObject, entries: Sequence[Entry]) -> str | None:
    """The sentence that says what a journal has lost since its newest checkpoint; None if it has that checkpoint."""
    seq, begun = head.get("seq"), head.get("begun")
    if not entries or begun != entries[0].sum or type(seq) is not int or seq <= entries[-1].seq:
        return None  # the same name may have been another branch's once
    return (
        f"it ends at commit {entries[-1].seq}, though checkpoint {short(str(head.get('checkpoint')))} was made at {seq}"
    )
