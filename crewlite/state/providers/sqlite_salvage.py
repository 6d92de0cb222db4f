"""The salvage of a database. Damaged rows move to the table `aside`, which nothing else reads.

Each run is checked and repaired in one transaction. A database that fails SQLite's own integrity check is not repaired.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from crewlite.errors import SchemaTooNew
from crewlite.ids import now
from crewlite.lazy import sqlite3
from crewlite.state.format.entry import SCHEMA, Entry
from crewlite.state.providers.reading import live_checkpoints
from crewlite.state.providers.salvage import Flaw, RawBranch, RawCommit, Unreadable, loosely
from crewlite.state.providers.sqlite_database import (
    COLUMNS,
    PUT_CHECKPOINT,
    checkpoint_row,
    not_read_now,
    transaction,
)
from crewlite.state.providers.sqlite_reading import as_text
from crewlite.system import disk
from crewlite.system.forked import between_forks
from crewlite.texts.wording import listed, number_of

Statement = tuple[str, Sequence[Any]]

_NAMED = 6  # rows that a finding names
_ANY = "SELECT 1 FROM entry WHERE branch_id=? LIMIT 1"
_MAKE: Statement = (
    "CREATE TABLE IF NOT EXISTS aside (at TEXT, why TEXT, run_id TEXT, branch TEXT, seq INTEGER, sum TEXT, body BLOB)",
    (),
)
_PUT = "INSERT INTO aside (at, why, run_id, branch, seq, sum, body) "
_QUOTED = " || char(10) || ".join(f"quote({name})" for name in COLUMNS)
_COPIED = f"{_PUT} SELECT ?, ?, ?, ?, seq, id, cast({_QUOTED} AS BLOB) FROM place"
_ENTRY_ASIDE = f"{_PUT} SELECT ?, ?, ?, ?, seq, sum, body FROM entry WHERE branch_id IS ? AND seq IS ?"


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of a branch. If `there` is False, the table has no such row, and this was derived from the entries."""

    id: int
    name: str
    uid: str
    seq: int
    head: str
    touched: float
    there: bool = True


class _SqliteSalvage:
    """One pass of the doctor over a database. `RawBranch.handle` is the `_Row` of the branch."""

    def __init__(self, path: Path, db: sqlite3.Connection, *, repair: bool) -> None:
        self._path, self._db, self._repair = path, db, repair
        self._version = db.execute("PRAGMA user_version").fetchone()[0]
        if self._version > SCHEMA:
            raise SchemaTooNew(str(path), self._version, SCHEMA)
        self._orphans: dict[str, list[_Row]] = {}
        """By run_id: branches that have entries and no row."""

    def runs(self) -> list[str]:
        if not self._version:
            return []
        if problem := self._problem():
            raise Unreadable(problem)
        for run_id, row in self._orphans_among("GROUP BY branch_id"):
            self._orphans.setdefault(run_id, []).append(row)
        runs = [row[0] for row in self._db.execute("SELECT DISTINCT run_id FROM branch ORDER BY run_id")]
        return list(dict.fromkeys([*runs, *self._orphans]))

    @contextlib.contextmanager
    def held(self, run_id: str) -> Iterator[None]:
        run, begin = (self._do, "BEGIN IMMEDIATE") if self._repair else (self._db.execute, "BEGIN")
        with transaction(self._db, run, begin):
            yield

    def branches(self, run_id: str) -> list[RawBranch]:
        query = "SELECT id, name, uid, seq, head, touched FROM branch WHERE run_id=? ORDER BY id"
        if known := self._orphans.pop(run_id, None):  # another repair may have moved them, and their ids may be reused
            again = [self._orphans_among("WHERE branch_id IS ? GROUP BY branch_id", (row.id,)) for row in known]
            self._orphans[run_id] = [row for rows in again for run, row in rows if run == run_id]
        lost = {row.id for rows in self._orphans.values() for row in rows}
        known_rows = (_Row(*row) for row in self._db.execute(query, (run_id,)))
        rows, orphaned = {row.name: row for row in known_rows if row.id not in lost}, list[_Row]()
        for orphan in self._orphans.get(run_id, ()):
            rival = rows.get(orphan.name)
            if orphan.name and not (rival and self._db.execute(_ANY, (rival.id,)).fetchone()):
                rows[orphan.name] = orphan
            else:
                orphaned.append(orphan)
        found = [self._raw(run_id, row, orphaned=True) for row in orphaned]
        return [*found, *(self._raw(run_id, row, orphaned=False) for row in rows.values())]

    def ending(self, raw: RawBranch, sound: Sequence[Entry], problem: str | None) -> tuple[str, str] | None:
        """Return (code, sentence) if the row of a branch does not name its last entry as its head; None otherwise."""
        row: _Row = raw.handle
        if problem or not sound or not row.there or (row.seq, row.head) == sound[-1].head:
            return None
        if isinstance(row.seq, int) and row.seq > sound[-1].seq:
            return "short_journal", f"the commits after {sound[-1].seq} are missing"
        return "stale_index", "its row does not name its last commit"

    def cut(self, raw: RawBranch, sound: Sequence[Entry], why: str) -> Callable[[], object]:
        number, aside = raw.handle.id, (now().isoformat(), why, *raw.key)
        statements = [_MAKE]
        for record in raw.records[len(sound) :]:
            statements.append((_ENTRY_ASIDE, (*aside, number, record.seq)))
            statements.append(("DELETE FROM entry WHERE branch_id IS ? AND seq IS ?", (number, record.seq)))
        if sound:
            statements.append(("UPDATE branch SET seq=?, head=? WHERE id=?", (*sound[-1].head, number)))
        else:
            statements.append(("DELETE FROM place WHERE branch_id=?", (number,)))
            statements.append(("DELETE FROM branch WHERE id=?", (number,)))
        return partial(self._run, statements)

    def quarantined(self, raw: RawBranch) -> str:
        return "set aside"

    def index(self, raw: RawBranch, sound: Sequence[Entry]) -> Flaw | None:
        row, last = raw.handle, sound[-1]
        wanted = [checkpoint_row(*raw.key, one) for one in live_checkpoints(sound)]
        there = self._db.execute(f"SELECT {', '.join(COLUMNS)} FROM place WHERE branch_id=?", (row.id,)).fetchall()
        statements = list[Statement]()
        if not row.there:
            touched = datetime.fromisoformat(last.commit["at"]).timestamp()
            made = (row.id, raw.run_id, row.name, row.uid, *last.head, touched)
            insert = "INSERT OR REPLACE INTO branch (id, run_id, name, uid, seq, head, touched) VALUES (?,?,?,?,?,?,?)"
            statements.append((insert, made))
        if wrong := set(wanted) ^ set(there):
            statements += self._quarantine_checkpoints("branch_id=?", (row.id,), *raw.key)
            statements += [(PUT_CHECKPOINT, (row.id, *one)) for one in wanted]
        if not statements:
            return None
        rows = [*([] if row.there else ["the branch itself"]), *sorted({f"checkpoint {one[0]}" for one in wrong})]
        problem = f"rows that are missing, were changed, or should not exist: {listed(rows, _NAMED)}"
        mend = partial(self._run, statements)
        return Flaw("stale_index", raw.where, problem, "written again", mend, raw.key)

    def strays(self) -> Generator[Flaw, None, None]:
        """Yield the rows of checkpoints whose branch does not exist, as one flaw."""
        if not self._version:
            return
        with self.held(""):
            kept = [str(row.id) for rows in self._orphans.values() for row in rows if type(row.id) is int]
            among = f"branch_id NOT IN (SELECT id FROM branch) AND branch_id NOT IN ({', '.join(kept)})"
            if number := self._db.execute(f"SELECT count(*) FROM place WHERE {among}").fetchone()[0]:
                problem = f"{number_of(number, 'row')} of checkpoints whose branch does not exist"
                mend = partial(self._run, self._quarantine_checkpoints(among, (), "", ""))
                yield Flaw("stale_index", str(self._path), problem, "set aside", mend)

    def _problem(self) -> str | None:
        """Return the problems that SQLite's integrity check finds, or the missing tables; None if all is well."""
        problems = [str(row[0]) for row in self._db.execute("PRAGMA integrity_check(5)")]
        if problems != ["ok"]:
            return "; ".join(problems).replace("\n", " ")
        tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        gone = sorted({"branch", "entry", "place"} - tables)
        return f"its tables {', '.join(gone)} are missing" if gone else None

    def _orphans_among(self, rows: str, parameters: Sequence[Any] = ()) -> list[tuple[str, _Row]]:
        """Return (run_id, branch) of branches with entries and no row, or with a row that contradicts the first entry.

        The run_id is that in the first entry; "" if it has none. `rows` ends the SQL query.
        """
        asked = self._db.execute(
            "SELECT branch_id, run_id, name, body, min(entry.seq) "
            f"FROM entry LEFT JOIN branch ON branch_id = id {rows}",
            parameters,
        )
        found = []
        for number, run_id, name, body, _ in asked:
            first = loosely(body) if type(number) is int else None
            run = first.get("run") if isinstance(first, dict) else None
            names = [str(run.get(key, "")) for key in ("run_id", "branch", "uid")] if isinstance(run, dict) else []
            if run_id is None or (names and names[:2] != [run_id, name]):
                own_run, own_name, uid = names or ["", "", ""]
                found.append((own_run, _Row(number, own_name, uid, 0, "", 0.0, there=False)))
        return found

    def _raw(self, run_id: str, row: _Row, *, orphaned: bool) -> RawBranch:
        where = f"{self._path}, branch {row.id}" if orphaned else f"{self._path}, run {run_id}, branch {row.name}"
        query = "SELECT sum, body, seq FROM entry WHERE branch_id IS ? ORDER BY seq"
        records = [RawCommit(*found) for found in self._db.execute(query, (row.id,))]
        return RawBranch(run_id, row.name, where, records, row.touched, row, orphaned)

    def _quarantine_checkpoints(self, among: str, given: Sequence[Any], run_id: str, branch: str) -> list[Statement]:
        aside = (now().isoformat(), "not as its journal says", run_id, branch)
        return [_MAKE, (f"{_COPIED} WHERE {among}", (*aside, *given)), (f"DELETE FROM place WHERE {among}", given)]

    def _run(self, statements: Sequence[Statement]) -> None:
        for sql, parameters in statements:
            self._do(sql, parameters)

    def _do(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return disk.execute(self._db, self._path, sql, parameters)


@contextlib.contextmanager
def salvaged(path: Path, *, repair: bool) -> Iterator[_SqliteSalvage | None]:
    """Open a database for the doctor; None if it does not exist. Raises Unreadable, SchemaTooNew, StoreError."""
    if not path.exists():
        yield None
        return
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    try:
        with between_forks, contextlib.closing(disk.connect(path, read_only=not writable and not repair)) as db:
            db.execute("PRAGMA synchronous=FULL" if repair else "PRAGMA query_only=ON")
            db.text_factory = as_text
            yield _SqliteSalvage(path, db, repair=repair)
    except sqlite3.Error as error:
        if later := not_read_now(error, str(path)):
            raise later from error
        raise Unreadable(str(error)) from error
