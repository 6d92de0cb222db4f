"""Checkpoint files: each shows one checkpoint for people to read, and is derived from the journal alone."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from crewlite import disk
from crewlite.codec import digest
from crewlite.errors import CheckpointMismatch, ConfigError, RefError, SchemaTooNew
from crewlite.refs import check_name
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import SCHEMA, Entry, InvalidEntry, parse
from crewlite.state.providers.base import CheckpointInfo
from crewlite.state.providers.json_paths import Paths

_TOGETHER = 64  # files that share a sync of their directory
log = logging.getLogger("crewlite.state")
_NAME = re.compile(r"\d{8}T\d+_([0-9a-f]{32})\.json")
_ID_IN_NAME = slice(-37, -5)
_ID = re.compile("[0-9a-f]{32}")
_NO_DIGITS_OR_LETTERS = re.compile(r"\W+")


@dataclass(slots=True)
class Changes:
    """Checkpoint files to write (`made`: their content by path) and to remove (`gone`)."""

    made: dict[Path, bytes] = field(default_factory=dict)
    gone: list[Path] = field(default_factory=list)

    def add(self, more: Changes) -> None:
        """Make these changes too."""
        self.made |= more.made
        self.gone += more.gone


class CheckpointFiles:
    """The checkpoint files of one location."""

    def __init__(self, paths: Paths) -> None:
        self._paths, self._root = paths, paths.root

    def path(self, checkpoint: CheckpointRecord) -> Path:
        """Return the path of the file of a checkpoint."""
        return self._root / _name(checkpoint)

    def paths(self, entries: Sequence[Entry]) -> dict[str, Path]:
        """Return the paths of the checkpoints in these entries, dropped ones included, by id."""
        checkpoints = [entry.commit["place"] for entry in entries if "place" in entry.commit]
        return {one["id"]: self.path(one) for one in checkpoints}

    def amiss(self, entries: Sequence[Entry]) -> Changes:
        """Return missing checkpoint files, and those of dropped checkpoints: a killed writer may have left both."""
        dropped = {gone for entry in entries for gone, _ in entry.commit.get("drops", ())}
        changes, run = Changes(), entries[0].commit["run"]
        journal = self._paths.journal(run["run_id"], run["branch"])
        for entry in entries:
            if checkpoint := entry.commit.get("place"):
                gone, there = checkpoint["id"] in dropped, os.path.exists(f"{self._root}/{_name(checkpoint)}")
                if gone and there:
                    changes.gone.append(self.path(checkpoint))
                elif not gone and not there:
                    changes.made[self.path(checkpoint)] = self.document(run, entry, journal)
        return changes

    def make(self, changes: Changes) -> None:
        """Write and remove files. A call that failed may be repeated."""
        made = [(path, document) for path, document in changes.made.items() if path not in changes.gone]
        self.remove(changes.gone, sync=not made)
        for start in range(0, len(made), _TOGETHER):
            disk.replace_all(made[start : start + _TOGETHER])  # its sync of the directory covers the removals too

    def remove(self, files: Sequence[Path], *, sync: bool = True) -> None:
        """Remove files durably: a file that reappeared after a power failure would contradict its journal."""
        for file in files:
            disk.remove(file)
        if files and sync:
            with disk.SyncBatch() as batch:
                batch.sync_directory(self._root)

    def listed(self, part: str = "", limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """List the checkpoints in the files, as Store.places describes. A damaged file is left out, with a warning."""
        found: list[CheckpointInfo] = []
        for _, path in self._newest_first(part, before):
            if len(found) == limit:
                break
            try:
                checkpoint, document = load(path)
                if is_of_another(path, checkpoint) or document.get("check") != _check(document):
                    raise CheckpointMismatch(str(path), "it was changed after it was written", None)
                found.append(checkpoint)
            except RefError:
                continue  # dropped in the meantime
            except (CheckpointMismatch, SchemaTooNew) as problem:
                log.warning("%s Left out of the list.", problem)
        return found

    def files(self) -> dict[str, Path]:
        """Return the paths of the checkpoint files, by the id in their name."""
        return dict(self._newest_first())

    def _newest_first(self, part: str = "", before: str | None = None) -> Iterator[tuple[str, Path]]:
        """Yield (id, path) of each checkpoint file whose id contains `part` and is older than `before`, newest first.

        A page needs few of them, so a name is examined, and made a path, only when its turn comes.
        """
        end = before or "g"  # ids are hexadecimal: all come before "g"
        try:
            with os.scandir(self._root) as files:
                names = [
                    name
                    for file in files
                    if part in (name := file.name)
                    and name.endswith(".json")
                    and name[_ID_IN_NAME] < end
                    and not file.is_dir(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return
        names.sort(key=itemgetter(_ID_IN_NAME), reverse=True)
        last = None
        for name in names:
            found = _NAME.fullmatch(name)
            if found and part in found[1] and found[1] != last:
                last = found[1]
                yield last, self._root / name

    def document(self, run: Mapping[str, Any], entry: Entry, journal: Path) -> bytes:
        """Return the file for the checkpoint that `entry` holds. `run` is the start of the run in `journal`."""
        checkpoint = entry.commit["place"]
        document: dict[str, Any] = {
            "schema": entry.commit["schema"],
            "id": checkpoint["id"],
            "run_id": run["run_id"],
            "branch": run["branch"],
            "parent_id": checkpoint["parent"],
            "seq": checkpoint["seq"],
            "created_at": checkpoint["at"],
            "trigger": checkpoint["trigger"],
            "address": checkpoint["address"],
            "label": checkpoint.get("label"),
            "metadata": checkpoint.get("metadata", {}),
            "definition": {"kind": run["definition"]["kind"], "name": run["definition"]["name"]},
            "about": checkpoint["about"],
            "journal": {
                "file": journal.relative_to(self._root).as_posix(),
                "sum": checkpoint.get("sum", entry.sum),
            },
        }
        document["check"] = _check(document)
        lines = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in document.items())
        return f"{{\n{lines}\n}}\n".encode()  # as readable as with `indent`, and ten times faster


def _name(checkpoint: CheckpointRecord) -> str:
    """Return the name of the file of a checkpoint."""
    stamp = _NO_DIGITS_OR_LETTERS.sub("", checkpoint["at"].partition("+")[0])
    return f"{stamp}_{checkpoint['id']}.json"


def is_of_another(path: Path, checkpoint: CheckpointInfo) -> bool:
    """Return whether a file is named after another checkpoint than the one it holds."""
    name = _NAME.fullmatch(path.name)
    return name is not None and name[1] != checkpoint.id


def load(path: Path) -> tuple[CheckpointInfo, dict[str, Any]]:
    """Return (item for a listing, document) of a checkpoint file. Raises RefError, CheckpointMismatch, SchemaTooNew."""
    try:
        with disk.opened(path) as file:
            document = parse(file.read())
    except FileNotFoundError:
        raise RefError(str(path), "does not exist") from None
    except OSError as error:
        raise CheckpointMismatch(str(path), f"this cannot be read ({error.strerror})", None) from error
    except InvalidEntry as problem:
        raise CheckpointMismatch(str(path), f"this is not a checkpoint file ({problem})", None) from None
    schema = document.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise SchemaTooNew(str(path), schema, SCHEMA)
    texts = ("id", "run_id", "branch", "trigger", "address", "created_at")
    wrong = [name for name in texts if not isinstance(document.get(name), str)]
    wrong += [] if type(document.get("seq")) is int else ["seq"]
    options = ("parent_id", "label")
    wrong += [name for name in options if not isinstance(document.get(name), str | None)]
    wrong += [] if wrong or _ID.fullmatch(document["id"]) else ["id"]
    if wrong:
        misfit = f"this is not a checkpoint file (its {wrong[0]!r} is missing or wrong)"
        raise CheckpointMismatch(str(path), misfit, None)
    try:
        check_name("run_id", document["run_id"])
        check_name("branch", document["branch"], slashes=True)
    except ConfigError as error:
        raise CheckpointMismatch(str(path), str(error), None) from None
    fields: dict[str, Any] = {name: document.get(name) for name in (*texts, *options)}
    return CheckpointInfo(seq=document["seq"], **fields), document


def _check(document: dict[str, Any]) -> str:
    """Return a checksum of a checkpoint file, so that a listing detects changes without reading the journal."""
    return digest({key: value for key, value in document.items() if key != "check"})
