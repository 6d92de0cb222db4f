"""Journals as lines of JSON, and one small file per checkpoint that people can read.

    location/journal/<run>/<branch>.jsonl          the truth, one line a commit
    location/<timestamp>_<id>.json                 a view of one place: lineage, what triggered it, where in the journal

The journal is written first. A missing file is made again from it; a file that it contradicts is refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
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
    StoreError,
    StoreUnusable,
)
from crewlite.ids import new_id
from crewlite.refs import check_name
from crewlite.state.entry import Entry, Unsound, chained, parse, unseal_line
from crewlite.state.providers.base import BranchInfo, Commit, Head, PlaceInfo
from crewlite.state.providers.json_places import PlaceFiles, load
from crewlite.state.providers.reading import (
    branch_info,
    check_bases,
    check_follows,
    check_remove,
    check_rewrite,
    in_order,
    live_places,
    newest_sound_place,
    told_at,
)

log = logging.getLogger("crewlite.state")
_BLOCK = 512  # bytes: the least that a disk writes
_HOLE = 32  # zeros in a row that are no accident


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
        self._places = PlaceFiles(root)
        self._ends: dict[tuple[str, str], _End] = {}
        self._read: dict[tuple[str, str], list[Entry]] = {}
        """Journals that were read and not yet written to: first and named entries."""
        self._known: set[tuple[str, str]] = set()
        """Branches that this store has seen on disk."""

    def append(self, commits: Sequence[Commit]) -> None:
        """See Store.append."""
        new: dict[str, list[Commit]] = {
            commit.run_id: [] for commit in commits if commit.run and not self._directory(commit.run_id).exists()
        }
        others = [commit for commit in commits if commit.run_id not in new]
        for commit in commits:
            if commit.run_id in new:
                new[commit.run_id].append(commit)
        for run in new.values():
            check_bases(run)
        try:
            for commit in self._go_on(others):
                self._append(commit)
            self._create(list(new.values()))
        finally:
            self._places.settle()

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """See Store.read."""
        entries, offset = self._scan(run_id, branch)
        if entries:
            self._ends[run_id, branch] = _End(entries[-1].seq, entries[-1].sum, offset, entries[0])
            self._read[run_id, branch] = [entry for entry in entries if _names(entry)]
            self._known.add((run_id, branch))
        return entries

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        """See Store.sum_at."""
        path = self._journal(run_id, branch)
        data = _bytes(path) or b""
        for found in re.finditer(rb'^\{"sum":"[0-9a-f]{32}","schema":\d+,"seq":%d,.*(?=\n)' % seq, data, re.MULTILINE):
            try:
                return _matched(data, found, path).sum
            except Unsound as problem:
                raise JournalCorrupt(f"{path}, commit {seq}", str(problem), None) from None
        return None

    def touched(self, run_id: str, branch: str) -> float:
        """See Store.touched."""
        try:
            return self._journal(run_id, branch).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return 0.0

    def rewrite(self, run_id: str, branch: str, head: Head, entries: Sequence[Entry]) -> None:
        """See Store.rewrite."""
        path = self._journal(run_id, branch)
        try:
            with disk.held(path) as file:
                found, _ = self._sound(run_id, branch, file.read())
                at = (found[-1].seq, found[-1].sum) if found else None
                check_rewrite(run_id, branch, head, at, entries, self.branches(run_id))
                self._ends.pop((run_id, branch), None)
                touched = self.touched(run_id, branch)
                disk.replace(path, _lines(entries))
                disk.touch(path, touched)  # to tidy up is no sign of life
        except FileNotFoundError:
            raise BranchConflictError(run_id, branch, expected=head[0], found="its end") from None

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        """See Store.remove."""
        try:
            gone = self._take_away(run_id, heads)
        except FileNotFoundError:  # somebody was faster
            branch = next(iter(heads), "main")
            raise BranchConflictError(run_id, branch, expected=heads.get(branch, (0, ""))[0], found="its end") from None
        disk.remove_directory(gone)
        self._known -= {(run_id, branch) for branch in heads}
        for known in (self._ends, self._read):
            for branch in heads:
                known.pop((run_id, branch), None)

    def _take_away(self, run_id: str, heads: Mapping[str, Head]) -> Path:
        """Give a run another name, under which nobody looks for it."""
        directory = self._directory(run_id)
        branches = [info.branch for info in self.branches(run_id)]
        with contextlib.ExitStack() as stack:
            held = {branch: stack.enter_context(disk.held(self._journal(run_id, branch))) for branch in branches}
            journals = {branch: self._sound(run_id, branch, file.read())[0] for branch, file in held.items()}
            found = {b: (es[-1].seq, es[-1].sum) for b, es in journals.items() if es}
            # nobody forks a branch that is held, so from here on there are no others
            check_remove(run_id, dict(heads), {info.branch: (0, "") for info in self.branches(run_id)} | found)
            places = [place for entries in journals.values() for place in live_places(entries)]
            self._places.remove([self._places.path(place) for place in places])
            gone = directory.with_name(f"~{new_id()}")
            disk.rename(directory, gone)
        return gone

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        """See Store.branches."""
        infos = []
        journals = self._root / "journal"
        for directory in [self._directory(run_id)] if run_id else _directories(journals):
            for path in _journals(directory):
                branch = path.relative_to(directory).as_posix().removesuffix(".jsonl")
                try:
                    with path.open("rb") as file:
                        first = unseal_line(file.readline().rstrip(b"\n"), after=None, where=str(path))
                    check_follows(first, [], directory.name, branch, first.seq)
                    infos.append(branch_info(first))
                except FileNotFoundError:
                    continue  # removed while we were looking
                except (Unsound, SchemaTooNew, OSError) as problem:
                    log.warning("%s begins with a line that cannot be read (%s): left out of the list", path, problem)
        return in_order(infos)

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[PlaceInfo]:
        """See Store.places."""
        return self._places.listed(part, limit, before)

    def ref(self, place: dict[str, Any]) -> str:
        """The path of the place's file."""
        return str(self._places.path(place))

    def close(self) -> None:
        """Nothing is held open between writes."""

    def check_file(self, path: Path) -> PlaceInfo:
        """The place that a checkpoint file names, if its journal agrees. Raises CheckpointMismatch.

        Only what the journal says of this place is verified here; the whole is when it is read.
        """
        info, document = load(path)
        entry, first = self._named(info)
        if (entry is None or first is None) and not path.exists():
            raise RefError(str(path), "does not exist any more")  # pruned while it was looked at
        if entry is None or first is None:
            sound = newest_sound_place(self._scan(info.run_id, info.branch)[0], self.ref)
            raise CheckpointMismatch(str(path), "it points beyond its journal, or the journal is gone", sound)
        if json.loads(self._places.document(first, entry)) != document:
            problem = (
                f"it was changed after it was written. Its journal is sound: kick off with "
                f"run_id={info.run_id!r}, or delete this file and it is made again"
            )
            entries, _ = self._scan(info.run_id, info.branch)
            sound = newest_sound_place([e for e in entries if e.seq != entry.seq], self.ref)
            raise CheckpointMismatch(str(path), problem, sound)
        return info

    def _named(self, info: PlaceInfo) -> tuple[Entry | None, Entry | None]:
        """The entry that names a place, and the first of its journal. Looks at no other lines."""
        path = self._journal(info.run_id, info.branch)
        data = _bytes(path)
        if not data:
            return None, None
        try:
            first = unseal_line(data.partition(b"\n")[0], after=None, where=str(path))
            check_follows(first, [], info.run_id, info.branch, first.seq)
            for found in re.finditer(rb"^.*\"id\":\"%b\".*$" % info.id.encode(), data, re.MULTILINE):
                entry = _matched(data, found, path)
                if entry.facts.get("place", {}).get("id") == info.id:
                    return entry, first
        except Unsound:
            self._scan(info.run_id, info.branch)  # raises, naming the line
        return None, None

    def _go_on(self, commits: Sequence[Commit]) -> list[Commit]:
        """Append to the journals that end where this store left them. Returns the commits that found it otherwise."""
        late, written = [], []
        with disk.Together() as together:
            for commit in commits:
                end = self._ends.pop((commit.run_id, commit.branch), None)
                follows = end and (end.seq, end.sum) == (commit.after, commit.after_sum)
                if end is None or not follows or self._is_shorter(commit, end):
                    late.append(commit)
                    continue
                try:
                    written.append((commit, end, self._write(commit, end, commit.entries, together)))
                except (
                    FileExistsError,
                    FileNotFoundError,
                ):  # another's, or of our own last try; or it is gone
                    late.append(commit)
        for commit, end, offset in written:
            self._wrote(commit, end.first, offset)
        return late

    def _is_shorter(self, commit: Commit, end: _End) -> bool:
        """Whether a journal does not go as far as this store knows: another one has folded it."""
        try:
            return self._journal(commit.run_id, commit.branch).stat().st_size < end.offset
        except FileNotFoundError:
            return True

    def _append(self, commit: Commit) -> None:
        key = (commit.run_id, commit.branch)
        entries = self.read(*key)
        if not entries and key in self._known:
            raise OSError(f"{self._journal(*key)} is gone: it was deleted or moved while a run was at work")
        end = self._ends.pop(key, None)
        lacking = commit.beyond((end.seq, end.sum) if end else None)
        if lacking is None:
            raise BranchConflictError(*key, expected=commit.after, found=end.seq if end else "its end")
        try:
            if end is None:
                self._begin(commit)
            else:
                with disk.Together() as together:
                    offset = self._write(commit, end, lacking, together)
                self._wrote(commit, end.first, offset)
        except FileExistsError as error:
            raise BranchConflictError(*key, expected=commit.after, found="a later one") from error

    def _begin(self, commit: Commit) -> None:
        """Make a branch; a fork while its base is held, so that nobody takes that away meanwhile."""
        assert commit.run
        path = self._journal(commit.run_id, commit.branch)
        disk.make_directory(path.parent)
        if base := commit.run.get("base"):
            try:
                with disk.held(self._journal(commit.run_id, base["branch"]), shared=True):
                    if self.sum_at(commit.run_id, base["branch"], base["seq"]) != base["sum"]:
                        raise FileNotFoundError
                    disk.create(path, _lines(commit.entries))
            except FileNotFoundError:
                gone = "a base that is gone"
                raise BranchConflictError(commit.run_id, commit.branch, expected=commit.after, found=gone) from None
        else:
            disk.create(path, _lines(commit.entries))
        self._wrote(commit, commit.entries[0], len(_lines(commit.entries)))

    def _write(self, commit: Commit, end: _End, lacking: Sequence[Entry], together: disk.Together) -> int:
        """Write what the journal, which ends at `end`, lacks of a commit. Returns where it ends then."""
        path = self._journal(commit.run_id, commit.branch)
        if not commit.entries:
            if path.stat().st_size != end.offset:
                raise FileExistsError(f"{path} goes on")
            disk.touch(path, told_at(commit))
            return end.offset
        self._places.mend(self._read.pop((commit.run_id, commit.branch), []))
        data = _lines(lacking)
        if data:

            def torn(tail: bytes) -> bool:
                return is_torn(tail, end.offset) and not _follows(tail, end.sum)

            disk.append(path, data, at=end.offset, torn=torn, together=together)
        else:  # all of it was written before, by a try that failed, perhaps without being synced
            together.sync(together.hold(path, os.O_RDWR), path)
        return end.offset + len(data)

    def _wrote(self, commit: Commit, first: Entry, offset: int) -> None:
        """What a journal has now goes into checkpoint files, and into what is known of its end."""
        for entry in commit.entries:
            self._places.follow(first, entry)
        key = (commit.run_id, commit.branch)
        self._known.add(key)
        self._ends[key] = _End(*commit.head, offset, first)

    def _create(self, runs: Sequence[Sequence[Commit]]) -> None:
        """Make runs that are not there: their journals are written aside, and those of a run appear all at once."""
        if not runs:
            return
        self._make()
        aside = {f"~{new_id()}": run for run in runs}
        try:
            with disk.Together() as together:
                for name, run in aside.items():
                    self._set_aside(name, run, together)
            with disk.Together() as together:
                for name, run in aside.items():
                    disk.rename(self._root / "journal" / name, self._directory(run[0].run_id), together=together)
        except OSError:
            for name in aside:
                shutil.rmtree(self._root / "journal" / name, ignore_errors=True)
            if len(runs) > 1 or not self._directory(runs[0][0].run_id).is_dir():
                raise
            for commit in runs[0]:  # somebody else was faster
                self._append(commit)
            return
        for run in runs:
            for commit in run:
                self._wrote(commit, commit.entries[0], len(_lines(commit.entries)))

    def _set_aside(self, name: str, run: Sequence[Commit], together: disk.Together) -> None:
        for commit in run:
            path = self._root / "journal" / name / f"{commit.branch}.jsonl"
            disk.make_directory(path.parent, together=together)
            disk.append(path, _lines(commit.entries), at=0, torn=lambda tail: True, together=together)
            disk.touch(path, told_at(commit))

    def _make(self) -> None:
        """Make the location. What is ours is kept out of version control; what is not is left alone."""
        journals = self._root / "journal"
        if journals.is_dir():
            return
        ours = not self._root.is_dir() or not any(self._root.iterdir())
        disk.make_directory(journals)
        for place in (self._root if ours else None, journals):
            if place and not (place / ".gitignore").exists():
                disk.replace(place / ".gitignore", b"*\n")

    def _scan(self, run_id: str, branch: str) -> tuple[list[Entry], int]:
        """Every sound entry, and where the last of them ends, in bytes."""
        path = self._journal(run_id, branch)
        data = _bytes(path)
        if data is None:
            return [], 0
        if not data:
            raise JournalCorrupt(str(path), "it is empty, and a journal appears with its first line", None)
        return self._sound(run_id, branch, data)

    def _sound(self, run_id: str, branch: str, data: bytes) -> tuple[list[Entry], int]:
        """The entries in the content of a journal. Raises JournalCorrupt."""
        path = self._journal(run_id, branch)
        found: list[Entry] = []
        total, offset = None, 0
        while offset < len(data):
            stop = data.find(b"\n", offset)
            line = data[offset:] if stop < 0 else data[offset:stop]
            try:
                if stop < 0:
                    raise Unsound("the last line has no end")
                entry = unseal_line(line, after=total, where=str(path))
                check_follows(entry, found, run_id, branch, entry.seq)
            except Unsound as problem:
                if found and is_torn(data[offset:], offset):  # a journal appears with its first line whole
                    log.warning("%s ends in a write that was cut (%d bytes): left out", path, len(data) - offset)
                    break
                sound = newest_sound_place(found, self.ref)
                raise JournalCorrupt(f"{path}, line {len(found) + 1}", str(problem), sound) from None
            total, offset = entry.sum, stop + 1
            found.append(entry)
        return found, offset

    def _directory(self, run_id: str) -> Path:
        return self._root / "journal" / check_name("run_id", run_id)

    def _journal(self, run_id: str, branch: str) -> Path:
        return self._directory(run_id) / f"{check_name('branch', branch, slashes=True)}.jsonl"


def _names(entry: Entry) -> bool:
    """Whether an entry has a part in which checkpoint files there are."""
    return not entry.facts.keys().isdisjoint(("run", "place", "drops"))


def is_torn(tail: bytes, offset: int) -> bool:
    """Whether what follows the last sound line is a write that was cut: a line without an end, or not written.

    `offset` is where the tail begins. What a disk did not write are many zeros; a lone one is damage.
    """
    line, newline, _ = tail.partition(b"\n")
    holes = re.finditer(rb"\0+", line)
    return not newline or any(_is_hole(hole.start(), hole.end(), offset, tail) for hole in holes)


def _is_hole(start: int, stop: int, offset: int, tail: bytes) -> bool:
    """Whether zeros are a part of the disk that was not written: to the end, a block, or up to where one begins."""
    if not tail[stop:].strip(b"\0\n"):
        return True
    return stop - start >= _HOLE or (start == 0 and (offset + stop) % _BLOCK == 0)


def _follows(tail: bytes, after: str) -> bool:
    """Whether a whole commit stands at the beginning of `tail`, whatever comes after it."""
    line, newline, _ = tail.partition(b"\n")
    try:
        return bool(newline and unseal_line(line, after=after, where=""))
    except Unsound:
        return False


def _lines(entries: Sequence[Entry]) -> bytes:
    return b"".join(entry.line + b"\n" for entry in entries)


def _bytes(path: Path) -> bytes | None:
    """What a journal holds; None if there is none. Raises StoreError."""
    try:
        return disk.whole(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(str(path), f"cannot be read ({error.strerror})") from error


def _matched(data: bytes, found: re.Match[bytes], path: Path) -> Entry:
    """The entry of a line that was found in a journal, if it fits to the one before. Raises Unsound, SchemaTooNew."""
    end = found.start() - 1
    if end < 0:
        return unseal_line(found[0], after=None, where=str(path))
    before = parse(data[data.rfind(b"\n", 0, end) + 1 : end])
    return unseal_line(found[0], after=chained(before, before.get("sum", "")), where=str(path))


def _journals(directory: Path) -> list[Path]:
    """The journals of a run; none if it is taken away while we look."""
    try:
        return list(directory.rglob("*.jsonl"))
    except FileNotFoundError:
        return []


def _directories(path: Path) -> list[Path]:
    """The directories of runs; those that begin with ~ are being made or taken away."""
    try:
        return [inside for inside in path.iterdir() if inside.name[0] != "~" and inside.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(str(path), f"cannot be read ({error.strerror})") from error
