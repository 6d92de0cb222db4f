"""Journals as lines of JSON, and one small file per checkpoint that people can read.

    location/journal/<run>/<branch>.jsonl          the truth, one line a commit
    location/<timestamp>_<id>.json                 one checkpoint: lineage, what triggered it, where in the journal
    location/heads/<run>/<branch>.json             how long the journal was at its newest checkpoint
    location/cache/<key>.json                      a result of a step that other runs may reuse

The journal is written first. A missing file is made again from it; a file that it contradicts is refused. The cache
belongs to no run. `Paths` turns names into paths, and places the lock files.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from crewlite import disk
from crewlite.errors import BranchConflictError, CheckpointMismatch, JournalCorrupt, RefError, StoreUnusable
from crewlite.ids import new_id
from crewlite.lazy import lazy
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry
from crewlite.state.providers.base import BranchInfo, CheckpointInfo, Commit, Head
from crewlite.state.providers.json_checkpoints import Changes, CheckpointFiles, is_of_another, load
from crewlite.state.providers.json_heads import HeadFiles, lacking
from crewlite.state.providers.json_journals import JournalFiles, follows, is_torn
from crewlite.state.providers.json_paths import Paths
from crewlite.state.providers.json_results import ResultFiles
from crewlite.state.providers.json_tail import Tail, lines, stays_claimed
from crewlite.state.providers.reading import (
    check_bases,
    check_remove,
    check_rewrite,
    committed_at,
    newest_sound_checkpoint,
    no_base,
    no_branch,
)
from crewlite.state.providers.salvage import Salvage

json_salvage = lazy("crewlite.state.providers.json_salvage")  # only the doctor wants it

Key = tuple[str, str]
"""A run and a branch of it."""


class JsonProvider:
    """A directory: human-readable files, one per checkpoint, and a journal for each run."""

    name = "json"
    named_by_location = True
    exists = staticmethod(os.path.exists)

    def open(self, location: str) -> JsonStore:
        """Open a directory. The first write makes it (0700, with a .gitignore). Raises StoreUnusable."""
        root = Path(location).absolute()
        if root.is_file():
            database = disk.head(root, 15) == b"SQLite format 3"
            hint = "pass provider=SqliteProvider()" if database else "choose a directory"
            found = "database" if database else "file"
            raise StoreUnusable(location, f"is a {found}, JsonProvider wants a directory: {hint}")
        return JsonStore(root)


class JsonStore:
    """An opened directory.

    What writes a run holds the lock of that run from its first look to the last checkpoint file, so nothing else moves
    meanwhile. What reads holds nothing, and leaves nothing behind.
    """

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self.paths = Paths(root)
        self.heads = HeadFiles(self.paths)
        self.files = CheckpointFiles(self.paths)
        self.journals = JournalFiles(self.paths, self.ref)
        self.results = ResultFiles(root, self._make)
        self._tails: dict[Key, Tail] = {}
        """Of the branches that were claimed through this store, until their claim ends."""
        self._claimed_in: tuple[int, int] | None = None
        """The directory in which the first of them was claimed: another may lie at its path by now."""

    def append(self, commits: Sequence[Commit]) -> None:
        """See Store.append."""
        if any(commit.run and not commit.run.get("base") for commit in commits):
            self._make()
        elif not self.paths.journals.is_dir():
            raise self._gone(commits[0])
        begun = dict.fromkeys(commit.run_id for commit in commits if commit.run)
        with self._locked(*(commit.run_id for commit in commits)):
            missing = [run_id for run_id in begun if _is_free(self.paths.run(run_id))]
            new = [[commit for commit in commits if commit.run_id == run_id] for run_id in missing]
            for run in new:
                check_bases(run)
            others = [commit for commit in commits if commit.run_id not in missing]
            for begins, part in groupby(others, key=self._begins):  # which looks when all before it is written
                if begins:
                    for commit in part:
                        self._begin(commit)
                else:
                    self._go_on(list(part))
            self._create(new)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """See Store.read."""
        head = self.heads.read(run_id, branch)  # before the journal, which is always written first
        entries, _ = self.journals.scan(run_id, branch)
        problem = lacking(head, entries)
        if problem and self.heads.read(run_id, branch) == head:  # else an older export took the run's place meanwhile
            sound = newest_sound_checkpoint(entries, self.ref)
            raise JournalCorrupt(str(self.paths.journal(run_id, branch)), problem, sound)
        return entries

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        """See Store.sum_at."""
        return self.journals.sum_at(run_id, branch, seq)

    def touched(self, run_id: str, branch: str) -> float:
        """See Store.touched."""
        return self.journals.touched(run_id, branch)

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        """See Store.rewrite."""
        path = self.paths.journal(run_id, branch)
        if not path.exists():
            raise no_branch(run_id, branch, own[-1].seq if own else 0)
        with self._locked(run_id):
            there, _ = self.journals.scan(run_id, branch)
            found, forks = [(entry.seq, entry.seal) for entry in there], self.branches(run_id)
            check_rewrite(self.location, run_id, branch, own, entries, found=found, forks=forks)
            self.files.make(
                self.files.amiss(there)
            )  # what is compacted does not tell any more which files were dropped
            touched = self.touched(run_id, branch)
            disk.replace(path, lines(entries))
            disk.touch(path, touched)  # compaction is no sign of life
            if tail := self._tails.get((run_id, branch)):
                now = Tail.of(entries, len(lines(entries)))
                self._tails[run_id, branch] = replace(tail, offset=now.offset, mark=now.mark)

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        """See Store.remove."""
        directory = self.paths.run(run_id)
        if not directory.is_dir():  # somebody was faster
            branch = next(iter(heads), "main")
            raise no_branch(run_id, branch, heads.get(branch, (0, ""))[0])
        with self._locked(run_id):
            journals = {info.branch: self.journals.scan(run_id, info.branch)[0] for info in self.branches(run_id)}
            check_remove(run_id, dict(heads), {b: (es[-1].seq, es[-1].sum) for b, es in journals.items()})
            self.heads.remove(run_id)
            named = [file for entries in journals.values() for file in self.files.paths(entries).values()]
            self.files.remove([file for file in named if file.exists()])
            gone = directory.with_name(f"~{new_id()}")
            disk.touch(directory, time.time())  # what is left of it if this is cut is as old as this, not as the run
            disk.rename(directory, gone)  # under which nobody looks for it
            for key in [key for key in self._tails if key[0] == run_id]:
                del self._tails[key]
        disk.remove_directory(gone)

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        """See Store.branches."""
        return self.journals.branches(run_id)

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        """See Store.places."""
        return self.files.listed(part, limit, before)

    def ref(self, checkpoint: CheckpointRecord) -> str:
        """The path of the checkpoint's file."""
        return str(self.files.path(checkpoint))

    def salvage(self, *, repair: bool) -> AbstractContextManager[Salvage | None]:
        """See Salvageable."""
        parts = (self.paths, self.heads, self.files, self.journals)
        return contextlib.nullcontext(json_salvage.JsonSalvage(*parts, repair=repair))

    def close(self) -> None:
        """Nothing is held open between writes."""

    def check_file(self, path: Path) -> CheckpointInfo:
        """The checkpoint that a checkpoint file names, if its journal agrees. Raises CheckpointMismatch.

        Only what the journal says of this checkpoint is verified here; the whole is when it is read.
        """
        info, document = load(path)
        entry, first = self.journals.naming_entry(info)
        if (entry is None or first is None) and not path.exists():
            raise RefError(str(path), "does not exist any more")  # pruned while it was looked at
        if entry is None or first is None:
            sound = newest_sound_checkpoint(self.journals.scan(info.run_id, info.branch)[0], self.ref)
            raise CheckpointMismatch(str(path), "it points beyond its journal, or the journal is gone", sound)
        if is_of_another(path, info) or json.loads(self.files.document(first.commit["run"], entry)) != document:
            problem = (
                f"it was changed after it was written. Its journal is sound: kick off with "
                f"run_id={info.run_id!r}, or delete this file and it is made again"
            )
            entries, _ = self.journals.scan(info.run_id, info.branch)
            sound = newest_sound_checkpoint([e for e in entries if e.seq != entry.seq], self.ref)
            raise CheckpointMismatch(str(path), problem, sound)
        return info

    def _locked(self, *run_ids: str) -> AbstractContextManager[None]:
        """Keep all others from writing to these runs."""
        return disk.locked(map(self.paths.lock, run_ids))

    def _begins(self, commit: Commit) -> bool:
        """Whether a commit makes a branch that is not there."""
        return commit.run is not None and not self.paths.journal(commit.run_id, commit.branch).exists()

    def _go_on(self, commits: Sequence[Commit]) -> None:
        """Append to journals that are there."""
        heads, tails, changes = dict[Key, Head](), dict[Key, Tail](), Changes()
        with disk.SyncBatch() as batch:
            lacked = list[Sequence[Entry]]()
            for commit in commits:  # all of them before anything is written
                key = (commit.run_id, commit.branch)
                if key not in tails:
                    tails[key] = self._kept(key) or self._looked_up(commit, changes, batch)
                head = heads.get(key) or (tails[key].seq, tails[key].sum)
                rest = commit.beyond(head)
                if rest is None:
                    self._tails.pop(key, None)
                    raise BranchConflictError(*key, expected=commit.after, found=head[0])
                heads[key] = commit.head
                lacked.append(rest)
            for commit, missing in zip(commits, lacked, strict=True):
                key = (commit.run_id, commit.branch)
                try:
                    tails[key] = self._write(commit, tails[key], missing, batch)
                except FileExistsError as error:
                    raise BranchConflictError(*key, expected=commit.after, found="a later commit") from error
        self._settle([(commit, tails[commit.run_id, commit.branch]) for commit in commits], changes)

    def _kept(self, key: Key) -> Tail | None:
        """The known tail of a journal, if that still ends so: others may have written to it, or compacted it."""
        tail = self._tails.get(key)
        return tail if tail and self.journals.ends_at(*key, tail.offset, tail.mark) else None

    def _looked_up(self, commit: Commit, changes: Changes, batch: disk.SyncBatch) -> Tail:
        """Read the tail of a journal. What its last writer left undone is added to `changes`, and synced."""
        entries, offset = self.journals.scan(commit.run_id, commit.branch)
        if not entries:
            raise self._gone(commit)
        left = self.files.amiss(entries)
        changes.made |= left.made
        changes.gone += left.gone
        path = self.paths.journal(commit.run_id, commit.branch)
        while path != self.paths.journals:  # whoever made these names may not have come to sync them
            path = path.parent
            batch.sync_directory(path)
        return Tail.of(entries, offset)

    def _gone(self, commit: Commit) -> OSError | BranchConflictError:
        """What to raise for a journal that is not there: it was deleted, or the whole location was taken away."""
        key = (commit.run_id, commit.branch)
        if key in self._tails and _identity(self.paths.journals) != self._claimed_in:
            where = self.paths.journal(*key)
            return OSError(f"{where} is gone: it was deleted or moved while a run was at work")
        return no_branch(*key, commit.after)

    def _write(self, commit: Commit, tail: Tail, rest: Sequence[Entry], batch: disk.SyncBatch) -> Tail:
        """Write what a journal lacks of a commit. Returns where it ends then."""
        path, data = self.paths.journal(commit.run_id, commit.branch), lines(rest)
        if not commit.entries:
            disk.touch(path, committed_at(commit))
            return tail
        if not data:  # all of it was written before, by a try that failed, perhaps without being synced
            batch.sync(batch.hold(path, os.O_RDWR), path)
            return tail

        def torn(beyond: bytes) -> bool:
            return is_torn(beyond, tail.offset) and not follows(beyond, tail.sum)

        disk.append(path, data, at=tail.offset, torn=torn, mark=tail.mark, batch=batch)
        return tail.after(rest)

    def _begin(self, commit: Commit) -> None:
        """Make a branch of a run that is there; a fork while its base is."""
        base = commit.run.get("base") if commit.run else None
        if base and self.sum_at(commit.run_id, base["branch"], base["seq"]) != base["sum"]:
            raise no_base(commit, base)
        path, data = self.paths.journal(commit.run_id, commit.branch), lines(commit.entries)
        disk.make_directory(path.parent)
        disk.replace(path, data)
        self._settle([(commit, Tail.of(commit.entries, len(data)))], Changes())

    def _create(self, runs: Sequence[Sequence[Commit]]) -> None:
        """Make runs that are not there: their journals are written aside, and those of a run appear all at once."""
        if not runs:
            return
        staged = {f"~{new_id()}": run for run in runs}
        try:
            with disk.SyncBatch() as batch:
                for name, run in staged.items():
                    self._stage(name, run, batch)
            for run in runs:  # of a journal that was deleted by hand
                self.heads.remove(run[0].run_id)
            with disk.SyncBatch() as batch:
                for name, run in staged.items():
                    disk.rename(self.paths.journals / name, self.paths.run(run[0].run_id), batch=batch)
        except OSError:
            for name in staged:
                with contextlib.suppress(OSError):  # then the doctor finds it
                    disk.remove_directory(self.paths.journals / name)
            raise
        made = [commit for run in runs for commit in run]
        self._settle([(commit, Tail.of(commit.entries, len(lines(commit.entries)))) for commit in made], Changes())

    def _stage(self, name: str, run: Sequence[Commit], batch: disk.SyncBatch) -> None:
        directory = self.paths.run(run[0].run_id)
        for commit in run:
            path = self.paths.journal(commit.run_id, commit.branch)
            path = self.paths.journals / name / path.relative_to(directory)
            disk.make_directory(path.parent, batch=batch)
            disk.append(path, lines(commit.entries), at=0, torn=lambda tail: True, batch=batch)
            disk.touch(path, committed_at(commit))

    def _settle(self, written: Sequence[tuple[Commit, Tail]], changes: Changes) -> None:
        """Make and remove the checkpoint files that commits are about, and keep the tails of branches that are claimed.

        All of their entries are looked at, as those that a try before this one wrote may have no files yet.
        """
        tails = dict(self._tails)
        for commit, tail in written:
            key = (commit.run_id, commit.branch)
            claimed, files = key in tails, self._follow(commit, tail, tails.get(key), changes)
            tails.pop(key, None)
            if stays_claimed(commit, claimed):
                tails[key] = replace(tail, files=files)
        self.files.make(changes)
        for commit, tail in written:
            if named := [entry for entry in commit.entries if "place" in entry.commit]:
                self.heads.write(commit.run_id, commit.branch, tail.begun, named[-1])
        if tails and not self._tails:
            self._claimed_in = _identity(self.paths.journals)
        self._tails = tails

    def _follow(self, commit: Commit, tail: Tail, known: Tail | None, changes: Changes) -> Mapping[str, Path] | None:
        """Note the checkpoints that a commit names and drops. Returns the files of the branch, if they are known."""
        dropped = {gone for entry in commit.entries for gone, _ in entry.commit.get("drops", ())}
        named = [entry for entry in commit.entries if "place" in entry.commit]
        changes.made |= {self.files.path(e.commit["place"]): self.files.document(tail.run, e) for e in named}
        files = known.files if known and known.begun == tail.begun else None
        if files is None and not dropped:
            return None
        if files is None:
            files = self.files.paths(self.journals.scan(commit.run_id, commit.branch)[0])
        files = {**files, **self.files.paths(named)}
        changes.gone += [files[gone] for gone in dropped if gone in files]
        return {identifier: file for identifier, file in files.items() if identifier not in dropped}

    def _make(self) -> None:
        """Make the location. What is ours is kept out of version control; what is not is left alone."""
        journals = self.paths.journals
        if journals.is_dir():
            return
        ours = not self.paths.root.is_dir() or not any(self.paths.root.iterdir())
        disk.make_directory(journals)
        for directory in (self.paths.root if ours else None, journals):
            if directory and not (directory / ".gitignore").exists():
                disk.replace(directory / ".gitignore", b"*\n")


def _is_free(directory: Path) -> bool:
    """Whether a run may be made here. A directory that was made and never filled is in nobody's way."""
    if directory.is_dir() and not any(directory.iterdir()):
        disk.remove_directory(directory)
    return not directory.exists()


def _identity(directory: Path) -> tuple[int, int] | None:
    """Names a directory, whatever its path; None if there is none."""
    with contextlib.suppress(OSError):
        found = directory.stat()
        return found.st_dev, found.st_ino
    return None
