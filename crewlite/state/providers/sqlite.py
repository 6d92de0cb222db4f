"""Journals in one SQLite database: a row for each entry, and a small row for each checkpoint as an index.

WAL, synchronous=FULL, one connection that writes; runs that commit at the same time share a transaction. The SQL works
with SQLite 3.35.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewlite.errors import BranchConflictError, JournalCorrupt, SchemaTooNew, StoreUnusable
from crewlite.lazy import lazy, sqlite3
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry, Head, InvalidEntry, parse, unseal
from crewlite.state.format.rewinds import Ranges, Rewound, abandoned, is_abandoned
from crewlite.state.providers import locations, reading, writing
from crewlite.state.providers.base import BranchInfo, BranchKey, CheckpointInfo, Commit, End
from crewlite.state.providers.database_files import SUFFIXES
from crewlite.state.providers.sqlite_database import (
    MAY_REWIND,
    PUT_CHECKPOINT,
    Database,
    ResultRows,
    checkpoint_row,
    problem_with_file,
    row_digest,
)
from crewlite.system import disk
from crewlite.texts.logs import logger

if TYPE_CHECKING:
    from crewlite.state.providers.salvage import Salvage

sqlite_salvage = lazy("crewlite.state.providers.sqlite_salvage")  # only the doctor needs it

log = logger("crewlite.state")
_DEFAULT = ".checkpoints"
"""The default location, which is the name of a directory for JsonProvider."""
_ORPHANS = (  # counts branches with entries and no row, with one index lookup for each branch instead of each entry
    "WITH RECURSIVE known(id) AS (SELECT min(branch_id) FROM entry UNION "
    "SELECT (SELECT min(branch_id) FROM entry WHERE branch_id > known.id) FROM known WHERE known.id IS NOT NULL) "
    "SELECT count(*) FROM known WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM branch)"
)
_REWINDS = (
    "SELECT run_id, name, body FROM entry JOIN branch ON branch_id = branch.id "
    f"WHERE {MAY_REWIND} ORDER BY branch_id, entry.seq"
)


_LAST = (
    "SELECT run_id, name, head, body, sum FROM branch JOIN entry ON branch_id = id AND entry.seq > branch.seq - ? "
    "ORDER BY branch_id, entry.seq DESC"
)


class SqliteProvider:
    """One database file for all runs of a location. For the default location, that is `./.checkpoints.db`."""

    name = "sqlite"
    named_by_location = True

    def open(self, location: str) -> SqliteStore:
        """Open a database. The first write creates it (mode 0600). Raises StoreUnusable."""
        path = locations.absolute(location)
        if path.is_dir():
            hint = "SqliteProvider wants a database file: pass JsonProvider()"
            if location.lower().endswith(SUFFIXES):
                hint = "a name that ends like this is that of a database: rename the directory"
            raise StoreUnusable(location, f"is a directory, and {hint}")
        path = file_at(location)
        try:
            if path.is_file() and path.stat().st_size and (problem := problem_with_file(path)) and path.exists():
                raise StoreUnusable(location, problem)
            disk.make_directory(path.parent)
            return SqliteStore(path)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, StoreUnusable):
                raise
            raise StoreUnusable(location, f"cannot be used ({error}); choose another location") from error

    def exists(self, location: str) -> bool:
        """Return whether the database exists, without creating it."""
        return locations.exists(file_at(location))


def file_at(location: str) -> Path:
    """Return the database file of a location.

    That is the location itself; with `.db` appended for the default location, and for a location that does not exist
    where an earlier release has created such a file.
    """
    path = locations.absolute(location)
    beside = path.with_name(f"{path.name}.db")
    earlier = not path.suffix and not os.path.exists(path) and os.path.exists(beside)
    return beside if earlier or path.name == _DEFAULT else path


class SqliteStore:
    """The store of a database."""

    def __init__(self, path: Path) -> None:
        self.location = str(path)
        self._database = Database(path)
        self.results = ResultRows(self._database)

    def append(self, commits: Sequence[Commit]) -> None:
        with self._database.writing():
            for commit in commits:
                self._append(commit)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        where = f"{self.location}, run {run_id}, branch {branch}"
        rows = self._database.query(
            "SELECT branch.seq, head, entry.seq, sum, body FROM branch LEFT JOIN entry ON branch_id = id "
            "WHERE run_id=? AND name=? ORDER BY entry.seq",
            (run_id, branch),
        )
        records = ((body, seal, seq) for *_, seq, seal, body in rows)
        found, problem = reading.sound_part(records, run_id, branch, where)
        at = rows[len(found)][2] if problem else None
        if not problem and rows and rows[0][:2] != found[-1].head:
            problem, at = "the commits after it are gone", found[-1].seq
        if problem:
            sound = reading.newest_sound_checkpoint(found, self.ref)
            raise JournalCorrupt(f"{where}, commit {at}", problem, sound, self.location)
        return found

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        return self._sum_at(self._database.query, run_id, branch, seq)

    def _sum_at(self, ask: Callable[..., Iterable[Any]], run_id: str, branch: str, seq: int) -> str | None:
        found = ask(
            "SELECT entry.seq, sum, body FROM entry JOIN branch ON branch_id = id "
            "WHERE run_id=? AND name=? AND entry.seq<=? ORDER BY entry.seq DESC LIMIT 2",
            (run_id, branch, seq),
        )
        rows = list(found)
        if not rows or rows[0][0] != seq:
            return None
        where = f"{self.location}, run {run_id}, branch {branch}, commit {seq}"
        try:
            after = reading.chained_sum(rows[1][2], rows[1][1]) if len(rows) == 2 else None
            return unseal(rows[0][2], rows[0][1], after=after, where=where).sum
        except InvalidEntry as problem:
            raise JournalCorrupt(where, str(problem), None, self.location) from None

    def mentions(self, run_id: str, branch: str, *parts: bytes) -> bool:
        rows = self._database.query(
            "SELECT CAST(body AS BLOB) FROM entry JOIN branch ON branch_id = id WHERE run_id=? AND name=?",
            (run_id, branch),
        )
        return any(part in body for (body,) in rows if body for part in parts)

    def ended(self, branches: Iterable[BranchKey]) -> dict[BranchKey, End]:
        wanted = set(branches)
        return self._database.read(lambda db: _ends(db.execute(_LAST, (reading.LAST,)), wanted), {})

    def touched(self, run_id: str, branch: str) -> float:
        rows = self._database.peek("SELECT touched FROM branch WHERE run_id=? AND name=?", (run_id, branch))
        return float(rows[0][0]) if rows and isinstance(rows[0][0], int | float) else 0.0

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        with self._database.writing():
            rows = self._database.ask(
                "SELECT entry.seq, sum, id FROM entry JOIN branch ON branch_id = id "
                "WHERE run_id=? AND name=? ORDER BY entry.seq",
                (run_id, branch),
            ).fetchall()
            found, forks = [row[:2] for row in rows], self._branches(self._database.ask, run_id)
            writing.check_rewrite(self.location, run_id, branch, own, entries, found=found, forks=forks)
            number = rows[0][2]
            self._database.run("DELETE FROM entry WHERE branch_id=?", (number,))
            for entry in entries:
                self._insert(number, entry)
        self._database.give_back()

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        with self._database.writing():
            rows = self._database.ask("SELECT name, seq, head FROM branch WHERE run_id=?", (run_id,)).fetchall()
            writing.check_remove(run_id, heads, {name: (seq, head) for name, seq, head in rows})
            self._database.run("DELETE FROM place WHERE branch_id IN (SELECT id FROM branch WHERE run_id=?)", (run_id,))
            self._database.run("DELETE FROM entry WHERE branch_id IN (SELECT id FROM branch WHERE run_id=?)", (run_id,))
            self._database.run("DELETE FROM branch WHERE run_id=?", (run_id,))
            if self._set_aside(run_id):
                self._database.run("DELETE FROM aside WHERE run_id=?", (run_id,))
        self._database.give_back()

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        return self._database.read(lambda db: self._branches(db.execute, run_id), [])

    def named(self, beginning: str) -> list[str]:
        rows = self._database.query(
            "SELECT DISTINCT run_id FROM branch WHERE run_id >= ? AND run_id < ?",
            (beginning, f"{beginning}~"),  # ~ comes after all characters that an id may have
        )
        return [run_id for (run_id,) in rows]

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        asked = (
            "SELECT place.id, run_id, name, place.seq, parent_id, trigger, address, label, created_at, sum "
            "FROM place JOIN branch ON branch_id = branch.id "
            "WHERE place.id < ? AND (? = '' OR instr(place.id, ?) > 0) ORDER BY place.id DESC LIMIT ?",
            (before or "g", part, part, -1 if limit is None else limit),  # ids are hexadecimal: all come before "g"
        )
        nothing: tuple[list[Any], list[Any]] = ([], [])
        rows, rewinds = self._database.read(
            lambda db: (db.execute(*asked).fetchall(), db.execute(_REWINDS).fetchall()), nothing
        )
        ranges_of = _abandoned(rewinds)
        found = []
        for *row, total in rows:
            if total is not None and total != row_digest(row):
                log.warning("%s: the row of checkpoint %s was changed: left out of the list", self.location, row[0])
                continue
            info = CheckpointInfo(*row)
            ranges = ranges_of.get((info.run_id, info.branch), ())
            found.append(replace(info, abandoned=True) if is_abandoned(info.seq, ranges) else info)
        return found

    def ref(self, checkpoint: CheckpointRecord) -> str:
        return f"{self.location}#{checkpoint['id']}"

    def salvage(self, *, repair: bool) -> AbstractContextManager[Salvage | None]:
        """Open the location for the doctor; return None if nothing is stored there."""
        opened: AbstractContextManager[Salvage | None] = sqlite_salvage.salvaged(Path(self.location), repair=repair)
        return opened

    def hold(self) -> None:
        self._database.readers.holds = True

    def close(self) -> None:
        self._database.readers.holds = False
        self._database.close()

    def _append(self, commit: Commit) -> None:
        number = self._move(commit)
        if number is None:
            self._catch_up(commit)
            return
        for entry in commit.entries:
            self._insert(number, entry)
            for gone, _ in entry.commit.get("drops", ()):
                self._database.run("DELETE FROM place WHERE id=?", (gone,))
            if checkpoint := entry.commit.get("place"):
                self._database.run(PUT_CHECKPOINT, (number, *checkpoint_row(*commit.key, checkpoint)))

    def _insert(self, number: int, entry: Entry) -> None:
        row = (number, entry.seq, entry.seal, entry.body)
        self._database.run("INSERT INTO entry (branch_id, seq, sum, body) VALUES (?,?,?,?)", row)

    def _catch_up(self, commit: Commit) -> None:
        """Append the rest of a commit whose first entries are stored. Raises BranchConflictError for any other head."""
        key = commit.key
        head = self._database.ask("SELECT seq, head FROM branch WHERE run_id=? AND name=?", key).fetchone()
        lacking = commit.beyond(head)
        if head is None:
            raise writing.no_branch(*key, commit.after)
        if lacking is None:
            raise BranchConflictError(*key, expected=commit.after, found=head[0])
        if lacking:
            self._append(Commit(*key, head[0], head[1], lacking))

    def _move(self, commit: Commit) -> int | None:
        """Move a head, or create a branch, by compare-and-set. Returns its row id; None if the head is another."""
        key = commit.key
        if run := commit.run:
            if base := run.get("base"):
                ask, there = self._database.ask, (commit.run_id, base["branch"])
                first = "SELECT min(entry.seq) FROM entry JOIN branch ON branch_id = id WHERE run_id=? AND name=?"
                sum_at = partial(self._sum_at, ask, *there)
                writing.check_base(commit, base, sum_at, lambda: ask(first, there).fetchone()[0])
            row = self._database.run(
                "INSERT INTO branch (id, run_id, name, uid, seq, head, touched) VALUES (?,?,?,?,?,?,?) "
                "ON CONFLICT (run_id, name) DO NOTHING",
                (self._next_number(*key), *key, run["uid"], *commit.head, writing.committed_at(commit)),
            )
            if row.rowcount and writing.begins_from_nothing(commit) and commit.branch in self._set_aside(commit.run_id):
                warning = "%s: commits of run %r were set aside by the doctor: it begins anew, and pays again for them"
                log.warning(warning, self.location, commit.run_id)
            return row.lastrowid if row.rowcount else None
        moved = self._database.run(
            "UPDATE branch SET seq=?, head=?, touched=? WHERE run_id=? AND name=? AND seq=? AND head=? RETURNING id",
            (*commit.head, writing.committed_at(commit), *key, commit.after, commit.after_sum),
        ).fetchall()
        return moved[0][0] if moved else None

    def _set_aside(self, run_id: str) -> set[str]:
        """Return the branches of a run of which the doctor has set commits aside: see sqlite_salvage."""
        if not self._database.ask("SELECT 1 FROM sqlite_master WHERE name='aside'").fetchone():
            return set()
        return {row[0] for row in self._database.ask("SELECT DISTINCT branch FROM aside WHERE run_id=?", (run_id,))}

    def _next_number(self, run_id: str, branch: str) -> int:
        """Return the number of a new branch: higher than all, also those of commits whose branch has no row any more.

        Raises JournalCorrupt if this very branch has such commits, with a number higher than those of all rows.
        """
        last: int = self._database.ask("SELECT ifnull(max(id), 0) FROM branch").fetchone()[0]
        orphans = self._database.ask(  # a number beyond 9e18 is damage, and leaves none for the next branch
            "SELECT branch_id, sum, body, min(seq) FROM entry WHERE branch_id > ? AND branch_id < 9e18 "
            "GROUP BY branch_id ORDER BY branch_id",
            (last,),
        )
        for number, seal, body, _ in orphans:
            last = int(number)
            with contextlib.suppress(InvalidEntry, SchemaTooNew):
                run = unseal(body, seal, after=None, where=self.location).commit.get("run")
                if run and (run["run_id"], run["branch"]) == (run_id, branch):
                    where = f"{self.location}, run {run_id}, branch {branch}"
                    problem = f"its commits are stored, and its row in the table of branches, with id {number}, is gone"
                    raise JournalCorrupt(where, problem, None, self.location)
        return last + 1

    def _branches(self, ask: Callable[..., sqlite3.Cursor], run_id: str | None) -> list[BranchInfo]:
        rows = ask(
            "SELECT run_id, name, sum, body FROM branch LEFT JOIN entry ON branch_id = id AND entry.seq = "
            "(SELECT min(seq) FROM entry WHERE branch_id = branch.id) WHERE ? IS NULL OR run_id = ?",
            (run_id, run_id),
        ).fetchall()
        if run_id is None and (lost := ask(_ORPHANS).fetchone()[0]):
            log.warning("%s holds commits of %d branches that are gone: left out of the list", self.location, lost)
        found = []
        for run, name, seal, body in rows:
            where = f"{self.location}, run {run}, branch {name}"
            try:
                found.append(reading.verified_branch_info(body, seal, run, name, where))
            except (InvalidEntry, SchemaTooNew) as problem:
                if run_id is not None:
                    raise reading.unreadable(problem, where, self.location) from problem
                log.warning("%s begins with a commit that cannot be read (%s): left out of the list", where, problem)
        return reading.in_order(found)


def _abandoned(rows: Sequence[tuple[str, str, bytes]]) -> dict[BranchKey, Ranges]:
    """Return the abandoned ranges by (run_id, branch). `rows`: (run_id, branch, body) of commits that may rewind."""
    found = dict[BranchKey, list[Rewound]]()
    for run_id, branch, body in rows:
        with contextlib.suppress(InvalidEntry, LookupError, TypeError, ValueError):  # a damaged one: the doctor says so
            commit = parse(body)
            number, back = commit.get("folded", {}).get("first", commit["seq"]), commit.get("rewind")
            if back:
                found.setdefault((run_id, branch), []).append((int(number), int(back["seq"])))
    return {branch: abandoned(rewinds) for branch, rewinds in found.items()}


def _ends(rows: Iterable[Any], wanted: Collection[BranchKey]) -> dict[BranchKey, End]:
    """Return how these branches ended, from the last rows of each, newest first."""
    ends = dict[BranchKey, End]()
    for (run_id, branch, head), last in groupby(rows, key=itemgetter(0, 1, 2)):
        if (run_id, branch) in wanted and (end := reading.end_of([row[3:] for row in last], head)):
            ends[run_id, branch] = end
    return ends
