"""The doctor of JSON locations.

The journals come first, then the forks that stand on them, then the checkpoint files, which are what the journals say
they are. What is damaged gets the name `<file>.aside-<digest>`, which nothing else looks at.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from crewlite import disk
from crewlite.errors import SchemaTooNew
from crewlite.state.entry import SCHEMA, Entry, Unsound, unseal_line
from crewlite.state.finding import Finding, adrift, loosely, sound_part, writer_of
from crewlite.state.providers.json import JsonStore
from crewlite.state.providers.json_journals import is_torn
from crewlite.state.providers.json_places import PlaceFiles
from crewlite.state.providers.reading import live_places, newest_sound_place

_STALE = 3600.0  # seconds after which a temporary file is nobody's any more
_YOUNG = 60.0  # seconds in which a run at work may not have made the file of its newest checkpoint yet
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_BEING_MADE = re.compile(r"~[0-9a-f]{32}")
Branch = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _View:
    """A checkpoint file as its journal has it."""

    document: bytes
    made: float
    sound: str | None
    writer: str | None
    journal: Path
    size: int
    """Of the journal, in bytes, when it was read."""

    @property
    def is_moving(self) -> bool:
        """Whether somebody may be making or removing the file right now."""
        young = time.time() - self.made < _YOUNG
        return bool(self.writer) and (young or self.journal.stat().st_size != self.size)


class JsonDoctor:
    """Looks at one location, once."""

    def __init__(self, store: JsonStore, *, repair: bool) -> None:
        self._store, self._root, self._repair = store, Path(store.location), repair
        self._places = PlaceFiles(self._root)
        self._found: list[Finding] = []
        self._views: dict[Path, _View] = {}
        self._dropped: set[str] = set()
        self._writers: dict[Branch, str | None] = {}
        self._untouched: set[Branch] = set()
        """Branches whose journals are left as they are, though there is more to them than can be read."""

    def findings(self) -> list[Finding]:
        """All there is to say, and with `repair` to do."""
        files = self._places.files()  # before the journals, which are always written first
        for directory in sorted(self._root.glob("journal/*/")):
            if not directory.name.startswith("~"):
                self._run(directory)
        for path, view in self._views.items():
            self._view(path, view)
        for identifier, path in files.items():
            if path not in self._views and path.exists():
                self._without_journal(identifier, path)
        self._leftovers()
        return self._found

    def _run(self, directory: Path) -> None:
        run_id, journals, paths = directory.name, dict[str, list[Entry]](), dict[str, Path]()
        for path in sorted(path for path in directory.rglob("*.jsonl") if path.is_file()):
            branch = path.relative_to(directory).as_posix().removesuffix(".jsonl")
            if entries := self._journal(path, run_id, branch):
                journals[branch], paths[branch] = entries, path
        unknown = {branch for run, branch in self._untouched if run == run_id}
        for branch, problem in adrift(journals, unknown).items():
            path, data, writer = paths[branch], disk.whole(paths[branch]), self._writers[run_id, branch]
            act = f"set aside as {_aside(path, data).name}; bring back what it stands on, then give it its name again"
            finding = Finding("dangling_fork", str(path), problem, act)
            self._tell(finding, partial(_salvage, path, data, 0, 0.0), writer)
            if writer:
                self._untouched.add((run_id, branch))
            del journals[branch]
        for branch, entries in journals.items():
            self._expect(paths[branch], entries, self._writers[run_id, branch])

    def _journal(self, path: Path, run_id: str, branch: str) -> list[Entry]:
        """The sound entries of a journal. What is broken is told, and with `repair` mended."""
        data, touched = disk.whole(path), path.stat().st_mtime
        lines = [line for line in re.split(rb"(?<=\n)", data) if line]

        def unseal(line: bytes, after: str | None) -> tuple[Entry, int]:
            if not line.endswith(b"\n"):
                raise Unsound("the last line has no end")
            entry = unseal_line(line[:-1], after=after, where=str(path))
            return entry, entry.seq

        try:
            entries, problem = sound_part(lines, unseal, run_id, branch)
        except SchemaTooNew as newer:
            self._found.append(Finding("newer_schema", str(path), str(newer), "Upgrade crewlite; left untouched."))
            self._untouched.add((run_id, branch))
            return []
        said = [*(entry.facts for entry in entries), *map(loosely, lines[len(entries) :])]
        writer = writer_of(self._store.location, run_id, branch, said, touched)
        self._writers[run_id, branch] = writer
        if problem is None and entries:
            return entries
        sound = newest_sound_place(entries, self._store.ref)
        size = sum(map(len, lines[: len(entries)]))
        if entries and is_torn(data[size:], size):
            self._torn(path, data, size, writer, sound)
            return entries
        where = f"{path}, line {len(entries) + 1}"
        act = f"set aside as {_aside(path, data).name}; "
        act += f"the branch ends at commit {entries[-1].seq}" if entries else "nothing in it is sound"
        finding = Finding("damaged_journal", where, problem or "it is empty", act, sound)
        self._tell(finding, lambda: _salvage(path, data, size, touched), writer)
        if writer:
            self._untouched.add((run_id, branch))
        return entries

    def _torn(self, path: Path, data: bytes, size: int, writer: str | None, sound: str | None) -> None:
        """The end of a journal that was never written to the end. If that may be more than one write, it is kept."""
        tail = data[size:]
        several = b'"sum":"' in tail.partition(b"\n")[2]
        act = f"cut off{f', and kept in {_aside(path, data).name}' if several else ''}; the run goes on before it"

        def cut() -> None:
            if several:
                disk.replace(_aside(path, data), data)
            disk.append(path, b"", at=size, torn=lambda beyond: beyond == tail)

        problem = f"its last {len(tail)} bytes are a write that was cut"
        self._tell(Finding("torn_tail", str(path), problem, act, sound), cut, writer)

    def _expect(self, journal: Path, entries: list[Entry], writer: str | None) -> None:
        """Remember which checkpoint files a journal has, and how they read."""
        first, live = entries[0], {place["id"] for place in live_places(entries)}
        sound, size = newest_sound_place(entries, self._store.ref), sum(len(entry.line) + 1 for entry in entries)
        for entry in entries:
            self._dropped |= {gone for gone, _ in entry.facts.get("drops", ())}
            if (place := entry.facts.get("place")) and place["id"] in live:
                document, made = self._places.document(first, entry), datetime.fromisoformat(place["at"]).timestamp()
                self._views[self._places.path(place)] = _View(document, made, sound, writer, journal, size)

    def _view(self, path: Path, view: _View) -> None:
        """A checkpoint file that ought to be there, as it is."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if not view.is_moving:
                finding = Finding("missing_file", str(path), "this checkpoint has no file", "made again", view.sound)
                self._tell(finding, lambda: disk.replace(path, view.document), view.writer)
            return
        if loosely(data) == json.loads(view.document):
            return

        def mend() -> None:
            _set_aside(path, data)
            disk.replace(path, view.document)

        act = f"set aside as {_aside(path, data).name}, and made again"
        finding = Finding("edited_file", str(path), "it was changed after it was written", act, view.sound)
        self._tell(finding, mend, view.writer)

    def _without_journal(self, identifier: str, path: Path) -> None:
        """A checkpoint file that no journal has."""
        said: Any = loosely(data := path.read_bytes())
        said = said if isinstance(said, dict) else {}
        branch = str(said.get("run_id", "?")), str(said.get("branch", "?"))
        if branch in self._untouched:
            return
        writer = self._writers.get(branch)
        if type(said.get("schema")) is int and said["schema"] > SCHEMA:
            problem = f"it has schema {said['schema']}, and this crewlite reads up to {SCHEMA}"
            self._found.append(Finding("newer_schema", str(path), problem, "Upgrade crewlite; left untouched."))
            return
        if identifier in self._dropped:
            if writer:  # who is about to remove it
                return
            finding = Finding("stray_file", str(path), "its checkpoint was dropped", "removed")
            self._tell(finding, lambda: disk.remove(path))
            return
        journal = f"journal/{branch[0]}/{branch[1]}.jsonl"
        problem = f"its journal ({journal}) is gone, or has no such checkpoint"
        act = f"set aside as {_aside(path, data).name}; bring back the journal, and it is made again"
        self._tell(Finding("orphan_file", str(path), problem, act), lambda: _set_aside(path, data), writer)

    def _leftovers(self) -> None:
        """What was being written or taken away when somebody was killed, long ago."""
        for inside in sorted(path for where in (".*", "cache/.*", "journal/**/*") for path in self._root.glob(where)):
            directory = bool(_BEING_MADE.fullmatch(inside.name)) and inside.is_dir() and not inside.is_symlink()
            if not directory and not _TEMPORARY.fullmatch(inside.name):
                continue
            if any(_BEING_MADE.fullmatch(parent.name) for parent in inside.parents) or not _is_stale(inside):
                continue
            finding = Finding("stray_file", str(inside), "a write that was cut long ago left it", "removed")
            self._tell(finding, partial(disk.remove_directory if directory else disk.remove, inside))

    def _tell(self, finding: Finding, mend: Callable[[], object], writer: str | None = None) -> None:
        """Keep a finding, whose remedy is what a repair does; and do it, if it may be done."""
        act, repaired = finding.remedy, False
        if writer:
            remedy = f"{writer} is at work on this branch, so it is left alone: ask again when that has ended."
        elif not self._repair:
            remedy = f"With repair=True: {act}."
        else:
            try:
                mend()
                remedy, repaired = f"Done: {act}.", True
            except FileExistsError:
                remedy = "It was written to in this very moment, so it was left alone: ask again."
        self._found.append(replace(finding, remedy=remedy, repaired=repaired))


def _salvage(path: Path, data: bytes, size: int, touched: float) -> None:
    """Keep the first `size` bytes of a journal that holds `data`, which is set aside. Without any, it is no more."""
    with disk.held(path) as file:
        if file.read() != data:
            raise FileExistsError(f"{path} goes on")
        if not size:
            _set_aside(path, data)
            return
        disk.replace(_aside(path, data), data)
        disk.replace(path, data[:size])
        disk.touch(path, touched)


def _set_aside(path: Path, data: bytes) -> None:
    """Give a file that holds `data` a name that nothing else looks at."""
    if (aside := _aside(path, data)).exists():  # the same bytes, kept before
        disk.remove(path)
    else:
        disk.rename(path, aside)


def _aside(path: Path, data: bytes) -> Path:
    return path.with_name(f"{path.name}.aside-{blake2b(data, digest_size=8).hexdigest()}")


def _is_stale(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > _STALE
    except FileNotFoundError:
        return False
