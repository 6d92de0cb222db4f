"""The length of each journal at its newest checkpoint, so that an older copy of the journal is recognised.

    location/heads/<run>/<branch>.json             the number and checksum of that commit, the checkpoint, the rewinds

The file is outside `journal/`, because a backup may restore that directory alone. It states the least length of the
journal, so an outdated file does no harm. Only a rewind syncs it to disk. A file that cannot be read is ignored. The
rewinds are repeated here so that a listing tells abandoned checkpoints apart without reading journals. Each file is
overwritten in place, so a process writes and reads it while it holds the file's lock.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crewlite.encoding.codec import JsonObject
from crewlite.encoding.json_text import encoder_of
from crewlite.errors import StoreBusy
from crewlite.ids import short
from crewlite.state.format.entry import Entry
from crewlite.state.format.rewinds import Rewound
from crewlite.state.providers import writing
from crewlite.state.providers.base import Commit
from crewlite.state.providers.json_paths import Paths
from crewlite.system import disk
from crewlite.texts.logs import logger

log = logger("crewlite.state")
_text = encoder_of(json.JSONEncoder())
_UNNOTICED = "an older copy of the journal is not noticed"


class HeadFiles:
    """The head files of one location."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def read(self, run_id: str, branch: str) -> JsonObject:
        """Return the head file of a branch; {} if none can be read. Call this before reading the journal.

        Raises StoreBusy if a stopped process is in the middle of writing it.
        """
        path = self._paths.head(run_id, branch)
        try:
            # decoded first: json.loads would guess the encoding of bytes, and import it
            found: Any = json.loads(disk.read_complete(path).decode())
        except StoreBusy:
            raise
        except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
            return {}
        except OSError as error:
            log.warning("%s was not read: %s. Until it is, %s", path, error.strerror, _UNNOTICED)
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, run_id: str, branch: str, begun: str, entry: Entry, rewinds: Sequence[Rewound]) -> None:
        """Write the head file for `entry`, which holds the newest checkpoint or a rewind. Raises OSError for a rewind.

        For a checkpoint it only warns: `entry` is stored, and the file that was there before does no harm. `begun`: the
        checksum of the first entry, which identifies the journal. `rewinds`: all rewinds of the branch.
        """
        path = self._paths.head(run_id, branch)
        # The number is among the first bytes, so even a copy made without the lock states none that was never written.
        content: JsonObject = {"begun": begun, "seq": entry.seq, "sum": entry.sum}
        content |= {"checkpoint": entry.commit["place"]["id"]} if "place" in entry.commit else {}
        content |= {"rewinds": [list(rewind) for rewind in rewinds]} if rewinds else {}
        data, rewound = _text(content).encode() + b"\n", "rewind" in entry.commit
        try:
            if rewound or not disk.overwrite(path, data):  # of the same length: only its first sector differs
                disk.make_directory(path.parent, durable=False)
                disk.replace(path, data, durable=rewound)
        except OSError as error:
            if rewound:
                raise
            log.warning("%s was not written: %s. Until it is, %s", path, error, _UNNOTICED)
        if rewound:
            with disk.SyncBatch() as batch:
                batch.sync_names(path.parent, self._paths.root)

    def remove(self, run_id: str) -> None:
        """Delete the head files of a run."""
        disk.remove_directory(self._paths.heads(run_id))

    def begin_anew(self, commit: Commit) -> None:
        """Delete the head file of a branch that is about to begin. Warn if it had a journal, which then was lost."""
        journal, head = (path(*commit.key) for path in (self._paths.journal, self._paths.head))
        signs = [(path, "notes a checkpoint in it") for path in _with_set_aside(head)]
        signs += [(path, "holds commits of it that the doctor set aside") for path in _with_set_aside(journal)]
        if signs and writing.begins_from_nothing(commit):
            path, sign = signs[0]
            warning = "%s is gone, though %s %s: run %r begins anew, and pays again for what it held"
            log.warning(warning, journal, path, sign, commit.run_id)
        if signs:
            disk.remove(head)


def _with_set_aside(path: Path) -> list[Path]:
    """Return the file at `path`, if there is one, and those that the doctor has set aside from there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        left = [name for name in os.listdir(path.parent) if name == path.name or name.startswith(f"{path.name}.aside-")]
        return [path.with_name(name) for name in sorted(left)]
    return []


def missing_commits(head: JsonObject, entries: Sequence[Entry]) -> str | None:
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


def is_noted_in_head(entry: Entry) -> bool:
    """Return whether the head file is written after this entry."""
    return "place" in entry.commit or "rewind" in entry.commit
