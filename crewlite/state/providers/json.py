"""Journals as lines of JSON, and one small file per checkpoint that people can read.

    location/journal/<run>/<branch>.jsonl          the truth, one line a commit
    location/<timestamp>_<id>.json                 a view of one place: lineage, what triggered it, where in the journal
    location/cache/<key>.json                      a result of a step that other runs may reuse

The journal is written first. A missing file is made again from it; a file that it contradicts is refused. The cache is
of no run.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crewlite import disk
from crewlite.errors import BranchConflictError, CheckpointMismatch, RefError, StoreUnusable
from crewlite.ids import new_id
from crewlite.state.entry import Entry
from crewlite.state.providers.base import BranchInfo, Commit, Head, PlaceInfo
from crewlite.state.providers.json_journals import JournalFiles, follows, is_torn
from crewlite.state.providers.json_places import PlaceFiles, is_of_another, load
from crewlite.state.providers.json_results import ResultFiles
from crewlite.state.providers.reading import (
    check_bases,
    check_remove,
    check_rewrite,
    live_places,
    newest_sound_place,
    told_at,
)

_SEALED = 40  # bytes of a line that hold its seal


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
    last: Entry

    @property
    def mark(self) -> tuple[int, bytes]:
        """What stands where in a journal that ends so: its last seal. One that was folded may be as long by chance."""
        return self.offset - len(self.last.line) - 1, self.last.line[:_SEALED]


class JsonStore:
    """An opened directory."""

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self._root = root
        self._places = PlaceFiles(root)
        self._journals = JournalFiles(root, self.ref)
        self._results = ResultFiles(root, self._make)
        self._ends: dict[tuple[str, str], _End] = {}
        self._read: dict[tuple[str, str], list[Entry]] = {}
        """Journals that were read and not yet written to: first and named entries."""
        self._overtaken: dict[tuple[str, str], _End] = {}
        """Where journals ended, as far as this store knew, to which another has written since."""
        self._known: set[tuple[str, str]] = set()
        """Branches that this store has seen on disk."""

    def append(self, commits: Sequence[Commit]) -> None:
        """See Store.append."""
        begun = {commit.run_id for commit in commits if commit.run}
        missing = {run_id for run_id in begun if not self._journals.directory(run_id).exists()}
        others = [commit for commit in commits if commit.run_id not in missing]
        new = [[commit for commit in commits if commit.run_id == run_id] for run_id in missing]
        for run in new:
            check_bases(run)
        try:
            for commit in self._go_on(others):
                self._append(commit)
            self._create(new)
        finally:
            self._places.settle()

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """See Store.read."""
        entries, end = self._scan(run_id, branch)
        if end:
            self._ends[run_id, branch] = end
        return entries

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        """See Store.sum_at."""
        return self._journals.sum_at(run_id, branch, seq)

    def touched(self, run_id: str, branch: str) -> float:
        """See Store.touched."""
        return self._journals.touched(run_id, branch)

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        """See Store.rewrite."""
        path = self._journals.path(run_id, branch)
        try:
            with disk.held(path) as file:
                there, _ = self._journals.sound(run_id, branch, file.read())
                found, forks = [(entry.seq, entry.seal) for entry in there], self.branches(run_id)
                check_rewrite(self.location, run_id, branch, own, entries, found=found, forks=forks)
                self._ends.pop((run_id, branch), None)
                touched = self.touched(run_id, branch)
                disk.replace(path, _lines(entries))
                disk.touch(path, touched)  # to tidy up is no sign of life
        except FileNotFoundError:
            raise BranchConflictError(run_id, branch, expected=own[-1].seq if own else 0, found="its end") from None

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        """See Store.remove."""
        try:
            gone = self._take_away(run_id, heads)
        except FileNotFoundError:  # somebody was faster
            branch = next(iter(heads), "main")
            raise BranchConflictError(run_id, branch, expected=heads.get(branch, (0, ""))[0], found="its end") from None
        disk.remove_directory(gone)
        self._known -= {(run_id, branch) for branch in heads}
        for known in (self._ends, self._read, self._overtaken):
            for branch in heads:
                known.pop((run_id, branch), None)

    def _take_away(self, run_id: str, heads: Mapping[str, Head]) -> Path:
        """Give a run another name, under which nobody looks for it."""
        directory = self._journals.directory(run_id)
        branches = sorted(info.branch for info in self.branches(run_id))
        with contextlib.ExitStack() as stack:
            held = {branch: stack.enter_context(disk.held(self._journals.path(run_id, branch))) for branch in branches}
            journals = {branch: self._journals.sound(run_id, branch, file.read())[0] for branch, file in held.items()}
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
        return self._journals.branches(run_id)

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[PlaceInfo]:
        """See Store.places."""
        return self._places.listed(part, limit, before)

    def ref(self, place: dict[str, Any]) -> str:
        """The path of the place's file."""
        return str(self._places.path(place))

    def recall(self, key: str) -> bytes | None:
        """See Store.recall."""
        return self._results.recall(key)

    def remember(self, key: str, data: bytes) -> None:
        """See Store.remember."""
        self._results.remember(key, data)

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        """See Store.forget."""
        return self._results.forget(before, dry_run=dry_run)

    def close(self) -> None:
        """Nothing is held open between writes."""

    def check_file(self, path: Path) -> PlaceInfo:
        """The place that a checkpoint file names, if its journal agrees. Raises CheckpointMismatch.

        Only what the journal says of this place is verified here; the whole is when it is read.
        """
        info, document = load(path)
        entry, first = self._journals.named(info)
        if (entry is None or first is None) and not path.exists():
            raise RefError(str(path), "does not exist any more")  # pruned while it was looked at
        if entry is None or first is None:
            sound = newest_sound_place(self._journals.scan(info.run_id, info.branch)[0], self.ref)
            raise CheckpointMismatch(str(path), "it points beyond its journal, or the journal is gone", sound)
        if is_of_another(path, info) or json.loads(self._places.document(first, entry)) != document:
            problem = (
                f"it was changed after it was written. Its journal is sound: kick off with "
                f"run_id={info.run_id!r}, or delete this file and it is made again"
            )
            entries, _ = self._journals.scan(info.run_id, info.branch)
            sound = newest_sound_place([e for e in entries if e.seq != entry.seq], self.ref)
            raise CheckpointMismatch(str(path), problem, sound)
        return info

    def _go_on(self, commits: Sequence[Commit]) -> list[Commit]:
        """Append to the journals that end where this store left them. Returns the commits that found it otherwise.

        Whoever locks several journals does so in the order of their names: so no two ever wait for each other.
        """
        late, written = list[Commit](), []
        with disk.Together() as together:
            for commit in sorted(commits, key=lambda commit: (commit.run_id, commit.branch)):
                key = (commit.run_id, commit.branch)
                end = self._ends.pop(key, None)
                if end is None or (end.seq, end.sum) != (commit.after, commit.after_sum):
                    self._overtaken |= {key: end} if end else {}
                    late.append(commit)
                    continue
                try:
                    written.append((commit, end, self._write(commit, end, commit.entries, together)))
                except (FileExistsError, FileNotFoundError):  # another went on, or folded it, or our last try did
                    self._overtaken[key] = end
                    late.append(commit)
        for commit, end, offset in written:
            self._wrote(commit, end, offset)
        return [commit for commit in commits if commit in late]  # in the order given: a fork comes after its base

    def _append(self, commit: Commit) -> None:
        key = (commit.run_id, commit.branch)
        end = self._end(*key)
        if end is None and key in self._known:
            raise OSError(f"{self._journals.path(*key)} is gone: it was deleted or moved while a run was at work")
        lacking = commit.beyond((end.seq, end.sum) if end else None)
        if lacking is None:
            self._ends |= {key: end} if end else {}
            raise BranchConflictError(*key, expected=commit.after, found=end.seq if end else "its end")
        try:
            if end is None:
                self._begin(commit)
            else:
                with disk.Together() as together:
                    self._sync_names(self._journals.path(*key), together)
                    offset = self._write(commit, end, lacking, together)
                self._wrote(commit, end, offset)
        except FileExistsError as error:
            raise BranchConflictError(*key, expected=commit.after, found="a later one") from error

    def _end(self, run_id: str, branch: str) -> _End | None:
        """Where a journal ends now; None if there is none. What this store has read before is not read again."""
        known = self._overtaken.pop((run_id, branch), None)
        if known and (more := self._journals.more(run_id, branch, known.last, known.offset)):
            last, offset = more
            return _End(last.seq, last.sum, offset, known.first, last)
        return self._scan(run_id, branch)[1]

    def _scan(self, run_id: str, branch: str) -> tuple[list[Entry], _End | None]:
        """A branch's entries, and where its journal ends; None if there is none."""
        entries, offset = self._journals.scan(run_id, branch)
        if not entries:
            return [], None
        self._read[run_id, branch] = [entry for entry in entries if _names(entry)]
        self._known.add((run_id, branch))
        return entries, _End(entries[-1].seq, entries[-1].sum, offset, entries[0], entries[-1])

    def _sync_names(self, path: Path, together: disk.Together) -> None:
        """Have the names that lead to a journal synced: whoever made them may have failed, or been cut, before that."""
        while path != self._journals.root:
            path = path.parent
            together.sync_directory(path)

    def _begin(self, commit: Commit) -> None:
        """Make a branch; a fork while its base is held, so that nobody takes that away meanwhile."""
        assert commit.run
        path = self._journals.path(commit.run_id, commit.branch)
        disk.make_directory(path.parent)
        if base := commit.run.get("base"):
            try:
                with disk.held(self._journals.path(commit.run_id, base["branch"]), shared=True):
                    if self.sum_at(commit.run_id, base["branch"], base["seq"]) != base["sum"]:
                        raise FileNotFoundError
                    disk.create(path, _lines(commit.entries))
            except FileNotFoundError:
                gone = "a base that is gone"
                raise BranchConflictError(commit.run_id, commit.branch, expected=commit.after, found=gone) from None
        else:
            disk.create(path, _lines(commit.entries))
        self._wrote(commit, None, len(_lines(commit.entries)))

    def _write(self, commit: Commit, end: _End, lacking: Sequence[Entry], together: disk.Together) -> int:
        """Write what the journal, which ends at `end`, lacks of a commit. Returns where it ends then."""
        path = self._journals.path(commit.run_id, commit.branch)
        if not commit.entries:
            if path.stat().st_size != end.offset:
                raise FileExistsError(f"{path} goes on")
            disk.touch(path, told_at(commit))
            return end.offset
        data = _lines(lacking)
        if data:

            def torn(tail: bytes) -> bool:
                return is_torn(tail, end.offset) and not follows(tail, end.sum)

            disk.append(path, data, at=end.offset, torn=torn, mark=end.mark, together=together)
        else:  # all of it was written before, by a try that failed, perhaps without being synced
            together.sync(together.hold(path, os.O_RDWR), path)
        # only now: another thread may have read this journal for a fork of it, and heard of no drops since
        self._places.mend(self._read.pop((commit.run_id, commit.branch), []))
        return end.offset + len(data)

    def _wrote(self, commit: Commit, before: _End | None, offset: int) -> None:
        """What a journal has now goes into checkpoint files, and into what is known of its end."""
        first = before.first if before else commit.entries[0]
        last = commit.entries[-1] if commit.entries or before is None else before.last
        for entry in commit.entries:
            self._places.follow(first, entry)
        key = (commit.run_id, commit.branch)
        self._known.add(key)
        seq, total = commit.head
        self._ends[key] = _End(seq, total, offset, first, last)

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
                    disk.rename(self._journals.root / name, self._journals.directory(run[0].run_id), together=together)
        except OSError as error:
            for name in aside:
                with contextlib.suppress(OSError):  # then the doctor finds it
                    disk.remove_directory(self._journals.root / name)
            if len(runs) > 1 or not isinstance(error, FileExistsError):
                raise
            for commit in runs[0]:  # somebody else was faster
                self._append(commit)
            return
        for run in runs:
            for commit in run:
                self._wrote(commit, None, len(_lines(commit.entries)))

    def _set_aside(self, name: str, run: Sequence[Commit], together: disk.Together) -> None:
        for commit in run:
            path = self._journals.root / name / f"{commit.branch}.jsonl"
            disk.make_directory(path.parent, together=together)
            disk.append(path, _lines(commit.entries), at=0, torn=lambda tail: True, together=together)
            disk.touch(path, told_at(commit))

    def _make(self) -> None:
        """Make the location. What is ours is kept out of version control; what is not is left alone."""
        journals = self._journals.root
        if journals.is_dir():
            return
        ours = not self._root.is_dir() or not any(self._root.iterdir())
        disk.make_directory(journals)
        for place in (self._root if ours else None, journals):
            if place and not (place / ".gitignore").exists():
                disk.replace(place / ".gitignore", b"*\n")


def _names(entry: Entry) -> bool:
    """Whether an entry has a part in which checkpoint files there are."""
    return not entry.facts.keys().isdisjoint(("run", "place", "drops"))


def _lines(entries: Sequence[Entry]) -> bytes:
    return b"".join(entry.line + b"\n" for entry in entries)
