"""The salvage of a JSON location. A damaged file is renamed to `<file>.aside-<digest>`, which nothing else reads.

Temporary files that a killed process has left are removed once they are an hour old.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from crewlite.encoding.codec import JsonObject
from crewlite.errors import ConfigError, JournalCorrupt, StoreError
from crewlite.refs import check_name
from crewlite.state.format.entry import SCHEMA, Entry, unchecked_parts
from crewlite.state.format.rewinds import rewinds_of
from crewlite.state.providers.base import BranchKey
from crewlite.state.providers.json_checkpoints import CheckpointFiles, FileChanges
from crewlite.state.providers.json_heads import HeadFiles, is_noted_in_head, missing_commits, rewinds_in
from crewlite.state.providers.json_journals import JournalFiles, directories_in, is_torn, journals_in
from crewlite.state.providers.json_paths import Paths
from crewlite.state.providers.json_results import modified
from crewlite.state.providers.reading import live_checkpoints
from crewlite.state.providers.salvage import Flaw, RawBranch, RawCommit, loosely
from crewlite.system import disk
from crewlite.system.file_locks import locked
from crewlite.texts.wording import number_of

_STALE = 3600.0  # seconds after which no process uses a temporary file any more
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_BEING_MADE = re.compile(r"~[0-9a-f]{32}")


class JsonSalvage:
    """One pass of the doctor over a directory. `RawBranch.handle` is the content of the branch's head file."""

    def __init__(
        self, paths: Paths, heads: HeadFiles, files: CheckpointFiles, journals: JournalFiles, *, repair: bool
    ) -> None:
        self._paths, self._heads, self._files, self._journals, self._repair = paths, heads, files, journals, repair
        self._unnamed = files.files()  # listed before the journals are read, as writers write the journal first
        """The checkpoint files, by id, that no journal read so far refers to."""
        self._dropped: set[str] = set()

    def runs(self) -> list[str]:
        if _is_other(self._paths.journals, stat.S_ISDIR):
            return []
        return [self._paths.run_of(directory) for directory in sorted(directories_in(str(self._paths.journals)))]

    def held(self, run_id: str) -> AbstractContextManager[None]:
        if _is_other(self._paths.journals, stat.S_ISDIR):
            return nullcontext()  # there is no place for a lock, and none for a run to write
        writes = self._repair and self._paths.journals.is_dir()
        return locked([self._paths.lock(run_id)], shared=not writes)

    def branches(self, run_id: str) -> list[RawBranch]:
        found, directory = [], self._paths.run(run_id)
        for name in sorted(journals_in(str(directory))):
            path, branch = directory / name, self._paths.branch_of(name)
            if not path.is_file():
                continue
            try:
                head, data = self._heads.read(run_id, branch), disk.read_complete(path)
                found.append(RawBranch(run_id, branch, str(path), _records(data), path.stat().st_mtime, head))
            except FileNotFoundError:  # deleted by a person or program that ignores the lock
                continue
        return found

    def ending(self, raw: RawBranch, sound: Sequence[Entry], problem: str | None) -> tuple[str, str] | None:
        """Return (code, sentence) if the last write is incomplete or the last commits are missing; None otherwise."""
        if problem is None:
            short = missing_commits(raw.handle, sound)
            return ("short_journal", short) if short else None
        tail = _joined(raw.records[len(sound) :])
        if not sound or not is_torn(tail, len(_joined(raw.records)) - len(tail)):
            return None
        return "torn_tail", f"it ends in an incomplete write of {number_of(len(tail), 'byte')}"

    def cut(self, raw: RawBranch, sound: Sequence[Entry], why: str) -> Callable[[], object]:
        def write() -> None:
            path, data, kept = Path(raw.where), _joined(raw.records), _joined(raw.records[: len(sound)])
            if disk.read_complete(path) != data:
                raise FileExistsError(f"{path} was written to")
            if not sound:
                _quarantine(path, data)
            elif kept != data:
                touched = path.stat().st_mtime
                disk.replace(_quarantine_path(path, data), data)
                disk.replace(path, kept)
                disk.touch(path, touched)  # a repair is not a sign of life
            noted = self._paths.head(*raw.key)
            if (content := disk.content(noted)) is not None:
                _quarantine(noted, content)  # otherwise the shorter journal would count as damaged again

        return write

    def quarantined(self, raw: RawBranch) -> str:
        return f"set aside as {_quarantine_path(Path(raw.where), _joined(raw.records)).name}"

    def index(self, raw: RawBranch, sound: Sequence[Entry]) -> Flaw | None:
        self._dropped |= {gone for entry in sound for gone, _ in entry.commit.get("drops", ())}
        live, changes, edited = {one["id"] for one in live_checkpoints(sound)}, FileChanges(), dict[Path, bytes]()
        for entry in sound:
            if (checkpoint := entry.commit.get("place")) and checkpoint["id"] in live:
                self._unnamed.pop(checkpoint["id"], None)
                run, journal = sound[0].commit["run"], Path(raw.where)
                path, document = Path(self._files.path(checkpoint)), self._files.document(run, entry, journal)
                data = _content(path)
                if data is None or loosely(data) != json.loads(document):
                    changes[str(path)] = document
                    edited |= {path: data} if data is not None else {}

        rewinds, (run_id, branch) = rewinds_of(sound), raw.key
        unknown = rewinds_in(self._heads.read(run_id, branch)) != rewinds

        def make() -> None:
            for path, data in edited.items():
                _quarantine(path, data)
            self._files.make(changes)
            if unknown and (noted := [entry for entry in sound if is_noted_in_head(entry)]):
                self._heads.write(run_id, branch, sound[0].sum, noted[-1], rewinds)
            elif unknown:  # the file is of another branch, which had the name before
                disk.remove(self._paths.head(run_id, branch))

        if not changes and not unknown:
            return None
        problem = f"checkpoint files are missing or were changed: {', '.join(map(os.path.basename, changes))}"
        if not changes:
            problem = f"{self._paths.head(run_id, branch).name} does not name the rewinds of the branch"
        return Flaw("stale_index", raw.where, problem, "written again", make, raw.key)

    def strays(self) -> Generator[Flaw, None, None]:
        """Yield checkpoint files that belong to no journal, and files that interrupted writes have left."""
        for identifier, path in sorted(self._unnamed.items()):
            content: Any = loosely(_content(path))
            content = content if isinstance(content, dict) else {}
            run_id, branch = str(content.get("run_id", "?")), str(content.get("branch", "?"))
            with self.held(run_id):
                data = _content(path)
                if data is not None and not self._has_come(identifier, content):
                    yield self._unnamed_file(identifier, path, data, content, (run_id, branch))
        yield from self._no_files()
        yield from self._leftovers()

    def _has_come(self, identifier: str, content: JsonObject) -> bool:
        """Return whether the journal holds the checkpoint by now: its run may have been imported since."""
        try:
            run_id = check_name("run_id", content.get("run_id", ""))
            branch = check_name("branch", content.get("branch", ""), slashes=True)
            return identifier in {one["id"] for one in live_checkpoints(self._journals.scan(run_id, branch)[0])}
        except (ConfigError, JournalCorrupt, StoreError):
            return False

    def _unnamed_file(self, identifier: str, path: Path, data: bytes, content: JsonObject, branch: BranchKey) -> Flaw:
        if type(content.get("schema")) is int and content["schema"] > SCHEMA:
            problem = f"it has schema {content['schema']}, and this crewlite reads up to {SCHEMA}"
            return Flaw("newer_schema", str(path), problem, "Upgrade crewlite; left untouched.", None, branch)
        if identifier in self._dropped:
            remove = partial(disk.remove, path)
            return Flaw("stale_index", str(path), "its checkpoint was dropped", "removed", remove, branch)
        problem = f"its journal (journal/{branch[0]}/{branch[1]}.jsonl) is missing, or does not name this checkpoint"
        act = f"set aside as {_quarantine_path(path, data).name}; restore the journal, and the file is written again"
        return Flaw("stale_index", str(path), problem, act, partial(_quarantine, path, data), branch)

    def _no_files(self) -> Iterator[Flaw]:
        """Yield what is no file but stands in the place of one, such as a directory or a pipe."""
        heads = (path for path in _within(self._paths.root / "heads") if path.suffix == ".json")
        journals = (path for path in _within(self._paths.journals) if path.suffix == ".jsonl" and not _is_in_use(path))
        wrong = [(path, "file") for path in sorted([*heads, *journals]) if _is_other(path)]
        above = (self._paths.root / "heads", self._paths.journals)
        wrong += [(path, "directory") for path in above if _is_other(path, stat.S_ISDIR)]
        for path, kind in wrong:
            aside = _quarantine_path(path, b"")
            mend = partial(disk.rename, path, aside)
            problem = f"this is not a {kind}, and a {kind} belongs here"
            yield Flaw("stray_file", str(path), problem, f"set aside as {aside.name}", mend)

    def _leftovers(self) -> Iterator[Flaw]:
        """Yield temporary files and directories that a process left when it was killed, at least an hour ago."""
        root = self._paths.root
        written = [path for where in (".*", "cache/.*") for path in root.glob(where)]
        for inside in sorted([*written, *_within(root / "heads"), *_within(root / "journal")]):
            directory = bool(_BEING_MADE.fullmatch(inside.name)) and inside.is_dir() and not inside.is_symlink()
            if not directory and not _TEMPORARY.fullmatch(inside.name):
                continue
            if any(_BEING_MADE.fullmatch(parent.name) for parent in inside.parents):
                continue
            if time.time() - modified(inside) > _STALE:
                remove = partial(disk.remove_directory if directory else disk.remove, inside)
                yield Flaw("stray_file", str(inside), "an interrupted write left it", "removed", remove)


def _content(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist, and nothing of what is no file, such as a directory."""
    return b"" if _is_other(path) else disk.content(path)


def _is_in_use(path: Path) -> bool:
    """Return whether a directory holds files, as one of an earlier release may whose branch has a name in `.jsonl`."""
    try:
        return path.is_dir() and bool(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return True  # what was there a moment ago is deleted


def _is_other(path: Path, wanted: Callable[[int], bool] = stat.S_ISREG) -> bool:
    """Return whether something else than a file, or than `wanted`, is at a path, such as a link that leads to itself.

    One look tells, as another process may remove it.
    """
    try:
        return not wanted(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return True


def _records(data: bytes) -> list[RawCommit]:
    """Split a journal into its lines. The seal of a line that is malformed, or has no newline, is None."""
    found = []
    for line in re.findall(rb"[^\n]*\n|[^\n]+", data):
        body, seal = unchecked_parts(line.rstrip(b"\n"))
        is_line = line == b'{"sum":"%b",%b\n' % (seal.encode(), body[1:])
        found.append(RawCommit(seal if is_line else None, body, None, line))
    return found


def _joined(records: Sequence[RawCommit]) -> bytes:
    return b"".join(record.line for record in records)


def _within(directory: Path) -> Iterator[Path]:
    """Yield all paths below a directory. Unlike a glob, this does not fail if some are deleted meanwhile."""
    for where, directories, files in os.walk(directory):
        yield from (Path(where, name) for name in (*directories, *files))


def _quarantine(path: Path, data: bytes) -> None:
    """Rename a file whose content is `data` to a name that nothing else reads."""
    if (quarantined := _quarantine_path(path, data)).exists():  # the same bytes were quarantined before
        disk.remove(path)
    else:
        disk.rename(path, quarantined)


def _quarantine_path(path: Path, data: bytes) -> Path:
    return path.with_name(f"{path.name}.aside-{blake2b(data, digest_size=8).hexdigest()}")
