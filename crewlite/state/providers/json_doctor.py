"""The doctor of JSON locations.

The journals come first, then the forks that stand on them, then the checkpoint files, which are what the journals say
they are. What is damaged gets the name `<file>.aside-<digest>`, which nothing else looks at.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from crewlite import disk
from crewlite.codec import JsonObject
from crewlite.errors import ConfigError, JournalCorrupt, SchemaTooNew
from crewlite.ids import short
from crewlite.refs import check_name
from crewlite.state.entry import SCHEMA, Entry, Unsound, parts, unseal_line
from crewlite.state.finding import Finding, SoundPart, adrift, loosely, sound_part, writer_of
from crewlite.state.providers.json import JsonStore
from crewlite.state.providers.json_heads import lacking
from crewlite.state.providers.json_journals import directories_in, is_torn, journals_in
from crewlite.state.providers.reading import live_places, newest_sound_place

_STALE = 3600.0  # seconds after which a temporary file is nobody's any more
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_BEING_MADE = re.compile(r"~[0-9a-f]{32}")
Branch = tuple[str, str]


class JsonDoctor:
    """Looks at one location, once: at each run while nobody else writes to it."""

    def __init__(self, store: JsonStore, *, repair: bool) -> None:
        self._store, self._root, self._repair = store, Path(store.location), repair
        self._found: list[Finding] = []
        self._files: dict[str, Path] = {}
        """The checkpoint files that were there, by id, which no journal has named so far."""
        self._dropped: set[str] = set()
        self._writers: dict[Branch, str | None] = {}
        self._untouched: set[Branch] = set()
        """Branches whose journals are left as they are, though there is more to them than can be read."""

    def findings(self) -> list[Finding]:
        """All there is to say, and with `repair` to do."""
        self._files = self._store.files.files()  # before the journals, which are always written first
        for directory in sorted(directories_in(self._store.paths.journals)):
            run_id = self._store.paths.run_of(directory)
            with self._locked(run_id):
                self._run(directory, run_id)
        for identifier, path in sorted(self._files.items()):
            self._without_journal(identifier, path)
        self._leftovers()
        return self._found

    def _locked(self, run_id: str) -> AbstractContextManager[None]:
        """Keep others from writing to a run while it is looked at."""
        writes = self._repair and self._store.paths.journals.is_dir()
        return disk.locked([self._store.paths.lock(run_id)], shared=not writes)

    def _run(self, directory: Path, run_id: str) -> None:
        journals, paths = dict[str, list[Entry]](), dict[str, Path]()
        for path in filter(Path.is_file, journals_in(directory)):
            branch = self._store.paths.branch_of(directory, path)
            if entries := self._journal(path, run_id, branch):
                journals[branch], paths[branch] = entries, path
        unknown = {branch for run, branch in self._untouched if run == run_id}
        for branch, problem in adrift(journals, unknown).items():
            path, data, writer = paths[branch], disk.whole(paths[branch]), self._writers[run_id, branch]
            act = f"set aside as {_aside(path, data).name}; bring back what it stands on, then give it its name again"
            finding = Finding("dangling_fork", str(path), problem, act)
            self._tell(finding, partial(self._cut, path, data, 0, (run_id, branch)), writer)
            if writer:
                self._untouched.add((run_id, branch))
            del journals[branch]
        for branch, entries in journals.items():
            self._views(entries, self._writers[run_id, branch])

    def _journal(self, path: Path, run_id: str, branch: str) -> list[Entry]:
        """The sound entries of a journal. What is broken is told, and with `repair` mended."""
        try:
            head, data = self._store.heads.read(run_id, branch), disk.whole(path)
            touched = path.stat().st_mtime
        except FileNotFoundError:  # taken away by a process that knows no locks
            return []
        lines = [line for line in re.split(rb"(?<=\n)", data) if line]

        def unseal(line: bytes, after: str | None) -> tuple[Entry, int]:
            if not line.endswith(b"\n"):
                raise Unsound("the last line has no end")
            entry = unseal_line(line[:-1], after=after, where=str(path))
            return entry, entry.seq

        try:
            part = sound_part(lines, unseal, lambda line: parts(line[:-1]), run_id, branch)
        except SchemaTooNew as newer:
            self._found.append(Finding("newer_schema", str(path), str(newer), "Upgrade crewlite; left untouched."))
            self._untouched.add((run_id, branch))
            return []
        entries, problem = part.entries, part.problem
        said = [*(entry.facts for entry in entries), *map(loosely, lines[len(entries) :])]
        writer = writer_of(self._store.location, run_id, branch, said, touched)
        self._writers[run_id, branch] = writer
        sound = newest_sound_place(entries, self._store.ref)
        if part.without:
            data = self._without_places(path, lines, part, writer, sound)
            lines = [line for line in re.split(rb"(?<=\n)", data) if line]
        if problem is None and entries:
            if short := lacking(head, entries):
                finding = Finding("short_journal", str(path), short, "taken for what there is of it", sound)
                self._tell(finding, partial(self._forget_head, (run_id, branch)), writer)
            return entries
        size = sum(map(len, lines[: len(entries)]))
        if entries and is_torn(data[size:], size):
            self._torn(path, data, size, (run_id, branch), sound)
            return entries
        where = f"{path}, line {len(entries) + 1}"
        act = f"set aside as {_aside(path, data).name}; "
        act += f"the branch ends at commit {entries[-1].seq}" if entries else "nothing in it is sound"
        finding = Finding("damaged_journal", where, problem or "it is empty", act, sound)
        self._tell(finding, lambda: self._cut(path, data, size, (run_id, branch)), writer)
        if writer:
            self._untouched.add((run_id, branch))
        return entries

    def _without_places(
        self, path: Path, lines: list[bytes], part: SoundPart, writer: str | None, sound: str | None
    ) -> bytes:
        """Commits that name a checkpoint of another commit lose that alone. Returns the journal as it is then."""
        data = b"".join(lines)
        where = f"{path}, line {', '.join(str(at + 1) for at in part.without)}"
        problem = f"checkpoint {', '.join(map(short, part.without.values()))} is not of the commit that names it"
        act = f"kept in {_aside(path, data).name}, and that checkpoint taken away; the run loses nothing"
        mended = [entry.line + b"\n" for entry in part.entries]
        mended = [mended[at] if at in part.without else line for at, line in enumerate(lines)]

        def mend() -> None:
            _keep(path, data)
            _put(path, b"".join(mended))

        self._tell(Finding("wrong_checkpoint", where, problem, act, sound), mend, writer)
        return b"".join(mended) if self._repair and not writer else data

    def _torn(self, path: Path, data: bytes, size: int, branch: Branch, sound: str | None) -> None:
        """The end of a journal that was never written to the end. If that may be more than one write, it is kept."""
        tail = data[size:]
        several = b'"sum":"' in tail.partition(b"\n")[2]
        act = f"cut off{f', and kept in {_aside(path, data).name}' if several else ''}; the run goes on before it"

        def cut() -> None:
            if several:
                _keep(path, data)
            disk.append(path, b"", at=size, torn=lambda beyond: beyond == tail)
            self._forget_head(branch)

        problem = f"its last {len(tail)} bytes are a write that was cut"
        self._tell(Finding("torn_tail", str(path), problem, act, sound), cut, self._writers[branch])

    def _cut(self, path: Path, data: bytes, size: int, branch: Branch) -> None:
        """Keep the first `size` bytes of a journal that holds `data`, which is set aside. Without any, it goes."""
        if disk.whole(path) != data:
            raise FileExistsError(f"{path} goes on")
        if size:
            _keep(path, data)
            _put(path, data[:size])
        else:
            _set_aside(path, data)
        self._forget_head(branch)

    def _forget_head(self, branch: Branch) -> None:
        """Let a journal be as short as it is from here on."""
        path = self._store.paths.head(*branch)
        if (data := _bytes(path)) is not None:
            _set_aside(path, data)

    def _views(self, entries: list[Entry], writer: str | None) -> None:
        """The checkpoint files of a journal."""
        sound = newest_sound_place(entries, self._store.ref)
        self._dropped |= {gone for entry in entries for gone, _ in entry.facts.get("drops", ())}
        live = {place["id"] for place in live_places(entries)}
        for entry in entries:
            if (place := entry.facts.get("place")) and place["id"] in live:
                self._files.pop(place["id"], None)
                document = self._store.files.document(entries[0].facts["run"], entry)
                self._view(self._store.files.path(place), document, sound, writer)

    def _view(self, path: Path, document: bytes, sound: str | None, writer: str | None) -> None:
        """A checkpoint file that ought to be there, as it is."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            finding = Finding("missing_file", str(path), "this checkpoint has no file", "made again", sound)
            self._tell(finding, lambda: disk.replace(path, document), writer)
            return
        if loosely(data) == json.loads(document):
            return

        def mend() -> None:
            _set_aside(path, data)
            disk.replace(path, document)

        act = f"set aside as {_aside(path, data).name}, and made again"
        finding = Finding("edited_file", str(path), "it was changed after it was written", act, sound)
        self._tell(finding, mend, writer)

    def _without_journal(self, identifier: str, path: Path) -> None:
        """A checkpoint file that no journal had."""
        said: Any = loosely(_bytes(path))
        said = said if isinstance(said, dict) else {}
        branch = str(said.get("run_id", "?")), str(said.get("branch", "?"))
        with self._locked(branch[0]):
            data = _bytes(path)
            if data is None or branch in self._untouched or self._has_come(identifier, said):
                return
            self._orphan(identifier, path, data, said, branch)

    def _has_come(self, identifier: str, said: JsonObject) -> bool:
        """Whether a journal has a checkpoint by now: its run may have been brought in since it was looked for."""
        try:
            run_id = check_name("run_id", said.get("run_id", ""))
            branch = check_name("branch", said.get("branch", ""), slashes=True)
            return identifier in {place["id"] for place in live_places(self._store.journals.scan(run_id, branch)[0])}
        except (ConfigError, JournalCorrupt, SchemaTooNew):
            return False

    def _orphan(self, identifier: str, path: Path, data: bytes, said: JsonObject, branch: Branch) -> None:
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
        written = [path for where in (".*", "cache/.*") for path in self._root.glob(where)]
        for inside in sorted([*written, *_within(self._root / "heads"), *_within(self._root / "journal")]):
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


def _within(directory: Path) -> Iterator[Path]:
    """All that is below a directory. What is taken away meanwhile is left out, where a glob would raise."""
    for where, directories, files in os.walk(directory):
        yield from (Path(where, name) for name in (*directories, *files))


def _put(path: Path, data: bytes) -> None:
    """Replace what a journal holds. Nobody has given a sign of life by that."""
    touched = path.stat().st_mtime
    disk.replace(path, data)
    disk.touch(path, touched)


def _keep(path: Path, data: bytes) -> None:
    """Keep `data`, which a file holds, beside it."""
    disk.replace(_aside(path, data), data)


def _bytes(path: Path) -> bytes | None:
    """What a file holds; None if it is gone."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


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
