"""Journals as files of JSON lines, and one small human-readable file per checkpoint.

    location/journal/<run>/<branch>.jsonl          the journal of a branch: one line per commit
    location/<timestamp>_<id>.json                 a checkpoint: its parent, its trigger, its commit in the journal
    location/heads/<run>/<branch>.json             the length of the journal at its newest checkpoint; the rewinds
    location/cache/<key>.json                      a result of a step that other runs may reuse

The journal is written first, and is authoritative: a missing checkpoint file is written again from it, and a checkpoint
file that contradicts it is refused. The cache belongs to no run. `Paths` maps names to paths and places the lock files.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from crewlite.errors import BranchConflictError, CheckpointMismatch, JournalCorrupt, RefError, StoreUnusable
from crewlite.ids import new_id
from crewlite.lazy import lazy
from crewlite.state.format.entry import Entry, Head
from crewlite.state.format.rewinds import abandoned, is_abandoned
from crewlite.state.providers import locations, reading, writing
from crewlite.state.providers.base import BranchKey, CheckpointInfo, Commit
from crewlite.state.providers.database_files import is_database
from crewlite.state.providers.json_checkpoints import (
    TOGETHER,
    CheckpointFiles,
    FileChanges,
    ids_of_dropped,
    is_of_another,
    load,
)
from crewlite.state.providers.json_heads import HeadFiles, is_noted_in_head, missing_commits, rewinds_in
from crewlite.state.providers.json_journals import JournalFiles, Tail, follows, is_torn, lines, stays_claimed
from crewlite.state.providers.json_paths import Paths
from crewlite.state.providers.json_results import ResultFiles
from crewlite.system import disk
from crewlite.system.file_locks import locked
from crewlite.texts.logs import logger
from crewlite.texts.wording import listed

if TYPE_CHECKING:
    from crewlite.state.providers.salvage import Salvage

json_salvage = lazy("crewlite.state.providers.json_salvage")  # only the doctor needs it

log = logger("crewlite.state")
_NAMED = 5  # lost runs that a warning names


class JsonProvider:
    """A directory with a journal for each branch and a human-readable file for each checkpoint."""

    name = "json"
    named_by_location = True
    exists = staticmethod(locations.exists)

    def open(self, location: str) -> JsonStore:
        """Open a directory. The first write creates it (mode 0700, with a .gitignore). Raises StoreUnusable."""
        root = locations.absolute(location)
        if root.is_file():
            found, hint = "file", "choose a directory"
            if is_database(location):
                found, hint = "database", "pass provider=SqliteProvider()"
            raise StoreUnusable(location, f"is a {found}, and JsonProvider wants a directory: {hint}")
        if file := next((one for one in root.parents if one.is_file()), None):
            raise StoreUnusable(location, f"nothing can be saved there, as {file} is a file: choose another directory")
        return JsonStore(root)


class JsonStore:
    """The store of a directory.

    A method that writes holds the lock of the run from its first read to the last checkpoint file that it writes, so
    nobody else changes the run meanwhile. A method that reads takes no lock and changes no file.
    """

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self.paths = Paths(root)
        self.heads = HeadFiles(self.paths)
        self.files = CheckpointFiles(self.paths)
        self.ref = self.files.path
        self.journals, self.results = JournalFiles(self.paths, self.ref), ResultFiles(root, self._make)
        self.sum_at, self.touched = self.journals.sum_at, self.journals.touched
        self.branches, self.mentions = self.journals.branches, self.journals.mentions
        self.ended, self.named = self.journals.ended, self.journals.named
        self._tails: dict[BranchKey, Tail] = {}
        """The end of each journal whose branch was claimed through this store, until the claim ends."""
        self._claimed_in: locations.FileId | None = None
        """The directory `journals` at the first of these claims."""

    def append(self, commits: Sequence[Commit]) -> None:
        begun = [(commit.run_id, start) for commit in commits if (start := commit.run)]
        if begun and not all(start.get("base") for _, start in begun):
            if not self.paths.journals.is_dir() and any(map(writing.begins_from_nothing, commits)):
                self._warn_of_lost_runs()
            self._make()
        elif not os.path.isdir(self.paths.journals):
            raise self._gone(commits[0])
        with locked([self.paths.lock(commit.run_id) for commit in commits]):
            if begun:
                self._begin_and_go_on(commits, dict.fromkeys(run_id for run_id, _ in begun))
            else:
                self._go_on(commits)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        head = self.heads.read(run_id, branch)  # before the journal: writers write the journal first, then the head
        entries, _ = self.journals.scan(run_id, branch)
        problem = missing_commits(head, entries)
        if problem and self.heads.read(run_id, branch) == head:  # else an import has replaced the run meanwhile
            sound = reading.newest_sound_checkpoint(entries, self.ref)
            raise JournalCorrupt(str(self.paths.journal(run_id, branch)), problem, sound, self.location)
        return entries

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        path = self.paths.journal(run_id, branch)
        if not path.exists():
            raise writing.no_branch(run_id, branch, own[-1].seq if own else 0)
        with locked([self.paths.lock(run_id)]):
            there, _ = self.journals.scan(run_id, branch)
            found, forks = [(entry.seq, entry.seal) for entry in there], self.branches(run_id)
            writing.check_rewrite(self.location, run_id, branch, own, entries, found=found, forks=forks)
            self.files.make(self.files.add_repairs(there, {}))  # the new entries do not tell which files were dropped
            touched, data = self.touched(run_id, branch), lines(entries)
            disk.replace(path, data)
            disk.touch(path, touched)  # a compaction is not a sign of life
            if tail := self._tails.get((run_id, branch)):
                self._tails[run_id, branch] = Tail.of(path, entries, len(data))._replace(files=tail.files)

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        directory = self.paths.run(run_id)
        if not directory.is_dir():  # another process was faster
            branch = next(iter(heads), "main")
            raise writing.no_branch(run_id, branch, heads.get(branch, (0, ""))[0])
        with locked([self.paths.lock(run_id)]):
            journals = {info.branch: self.journals.scan(run_id, info.branch)[0] for info in self.branches(run_id)}
            writing.check_remove(run_id, heads, {b: es[-1].head for b, es in journals.items()})
            self.heads.remove(run_id)
            named = [file for entries in journals.values() for file in self.files.paths(entries).values()]
            self.files.make({file: None for file in named if os.path.exists(file)})
            gone = directory.with_name(f"~{new_id()}")
            disk.touch(directory, time.time())  # the doctor removes leftovers of an interrupted deletion by their age
            disk.rename(directory, gone)  # no reader looks at such a name
            for key in [key for key in self._tails if key[0] == run_id]:
                del self._tails[key]
        try:
            disk.remove_directory(gone)
        except OSError as error:  # the run is deleted, and the doctor removes the rest
            log.warning("run %r is deleted, but not all of its files: %s", run_id, error)

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        found = self.files.listed(part, limit, before)
        ranges = {at: abandoned(rewinds_in(self.heads.read(*at))) for at in {(one.run_id, one.branch) for one in found}}
        return [replace(one, abandoned=is_abandoned(one.seq, ranges[one.run_id, one.branch])) for one in found]

    def salvage(self, *, repair: bool) -> AbstractContextManager[Salvage | None]:
        """Open the location for the doctor; return None if nothing is stored there."""
        parts = (self.paths, self.heads, self.files, self.journals)
        return contextlib.nullcontext(json_salvage.JsonSalvage(*parts, repair=repair))

    def close(self) -> None:
        """Do nothing: no file is open between calls."""

    def check_file(self, path: Path) -> CheckpointInfo:
        """Return the checkpoint of a checkpoint file, compared with its entry in the journal.

        Verifies that entry alone; reading the branch verifies the rest. Raises CheckpointMismatch if the file
        contradicts the journal, RefError if it does not exist.
        """
        info, document = load(path, self.location)
        entry, first = self.journals.naming_entry(info)
        if entry is None or first is None:
            if not path.exists():
                raise RefError(str(path), "does not exist any more")  # pruned in the meantime
            problem = "its journal is missing, or does not name this checkpoint"
        else:
            journal = self.paths.journal(info.run_id, info.branch)
            made = json.loads(self.files.document(first.commit["run"], entry, journal))
            if made == document and not is_of_another(path, info):
                return info
            problem = (
                f"it was changed after it was written. Its journal is intact: kick off with "
                f"run_id={info.run_id!r}, or delete this file and the next commit writes it again"
            )
        entries, _ = self.journals.scan(info.run_id, info.branch)
        sound = reading.newest_sound_checkpoint([one for one in entries if one != entry], self.ref)
        raise CheckpointMismatch(str(path), problem, sound, self.location)

    def _warn_of_lost_runs(self) -> None:
        """Warn if the directory of all journals was deleted, though checkpoint files of their runs are left."""
        if lost := sorted({repr(one.run_id) for one in self.files.listed()}):
            warning = "%s is gone, though checkpoints of %s are left: kicked off, they begin anew, and pay again"
            log.warning(warning, self.paths.journals, listed(lost, _NAMED))

    def _begin_and_go_on(self, commits: Sequence[Commit], begun: Iterable[str]) -> None:
        """Append commits, some of which create branches: of the runs `begun`, which may exist."""
        new = {free: [commit for commit in commits if commit.run_id == free] for free in begun if self._is_free(free)}
        for run in new.values():
            writing.check_bases(run)
        others = [commit for commit in commits if commit.run_id not in new]
        for begins, part in groupby(others, key=self._creates_branch):  # lazy: after earlier commits are written
            if begins:
                for commit in part:
                    self._begin(commit)
            else:
                self._go_on(list(part))
        if new:
            self._create(list(new.values()))

    def _is_free(self, run_id: str) -> bool:
        """Return whether a run can be created. Removes its directory if that exists and is empty."""
        directory = self.paths.run(run_id)
        if directory.is_dir() and not any(directory.iterdir()):
            disk.remove_directory(directory)
        return not directory.exists()

    def _creates_branch(self, commit: Commit) -> bool:
        return commit.run is not None and not self.paths.journal(*commit.key).exists()

    def _go_on(self, commits: Sequence[Commit]) -> None:
        heads: dict[BranchKey, Head] = {}
        tails: dict[BranchKey, Tail] = {}
        changes: FileChanges = {}
        with disk.SyncBatch() as batch:
            lacked: list[tuple[BranchKey, Commit, Sequence[Entry]]] = []
            for commit in commits:  # check all of them before writing any
                key = commit.key
                if key not in tails:
                    tails[key] = self._tail_of(commit, changes, batch)
                head = heads.get(key) or (tails[key].seq, tails[key].sum)
                rest = commit.beyond(head)
                if rest is None:
                    self._tails.pop(key, None)
                    raise BranchConflictError(*key, expected=commit.after, found=head[0])
                heads[key] = commit.head
                lacked.append((key, commit, rest))
            for key, commit, missing in lacked:
                try:
                    tails[key] = self._write(commit, tails[key], missing, batch)
                except FileExistsError as error:
                    raise BranchConflictError(*key, expected=commit.after, found="a later commit") from error
                tails[key] = self.files.add_commit(commit, tails[key], changes, partial(self._entries, commit, batch))
            if 0 < len(changes) <= TOGETHER:
                self.files.stage(changes, batch)
                changes = {}
        self._settle(commits, tails, changes)

    def _tail_of(self, commit: Commit, changes: FileChanges, batch: disk.SyncBatch) -> Tail:
        """Return the tail of a journal, which `batch` keeps open from now on.

        If the tail is unknown, or the journal ends differently by now, reads the journal unless the caller just has,
        and adds the changes of checkpoint files that its last writer left out to `changes`.
        """
        known, entries = self._tails.get(commit.key), commit.read
        path = known.path if known else self.paths.journal(*commit.key)
        try:
            file = batch.hold(path)
        except FileNotFoundError:
            raise self._gone(commit) from None
        if known and known.ends(file):
            return known
        tail = Tail.of(path, entries, len(lines(entries))) if entries else None
        if not tail or not tail.ends(file):
            entries, offset = self.journals.reread(*commit.key, file)
            tail = Tail.of(path, entries, offset)
        self.files.add_repairs(entries, changes)
        batch.sync_names(path, self.paths.journals)  # the process that created them may have died before the sync
        return tail

    def _entries(self, commit: Commit, batch: disk.SyncBatch) -> Sequence[Entry]:
        file = batch.hold(self.paths.journal(*commit.key))
        return self.journals.reread(*commit.key, file)[0]

    def _gone(self, commit: Commit) -> OSError | BranchConflictError:
        """Build the error for a missing journal: its run was deleted, or the location was moved or deleted."""
        key = commit.key
        if key in self._tails and locations.file_id(self.paths.journals) != self._claimed_in:
            where = self.paths.journal(*key)
            return OSError(f"{where} is gone: its location was deleted or moved during the run")
        return writing.no_branch(*key, commit.after)

    def _write(self, commit: Commit, tail: Tail, rest: Sequence[Entry], batch: disk.SyncBatch) -> Tail:
        """Write `rest`, the entries of a commit that a journal lacks. Returns the new tail of the journal."""
        path = tail.path
        if not commit.entries:
            disk.touch(path, writing.committed_at(commit))
            return tail
        if not rest:  # an earlier attempt wrote all entries and failed, perhaps before the sync
            batch.sync(path)
            return tail

        def torn(beyond: bytes) -> bool:
            return is_torn(beyond, tail.offset) and not follows(beyond, tail.sum)

        data = lines(rest)
        batch.append(path, data, at=tail.offset, torn=torn)
        return tail.after(rest, data)

    def _begin(self, commit: Commit) -> None:
        """Create a branch of a run that exists. Raises BranchConflictError for a fork whose base is not stored."""
        if commit.run and (base := commit.run.get("base")):
            there = commit.run_id, base["branch"]
            writing.check_base(commit, base, lambda seq: self.sum_at(*there, seq), lambda: self.journals.begins(*there))
        self.heads.begin_anew(commit)
        path = self.paths.journal(*commit.key)
        disk.make_directory(path.parent, durable=False)
        with disk.SyncBatch() as batch:  # of the run, too: its creator may have died before it synced the name
            batch.sync_names(path.parent, self.paths.journals)
        try:
            disk.replace(path, lines(commit.entries))
        except OSError:  # perhaps only of the last sync, after which the branch is there
            with contextlib.suppress(OSError):
                disk.remove(path)
            raise
        self._settle_new([commit])

    def _create(self, runs: Sequence[Sequence[Commit]]) -> None:
        """Create runs: write their journals to temporary directories, and rename each into place once complete."""
        staged = {f"~{new_id()}": run for run in runs}
        try:
            with disk.SyncBatch() as batch:
                for name, run in staged.items():
                    self._stage(name, run, batch)
            for run in runs:
                self.heads.begin_anew(run[0])
                self.heads.remove(run[0].run_id)
            with disk.SyncBatch() as batch:
                for name, run in staged.items():
                    disk.rename(self.paths.journals / name, self.paths.run(run[0].run_id), batch=batch)
        except OSError:  # perhaps only of the last sync, after which the runs are there
            for name, run in staged.items():
                with contextlib.suppress(OSError):
                    disk.rename(self.paths.run(run[0].run_id), self.paths.journals / name)
                with contextlib.suppress(OSError):  # the doctor removes it later
                    disk.remove_directory(self.paths.journals / name)
            raise
        self._settle_new([commit for run in runs for commit in run])

    def _stage(self, name: str, run: Sequence[Commit], batch: disk.SyncBatch) -> None:
        directory, staged = self.paths.run(run[0].run_id), self.paths.journals / name
        disk.make_directory(staged, durable=False)  # this name need not last
        for commit in run:
            path = staged / self.paths.journal(*commit.key).relative_to(directory)
            disk.make_directory(path.parent, batch=batch)
            batch.append(path, lines(commit.entries), at=0, torn=lambda tail: True)
            disk.touch(path, writing.committed_at(commit))

    def _settle_new(self, commits: Sequence[Commit]) -> None:
        tails: dict[BranchKey, Tail] = {}
        changes: FileChanges = {}
        for commit in commits:
            path = self.paths.journal(*commit.key)
            tail = Tail.of(path, commit.entries, len(lines(commit.entries)))
            tails[commit.key] = self.files.add_commit(commit, tail, changes)
        self._settle(commits, tails, changes)

    def _settle(self, commits: Sequence[Commit], tails: Mapping[BranchKey, Tail], changes: FileChanges) -> None:
        """Change checkpoint files, write the heads, and remember the tails of branches that are claimed."""
        if changes:
            self.files.make(changes)
        for commit in commits:
            key = commit.key
            tail = tails[key]
            if noted := next(filter(is_noted_in_head, reversed(commit.entries)), None):
                self.heads.write(*key, tail.begun, noted, tail.rewinds)
            if not stays_claimed(commit, key in self._tails):
                self._tails.pop(key, None)
                continue
            if not self._tails:
                self._claimed_in = locations.file_id(self.paths.journals)
            self._tails[key] = tail
            if tail.files is not None:
                tail.files.update(self.files.paths(commit.entries))
                for gone in ids_of_dropped(commit.entries):
                    tail.files.pop(gone, None)

    def _make(self) -> None:
        """Create the location, with a .gitignore. The root gets none if it holds other files already."""
        journals = self.paths.journals
        if journals.is_dir():
            return
        ours = not self.paths.root.is_dir() or not any(self.paths.root.iterdir())
        disk.make_directory(journals)
        for directory in (self.paths.root if ours else None, journals):
            if directory and not (directory / ".gitignore").exists():
                disk.replace(directory / ".gitignore", b"*\n")
