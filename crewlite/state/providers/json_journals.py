"""Journal files: reading them, and the end of one, after which a store can append without reading the rest.

Each line is an entry with a seal that is chained to the line before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from crewlite.errors import JournalCorrupt, SchemaTooNew, StoreBusy, StoreError
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry, InvalidEntry, chained, parse, parts_of_line, unseal_line
from crewlite.state.format.rewinds import Rewound, rewinds_of
from crewlite.state.providers import locations, reading
from crewlite.state.providers.base import BranchInfo, BranchKey, CheckpointInfo, Commit, End
from crewlite.state.providers.json_paths import Paths
from crewlite.system import disk
from crewlite.texts.logs import logger

log = logger("crewlite.state")
_BLOCK = 512  # bytes: the smallest unit that a disk writes
_SEQ = re.compile(rb'\{"sum":"[0-9a-f]{32}","schema":\d+,"seq":(\d+),')
_SEALED = 40  # bytes of a line that hold its seal
_END = 8_192  # bytes that the last lines of a journal seldom exceed
_HOLE = 32  # so many zeros in a row are an unwritten part of a file, not a changed byte


class JournalFiles:
    """The journals of one location, with the verbs of a store about them.

    `ref`: a function that returns the ref of a checkpoint, for error messages.
    """

    def __init__(self, paths: Paths, ref: Callable[[CheckpointRecord], str]) -> None:
        self._paths, self._location = paths, str(paths.root)
        self._ref = ref
        self._warned_about: set[tuple[str, int, int]] = set()
        """The torn writes that were logged already, as (path, offset, size), because each save reads them again."""

    def scan(self, run_id: str, branch: str) -> tuple[list[Entry], int]:
        """Return (the entries of a journal, the offset of their end); ([], 0) without one. Raises JournalCorrupt."""
        data = _bytes(self._paths.journal(run_id, branch))
        return ([], 0) if data is None else self.sound(run_id, branch, data)

    def sound(self, run_id: str, branch: str, data: bytes) -> tuple[list[Entry], int]:
        """Return (the entries in `data`, the offset of their end), without a torn last write. Raises JournalCorrupt."""
        path = self._paths.journal(run_id, branch)
        if not data:
            raise JournalCorrupt(str(path), "it is empty, and a journal always has a first line", None, self._location)
        found, problem = reading.sound_part(_records(data), run_id, branch, str(path))
        if problem is None:
            return found, len(data)
        offset = len(lines(found))
        if found and is_torn(data[offset:], offset):  # the first line is never torn: it is renamed into place
            self._warn(str(path), offset, len(data) - offset)
            return found, offset
        sound = reading.newest_sound_checkpoint(found, self._ref)
        raise JournalCorrupt(f"{path}, line {len(found) + 1}", problem, sound, self._location)

    def _warn(self, path: str, offset: int, size: int) -> None:
        if (torn := (path, offset, size)) not in self._warned_about:
            self._warned_about.add(torn)
            log.warning("%s ends in a write that was cut (%d bytes): left out", path, size)

    def reread(self, run_id: str, branch: str, journal: IO[bytes]) -> tuple[list[Entry], int]:
        """Return what `sound` returns, from an open journal, whose lock the caller holds."""
        journal.seek(0)
        return self.sound(run_id, branch, journal.read())

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        path = self._paths.journal(run_id, branch)
        data = _bytes(path) or b""
        try:
            for start, stop in _lines_with(b',"seq":%d,' % seq, data):
                if _SEQ.match(data, start) and (entry := _entry_at(data, start, stop, path)).seq == seq:
                    return entry.sum
        except InvalidEntry as problem:
            raise JournalCorrupt(f"{path}, commit {seq}", str(problem), None, self._location) from None
        return None

    def begins(self, run_id: str, branch: str) -> int | None:
        """Return the number of a branch's first entry, unverified; None if there is none, or it is damaged."""
        found = _SEQ.match(_bytes(self._paths.journal(run_id, branch)) or b"")
        return int(found[1]) if found else None

    def ended(self, branches: Iterable[BranchKey]) -> dict[BranchKey, End]:
        return {key: end for key in branches if (end := self._end_of(self._paths.journal(*key)))}

    def _end_of(self, path: Path) -> End | None:
        try:
            last = _last_lines(path, reading.LAST)
            return reading.end_of([parts_of_line(line) for line in reversed(last)])
        except (InvalidEntry, OSError):  # whoever reads the journal says what is wrong with it
            return None

    def named(self, beginning: str) -> list[str]:
        runs = map(self._paths.run_of, directories_in(str(self._paths.journals)))
        return [run_id for run_id in runs if run_id.startswith(beginning)]

    def mentions(self, run_id: str, branch: str, *parts: bytes) -> bool:
        data = _bytes(self._paths.journal(run_id, branch)) or b""
        return any(part in data for part in parts)

    def touched(self, run_id: str, branch: str) -> float:
        path = self._paths.journal(run_id, branch)
        try:
            return path.stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return 0.0
        except OSError as error:
            raise locations.not_read(path, error) from error

    def naming_entry(self, info: CheckpointInfo) -> tuple[Entry | None, Entry | None]:
        """Return (the entry with a checkpoint, the first entry), None for a missing one. Verifies no other lines."""
        path = self._paths.journal(info.run_id, info.branch)
        data = _bytes(path)
        if not data:
            return None, None
        try:
            first = unseal_line(data.partition(b"\n")[0], after=None, where=str(path))
            reading.check_follows(first, [], info.run_id, info.branch, first.seq)
            for start, stop in _lines_with(b'"id":"%b"' % info.id.encode(), data):
                entry = _entry_at(data, start, stop, path)
                if entry.commit.get("place", {}).get("id") == info.id:
                    return entry, first
        except InvalidEntry:
            self.scan(info.run_id, info.branch)  # raises, naming the line
        return None, None

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        infos = []
        above = str(self._paths.journals)
        for directory in [self._paths.run(run_id).name] if run_id else directories_in(above):
            run = self._paths.run_of(directory)
            try:
                names = journals_in(f"{above}/{directory}")
            except StoreError as problem:
                if run_id:
                    raise
                log.warning("%s: left out of the list", problem)
                continue
            for name in names:
                path = f"{above}/{directory}/{name}"
                try:
                    with disk.opened(path) as file:
                        first = parts_of_line(file.readline().rstrip(b"\n"))
                    infos.append(reading.verified_branch_info(*first, run, self._paths.branch_of(name), path))
                except FileNotFoundError:
                    continue  # removed while we were looking
                except (InvalidEntry, SchemaTooNew, OSError) as problem:
                    if run_id:
                        raise reading.unreadable(problem, f"{path}, line 1", self._location) from problem
                    log.warning("%s begins with a line that cannot be read (%s): left out of the list", path, problem)
        return reading.in_order(infos)


def is_torn(tail: bytes, offset: int) -> bool:
    """Return whether `tail`, the bytes after the last intact line, is an incomplete write rather than damage.

    A line without a newline is incomplete. So is a line with parts that the disk did not write, which read as many
    zeros; a single zero is damage. `offset` is the offset of `tail` in the file.
    """
    line, newline, _ = tail.partition(b"\n")
    holes = re.finditer(rb"\0+", line)
    return not newline or any(_is_hole(hole.start(), hole.end(), offset, tail) for hole in holes)


def _is_hole(start: int, stop: int, offset: int, tail: bytes) -> bool:
    """Return whether zeros are an unwritten part of the file: up to its end, a long row, or up to a block boundary."""
    if not tail[stop:].strip(b"\0\n"):
        return True
    return stop - start >= _HOLE or (start == 0 and (offset + stop) % _BLOCK == 0)


def follows(tail: bytes, after: str) -> bool:
    """Return whether `tail` begins with a complete commit that is chained to the checksum `after`."""
    line, newline, _ = tail.partition(b"\n")
    try:
        return bool(newline and unseal_line(line, after=after, where=""))
    except InvalidEntry:
        return False


def _bytes(path: Path) -> bytes | None:
    """Return the content of a journal; None if it does not exist. Raises StoreError if it cannot be read."""
    try:
        return disk.read_complete(path)
    except FileNotFoundError:
        return None
    except StoreBusy:
        raise
    except OSError as error:
        raise locations.not_read(path, error) from error


def _last_lines(path: Path, count: int) -> list[bytes]:
    """Return the last lines of a journal, without newlines; none if its last write was cut. Raises OSError."""
    with disk.opened(path) as file:
        size, length = file.seek(0, os.SEEK_END), _END
        while True:
            file.seek(max(0, size - length))
            data = file.read()
            if length >= size or data.count(b"\n") > count:
                return data.split(b"\n")[-count - 1 : -1] if data.endswith(b"\n") else []
            length *= 8


def _records(data: bytes) -> Iterator[tuple[bytes, str, None]]:
    """Yield (body, seal, None) of each line of a journal. Raises InvalidEntry for a line that is incomplete or none."""
    offset = 0
    while offset < len(data):
        if (stop := data.find(b"\n", offset)) < 0:
            raise InvalidEntry("the last line has no newline")
        yield *parts_of_line(data[offset:stop]), None
        offset = stop + 1


def _lines_with(part: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each complete line that contains `part`. Much faster than splitting all lines."""
    found = data.find(part)
    while found >= 0:
        start, stop = data.rfind(b"\n", 0, found) + 1, data.find(b"\n", found)
        if stop < 0:
            return
        yield start, stop
        found = data.find(part, stop)


def _entry_at(data: bytes, start: int, stop: int, path: Path) -> Entry:
    """Read the entry of one line. Raises InvalidEntry if its seal does not fit the line before, SchemaTooNew."""
    if start == 0:
        return unseal_line(data[:stop], after=None, where=str(path))
    before = parse(data[data.rfind(b"\n", 0, start - 1) + 1 : start - 1])
    return unseal_line(data[start:stop], after=chained(before, before.get("sum", "")), where=str(path))


def journals_in(directory: str, below: str = "") -> list[str]:
    """List the journals of a run, or those `below`, as paths in its directory; [] if it is gone. Raises StoreError."""
    try:
        with os.scandir(f"{directory}/{below}") as inside:
            files = sorted((one.name, one.is_dir(follow_symlinks=False)) for one in inside)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise locations.not_read(f"{directory}/{below}", error) from error
    names = [f"{below}{name}" for name, _ in files if name.endswith(".jsonl")]
    return names + [name for inner, deeper in files if deeper for name in journals_in(directory, f"{below}{inner}/")]


def directories_in(path: str) -> list[str]:
    """Return the names of the directories of runs. A leading "~" marks a lock, or a run half made or half deleted."""
    try:
        with os.scandir(path) as inside:
            return [one.name for one in inside if one.name[0] != "~" and _holds_run(one, path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise locations.not_read(path, error) from error


def _holds_run(one: os.DirEntry[str], above: str) -> bool:
    """Return whether an entry is a directory that no link shows twice: a repair would take it for a damaged copy."""
    if not one.is_symlink():
        return one.is_dir()
    target, above = os.path.realpath(one.path), os.path.realpath(above)
    return os.path.isdir(target) and not f"{target}{os.sep}".startswith(f"{above}{os.sep}")


class Tail(NamedTuple):
    """The end of a journal, and the facts that its checkpoint files repeat."""

    path: Path
    seq: int
    sum: str
    offset: int
    mark: tuple[int, bytes]
    """(offset, bytes) of the last seal, to detect a compaction that left a journal of the same length."""
    run: Mapping[str, Any]
    """The part of the run's first entry that checkpoint files repeat."""
    begun: str
    """The checksum of the journal's first entry."""
    rewinds: tuple[Rewound, ...]
    files: dict[str, str] | None = None
    """The checkpoint files of the branch by id; None until a checkpoint is dropped."""

    @classmethod
    def of(cls, path: Path, entries: Sequence[Entry], offset: int) -> Tail:
        """Build the tail of the journal at `path`, with these entries and this length in bytes."""
        first, last = entries[0], entries[-1]
        place = {key: first.commit["run"][key] for key in ("run_id", "branch")}
        definition = {key: first.commit["run"]["definition"][key] for key in ("kind", "name")}
        run, rewinds = {**place, "definition": definition}, tuple(rewinds_of(entries))
        mark = _mark(lines([last]), offset)
        return cls(path, last.seq, last.sum, offset, mark, run, first.sum, rewinds)

    def after(self, entries: Sequence[Entry], data: bytes) -> Tail:
        """Return the tail of the journal once these entries are appended, as the lines `data`."""
        offset, last = self.offset + len(data), entries[-1]
        rewinds, mark = (*self.rewinds, *rewinds_of(entries)), _mark(data, offset)
        return self._replace(seq=last.seq, sum=last.sum, offset=offset, mark=mark, rewinds=rewinds)

    def ends(self, journal: IO[bytes]) -> bool:
        """Return whether an open journal ends with this tail."""
        start, seal = self.mark
        journal.seek(start)
        return journal.read(len(seal)) == seal and journal.seek(0, os.SEEK_END) == self.offset


def _mark(data: bytes, end: int) -> tuple[int, bytes]:
    """Return (offset, first bytes) of the last line of a journal. `data`: its last lines; `end`: its size in bytes."""
    start = data.rfind(b"\n", 0, -1) + 1
    return end - len(data) + start, data[start : start + _SEALED]


def stays_claimed(commit: Commit, claimed: bool) -> bool:
    """Return whether a process holds the branch after this commit, given whether one held it before (`claimed`)."""
    for entry in commit.entries:
        claimed = (claimed or "claim" in entry.commit) and not reading.ends_claim(entry.commit)
    return claimed


def lines(entries: Sequence[Entry]) -> bytes:
    """Return entries as the lines of a journal."""
    return b"".join([entry.line + b"\n" for entry in entries])
