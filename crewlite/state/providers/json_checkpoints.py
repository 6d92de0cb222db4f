"""Checkpoint files: each shows one checkpoint for people to read, and is derived from the journal alone."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from crewlite.encoding.codec import digest
from crewlite.encoding.json_text import encoder_of
from crewlite.errors import CheckpointMismatch, ConfigError, RefError, SchemaTooNew, StoreError
from crewlite.refs import check_names
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import SCHEMA, Entry, InvalidEntry, parse
from crewlite.state.providers.base import CheckpointInfo, Commit
from crewlite.state.providers.json_journals import Tail
from crewlite.state.providers.json_paths import Paths
from crewlite.state.providers.locations import not_read
from crewlite.system import disk
from crewlite.texts.logs import logger

TOGETHER = 64  # files that share a sync of their directory
log = logger("crewlite.state")
_NAME = re.compile(r"\d{8}T\d+_([0-9a-f]{32})\.json")
_ID_IN_NAME = slice(-37, -5)
_ID = re.compile("[0-9a-f]{32}")
_NO_DIGITS_OR_LETTERS = re.compile(r"\W+")
_text = encoder_of(json.JSONEncoder())
FileChanges = dict[str, bytes | None]
"""The content of checkpoint files to write, by path; None for a file to remove, which nothing writes again."""
_quoted = json.encoder.encode_basestring_ascii  # what `_text` gives for a text, in a fifth of the time


class CheckpointFiles:
    """The checkpoint files of one location."""

    def __init__(self, paths: Paths) -> None:
        self._paths, self._root = paths, str(paths.root)

    def path(self, checkpoint: CheckpointRecord) -> str:
        """Return the path of the file of a checkpoint."""
        stamp = _NO_DIGITS_OR_LETTERS.sub("", checkpoint["at"].partition("+")[0])
        return os.path.join(self._root, f"{stamp}_{checkpoint['id']}.json")

    def paths(self, entries: Sequence[Entry]) -> dict[str, str]:
        """Return the paths of the checkpoints in these entries, dropped ones included, by id."""
        checkpoints = [entry.commit["place"] for entry in entries if "place" in entry.commit]
        return {one["id"]: self.path(one) for one in checkpoints}

    def add_repairs(self, entries: Sequence[Entry], changes: FileChanges) -> FileChanges:
        """Add the repair of what a killed writer left: missing files, and files of dropped checkpoints."""
        dropped, run = set(ids_of_dropped(entries)), entries[0].commit["run"]
        journal = self._paths.journal(run["run_id"], run["branch"])
        for entry in entries:
            if checkpoint := entry.commit.get("place"):
                path, gone = self.path(checkpoint), checkpoint["id"] in dropped
                there = os.path.exists(path)
                if gone and there:
                    changes[path] = None
                elif not gone and not there:
                    changes.setdefault(path, self.document(run, entry, journal))
        return changes

    def add_commit(
        self, commit: Commit, tail: Tail, changes: FileChanges, read: Callable[[], Sequence[Entry]] | None = None
    ) -> Tail:
        """Add the files that a commit creates and drops to `changes`. Returns the tail with the files of the branch.

        Covers all entries of the commit, because entries that an earlier, failed attempt wrote may lack their files.
        `read()` returns all entries of the branch, and is called when the commit drops a checkpoint; None if the commit
        itself has all entries.
        """
        for entry in commit.entries:
            if checkpoint := entry.commit.get("place"):
                changes.setdefault(self.path(checkpoint), self.document(tail.run, entry, tail.path))
        if dropped := ids_of_dropped(commit.entries):
            if tail.files is None:
                tail = tail._replace(files=self.paths(read() if read else commit.entries))
            known = {path[_ID_IN_NAME]: path for path in changes} | (tail.files or {})
            changes |= {known[gone]: None for gone in dropped if gone in known}
        return tail

    def make(self, changes: FileChanges) -> None:
        """Write and remove files. A call that failed may be repeated."""
        items = list(changes.items())
        for start in range(0, len(items), TOGETHER):
            with disk.SyncBatch() as batch:
                self.stage(dict(items[start : start + TOGETHER]), batch)

    def stage(self, changes: FileChanges, batch: disk.SyncBatch) -> None:
        """Write and remove files at the end of the batch, once the commits that it holds are durable.

        Removed files stay removed: one that reappeared after a power failure would contradict its journal.
        """
        for path, document in changes.items():
            if document is None:
                batch.remove(path)
            else:
                batch.replace(path, document)

    def listed(self, part: str = "", limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """List the checkpoints in the files, as Store.places describes. A damaged file is left out, with a warning."""
        found: list[CheckpointInfo] = []
        for _, path in self._newest_first(part, before):
            if len(found) == limit:
                break
            try:
                checkpoint, document = load(path, self._root)
                if is_of_another(path, checkpoint) or document.get("check") != _check(document):
                    raise CheckpointMismatch(str(path), "it was changed after it was written", None, self._root)
                found.append(checkpoint)
            except RefError:
                continue  # dropped in the meantime
            except (CheckpointMismatch, SchemaTooNew) as problem:
                log.warning("%s Left out of the list.", problem)
            except StoreError as problem:
                log.warning("%s: left out of the list", problem)
        return found

    def files(self) -> dict[str, Path]:
        """Return the paths of the checkpoint files, by the id in their name."""
        return dict(self._newest_first())

    def _newest_first(self, part: str = "", before: str | None = None) -> Iterator[tuple[str, Path]]:
        """Yield (id, path) of each checkpoint file whose id contains `part` and is older than `before`, newest first.

        The names are sorted at once; each is checked and made a path only when the caller asks for the next one.
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
                yield last, self._paths.root / name

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
                "file": str(journal).removeprefix(self._root).replace(os.sep, "/").lstrip("/"),
                "sum": checkpoint.get("sum", entry.sum),
            },
        }
        document["check"] = _check(document)
        texts = [(name, (_quoted if type(value) is str else _text)(value)) for name, value in document.items()]
        lines = ",\n".join([f'  "{name}": {text}' for name, text in texts])
        return f"{{\n{lines}\n}}\n".encode()  # as readable as with `indent`, and ten times faster


def ids_of_dropped(entries: Sequence[Entry]) -> list[str]:
    """Return the ids of the checkpoints that these entries drop."""
    return [gone for entry in entries for gone, _ in entry.commit.get("drops", ())]


def is_of_another(path: Path, checkpoint: CheckpointInfo) -> bool:
    """Return whether a file is named after another checkpoint than the one it holds."""
    name = _NAME.fullmatch(path.name)
    return name is not None and name[1] != checkpoint.id


def load(path: Path, location: str) -> tuple[CheckpointInfo, dict[str, Any]]:
    """Return (item for a listing, document) of a checkpoint file.

    Raises RefError, CheckpointMismatch, SchemaTooNew, StoreError if it cannot be read at the moment.
    """
    try:
        with disk.opened(path) as file:
            document = parse(file.read())
    except FileNotFoundError:
        raise RefError(str(path), "does not exist") from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # see disk.opened
            raise CheckpointMismatch(str(path), str(error.strerror), None, location) from None
        raise not_read(path, error) from error
    except InvalidEntry as problem:
        raise CheckpointMismatch(str(path), f"this is not a checkpoint file ({problem})", None, location) from None
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
        raise CheckpointMismatch(str(path), misfit, None, location)
    try:
        check_names(document["run_id"], document["branch"])
    except ConfigError as error:
        raise CheckpointMismatch(str(path), str(error), None, location) from None
    fields: dict[str, Any] = {name: document.get(name) for name in (*texts, *options)}
    return CheckpointInfo(seq=document["seq"], **fields), document


def _check(document: dict[str, Any]) -> str:
    """Return a checksum of a checkpoint file, so that a listing detects changes without reading the journal."""
    return digest({key: value for key, value in document.items() if key != "check"})
