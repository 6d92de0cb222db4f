"""The length of each journal at its newest checkpoint, so that an older copy of the journal is recognised.

    location/heads/<run>/<branch>.json             the number and checksum of that commit, the checkpoint, the rewinds

The file is outside `journal/`, because a backup may restore that directory alone. It states the least length of the
journal, so an outdated file does no harm. Only a rewind syncs it to disk. A file that cannot be read is ignored. The
rewinds are repeated here so that a listing tells abandoned checkpoints apart without reading journals. Each file is
overwritten in place, so a process writes and reads it while it holds the file's lock.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from crewlite import disk
from crewlite.codec import JsonObject
from crewlite.ids import short
from crewlite.json_text import encoder_of
from crewlite.state.format.entry import Entry
from crewlite.state.format.rewinds import Rewound
from crewlite.state.providers.json_paths import Paths

log = logging.getLogger("crewlite.state")
_text = encoder_of(json.JSONEncoder())


class HeadFiles:
    """The head files of one location."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def read(self, run_id: str, branch: str) -> JsonObject:
        """Return the head file of a branch; {} if none can be read. Call this before reading the journal."""
        try:
            # decoded first: json.loads would guess the encoding of bytes, and import it
            found: Any = json.loads(disk.read_complete(self._paths.head(run_id, branch)).decode())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, run_id: str, branch: str, begun: str, entry: Entry, rewinds: Sequence[Rewound]) -> None:
        """Write the head file for `entry`, which holds the newest checkpoint or a rewind.

        `begun`: the checksum of the first entry, which identifies the journal. `rewinds`: all rewinds of the branch.
        """
        path = self._paths.head(run_id, branch)
        # The number is among the first bytes, so even a copy made without the lock states none that was never written.
        said: JsonObject = {"begun": begun, "seq": entry.seq, "sum": entry.sum}
        said |= {"checkpoint": entry.commit["place"]["id"]} if "place" in entry.commit else {}
        said |= {"rewinds": [list(rewind) for rewind in rewinds]} if rewinds else {}
        data, rewound = _text(said).encode() + b"\n", "rewind" in entry.commit
        if rewound or not disk.overwrite(path, data):  # of the same length: only its first sector differs
            disk.make_directory(path.parent, durable=False)
            disk.replace(path, data, durable=rewound)
        if rewound:
            with disk.SyncBatch() as batch:
                batch.sync_names(path.parent, self._paths.root)

    def remove(self, run_id: str) -> None:
        """Delete the head files of a run."""
        disk.remove_directory(self._paths.heads(run_id))

    def remove_left(self, run_id: str) -> None:
        """Delete the head files of a run that is about to begin. Warn if there are any: then its journal was lost."""
        if head := next(self._paths.heads(run_id).rglob("*.json"), None):
            told = "%s is gone, though %s notes a checkpoint in it: run %r begins anew, and pays again for what it held"
            log.warning(told, self._paths.run(run_id), head, run_id)
            self.remove(run_id)


def lacking(head: JsonObject, entries: Sequence[Entry]) -> str | None:
    """Return a sentence about commits that a journal lacks according to its head file; None if it lacks none."""
    seq, begun = head.get("seq"), head.get("begun")
    if not entries or begun != entries[0].sum or type(seq) is not int or seq <= entries[-1].seq:
        return None  # also if the head file is of an earlier branch with the same name
    made = f"checkpoint {short(str(head['checkpoint']))} was made" if "checkpoint" in head else "it was rewound"
    return f"it ends at commit {entries[-1].seq}, though {made} at {seq}, so it may be an older copy"


def rewinds_in(head: JsonObject) -> list[Rewound]:
    """Return the rewinds that are listed in a head file; [] if it is damaged."""
    found: Any = head.get("rewinds", [])
    try:
        return [(int(number), int(back)) for number, back in found]
    except (TypeError, ValueError):
        return []


def holds_head(entry: Entry) -> bool:
    """Return whether the head file is written after this entry."""
    return "place" in entry.commit or "rewind" in entry.commit
