"""Journals as lines of JSON, and one small file per checkpoint that people can read.

    location/journal/<run>/<branch>.jsonl          the truth, one line a commit
    location/<timestamp>_<id>.json                 a view of one place: lineage, what triggered it, where in the journal

The journal is written first. A missing file is made again from it; a file that it contradicts is refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crewlite import disk
from crewlite.errors import (
    BranchConflictError,
    CheckpointMismatch,
    JournalCorrupt,
    RefError,
    SchemaTooNew,
    StoreUnusable,
)
from crewlite.refs import check_name
from crewlite.state.entry import Entry, Unsound, unseal_line
from crewlite.state.providers.base import BranchInfo, Commit, PlaceInfo
from crewlite.state.providers.reading import branch_info, newest_sound_place

log = logging.getLogger("crewlite.state")
_FILE = re.compile(r"\d{8}T\d+_([0-9a-f]{32})\.json")


class JsonProvider:
    """A directory: human-readable files, one per checkpoint, and a journal for each run."""

    name = "json"

    def open(self, location: str) -> JsonStore:
        """Open a directory. The first write makes it (0700, with a .gitignore). Raises StoreUnusable."""
        root = Path(location).absolute()
        if root.is_file():
            database = disk.head(root, 15) == b"SQLite format 3"
            hint = "pass provider=SqliteProvider()" if database else "choose a directory"
            found = "database" if database else "file"
            raise StoreUnusable(location, f"is a {found}, JsonProvider wants a directory: {hint}")
        return JsonStore(root)


@dataclass(frozen=True, slots=True)
class _End:
    """Where a journal ends, and how it began."""

    seq: int
    sum: str
    offset: int
    first: Entry


class JsonStore:
    """An opened directory."""

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self._root = root
        self._ends: dict[tuple[str, str], _End] = {}
        self._read: dict[tuple[str, str], list[tuple[Entry, int]]] = {}
        """Journals that were read and not yet written to: first and named entries, with the offsets of their ends."""

    def append(self, commits: Sequence[Commit]) -> None:
        """See Store.append."""
        for commit in commits:
            self._append(commit)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """See Store.read."""
        scanned = self._scan(run_id, branch)
        if scanned:
            last, offset = scanned[-1]
            self._ends[run_id, branch] = _End(last.seq, last.sum, offset, scanned[0][0])
            self._read[run_id, branch] = [pair for pair in scanned if _names(pair[0])]
        return [entry for entry, _ in scanned]

    def branches(self) -> list[BranchInfo]:
        """See Store.branches."""
        infos = []
        for path in (self._root / "journal").rglob("*.jsonl"):
            with path.open("rb") as file:
                first = file.readline().rstrip(b"\n")
            try:
                infos.append(branch_info(unseal_line(first, after="", where=str(path))))
            except (Unsound, SchemaTooNew) as problem:
                log.warning("%s begins with a line that cannot be read (%s): left out of the list", path, problem)
        return sorted(infos, key=lambda info: info.uid, reverse=True)

    def places(self, part: str = "") -> list[PlaceInfo]:
        """See Store.places."""
        found = []
        for path in self._root.iterdir() if self._root.is_dir() else ():
            name = _FILE.fullmatch(path.name)
            if not name or part not in name[1]:
                continue
            try:
                document = _load(path)
                fields = {"seq": document["seq"], "trigger": document["trigger"], "created_at": document["created_at"]}
                found.append(PlaceInfo(document["id"], document["run_id"], document["branch"], **fields))
            except RefError:
                continue  # dropped while we were looking
            except (CheckpointMismatch, KeyError):
                log.warning("%s is no checkpoint file any more: left out of the list", path)
        return sorted(found, key=lambda place: place.id, reverse=True)

    def ref(self, place: dict[str, Any]) -> str:
        """The path of the place's file."""
        return str(self._path(place))

    def close(self) -> None:
        """Nothing is held open between writes."""

    def check_file(self, path: Path) -> PlaceInfo:
        """The place that a checkpoint file names, if its journal agrees. Raises CheckpointMismatch."""
        found = _load(path)
        for field in ("run_id", "branch", "id"):
            if not isinstance(found.get(field), str):
                raise CheckpointMismatch(str(path), f"this is no checkpoint file (it has no {field!r})", None)
        entries = self._scan(found["run_id"], found["branch"])
        for entry, end in entries:
            place = entry.facts.get("place")
            if place and place["id"] == found["id"]:
                if json.loads(self._document(entries[0][0], entry, end)) != found:
                    problem = (
                        f"it was changed after it was written. Its journal is sound: kick off with "
                        f"run_id={found['run_id']!r}, or delete this file and it is made again"
                    )
                    raise CheckpointMismatch(str(path), problem, self._sound([e for e, _ in entries if e is not entry]))
                return PlaceInfo(
                    found["id"], found["run_id"], found["branch"], place["seq"], place["trigger"], place["at"]
                )
        sound = self._sound([entry for entry, _ in entries])
        raise CheckpointMismatch(str(path), "it points beyond its journal, or the journal is gone", sound)

    def _append(self, commit: Commit) -> None:
        key = (commit.run_id, commit.branch)
        end = self._ends.pop(key, None)
        if end and (end.seq, end.sum) == (commit.after, commit.after_sum):
            with contextlib.suppress(FileExistsError):  # it goes on: with what our own last try left, or with another's
                self._write(commit, end, commit.entries)
                return
        entries = self.read(*key)
        end = self._ends.pop(key, None) or _End(0, "", 0, commit.entries[0])
        lacking = commit.beyond(end.seq, end.sum)
        if lacking is None:
            raise BranchConflictError(*key, expected=commit.after, found=len(entries))
        try:
            self._write(commit, end, lacking)
        except FileExistsError as error:
            raise BranchConflictError(*key, expected=commit.after, found="a later one") from error

    def _write(self, commit: Commit, end: _End, lacking: Sequence[Entry]) -> None:
        """Write what the journal, which ends at `end`, lacks of a commit, and the files of all the commit's places."""
        key, path = (commit.run_id, commit.branch), self._journal(commit.run_id, commit.branch)
        self._mend(self._read.pop(key, []))
        if end.seq == 0:
            self._make(path.parent)
        if lacking:
            data = b"".join(entry.line + b"\n" for entry in lacking)
            disk.append(path, data, at=end.offset, torn=lambda tail: _torn(tail) and not _follows(tail, end.sum))
        stored = commit.entries[: len(commit.entries) - len(lacking)]
        at = end.offset - sum(len(entry.line) + 1 for entry in stored)
        for entry in commit.entries:
            at += len(entry.line) + 1
            if place := entry.facts.get("place"):
                disk.replace(self._path(place), self._document(end.first, entry, at))
            for gone in entry.facts.get("drops", ()):
                for file in self._root.glob(f"*_{gone}.json"):
                    disk.remove(file)
        self._ends[key] = _End(commit.entries[-1].seq, commit.entries[-1].sum, at, end.first)

    def _make(self, directory: Path) -> None:
        """Make the directory of a journal. What is ours is kept out of version control; what is not is left alone."""
        ours = not self._root.is_dir() or not any(self._root.iterdir())
        disk.make_directory(directory)
        for place in (self._root if ours else None, self._root / "journal"):
            if place and not (place / ".gitignore").exists():
                disk.replace(place / ".gitignore", b"*\n")

    def _mend(self, scanned: list[tuple[Entry, int]]) -> None:
        """Make the files that a crash between journal and file left out."""
        dropped = {gone for entry, _ in scanned for gone in entry.facts.get("drops", ())}
        for entry, offset in scanned:
            place = entry.facts.get("place")
            if place and place["id"] not in dropped and not self._path(place).exists():
                disk.replace(self._path(place), self._document(scanned[0][0], entry, offset))

    def _scan(self, run_id: str, branch: str) -> list[tuple[Entry, int]]:
        """Every sound entry with the offset of its end."""
        path = self._journal(run_id, branch)
        try:
            data = disk.whole(path)
        except FileNotFoundError:
            return []
        found: list[tuple[Entry, int]] = []
        total, offset = "", 0
        while offset < len(data):
            stop = data.find(b"\n", offset)
            line = data[offset:] if stop < 0 else data[offset:stop]
            try:
                if stop < 0:
                    raise Unsound("the last line has no end")
                entry = unseal_line(line, after=total, where=str(path))
            except Unsound as problem:
                if _torn(data[offset:]):
                    log.warning("%s ends in a write that was cut (%d bytes): left out", path, len(data) - offset)
                    break
                sound = self._sound([entry for entry, _ in found])
                raise JournalCorrupt(f"{path}, line {len(found) + 1}", str(problem), sound) from None
            total, offset = entry.sum, stop + 1
            found.append((entry, offset))
        return found

    def _sound(self, entries: Sequence[Entry]) -> str | None:
        return newest_sound_place(entries, self.ref)

    def _journal(self, run_id: str, branch: str) -> Path:
        check_name("run_id", run_id)
        check_name("branch", branch, slashes=True)
        return self._root / "journal" / run_id / f"{branch}.jsonl"

    def _path(self, place: dict[str, Any]) -> Path:
        stamp = "".join(c for c in place["at"].partition("+")[0] if c.isalnum())
        return self._root / f"{stamp}_{place['id']}.json"

    def _document(self, first: Entry, entry: Entry, offset: int) -> bytes:
        """A checkpoint file: made from the journal alone, so that it can be made again and held against it."""
        run, place = first.facts["run"], entry.facts["place"]
        journal = self._journal(run["run_id"], run["branch"]).relative_to(self._root)
        document = {
            "schema": entry.facts["schema"],
            "id": place["id"],
            "run_id": run["run_id"],
            "branch": run["branch"],
            "parent_id": place["parent"],
            "seq": place["seq"],
            "created_at": place["at"],
            "trigger": place["trigger"],
            "address": place["address"],
            "label": place.get("label"),
            "metadata": place.get("metadata", {}),
            "definition": {"kind": run["definition"]["kind"], "name": run["definition"]["name"]},
            "about": place["about"],
            "journal": {"file": journal.as_posix(), "end": offset, "sum": entry.sum},
        }
        return json.dumps(document, indent=2, ensure_ascii=True).encode() + b"\n"


def _names(entry: Entry) -> bool:
    """Whether an entry has a part in which checkpoint files there are."""
    return not entry.facts.keys().isdisjoint(("run", "place", "drops"))


def _torn(tail: bytes) -> bool:
    """Whether what follows the last sound line is a write that was cut: a line without an end, or not written."""
    line, newline, _ = tail.partition(b"\n")
    return not newline or b"\0" in line


def _follows(tail: bytes, after: str) -> bool:
    """Whether a whole commit stands at the beginning of `tail`, whatever comes after it."""
    line, newline, _ = tail.partition(b"\n")
    try:
        return bool(newline and unseal_line(line, after=after, where=""))
    except Unsound:
        return False


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RefError(str(path), "does not exist") from None
    except ValueError as error:
        raise CheckpointMismatch(str(path), f"this is not JSON any more ({error})", None) from None
    if not isinstance(document, dict):
        raise CheckpointMismatch(str(path), "this is no checkpoint file", None)
    return document
