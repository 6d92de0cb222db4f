"""The doctor of databases.

A run is looked at, and mended, in one transaction: its commits first, then the forks that stand on them, then the rows
of its checkpoints, which are what the commits say they are. What is damaged goes to the table `aside`, which nothing
else looks at. A database that SQLite itself cannot read in places is explained and left as it is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewlite import disk
from crewlite.errors import CrewliteError, SchemaTooNew, StoreError
from crewlite.ids import now
from crewlite.lazy import lazy
from crewlite.state.entry import SCHEMA, Entry, Facts, Unsound, unseal
from crewlite.state.finding import Finding, adrift, sound_part, writer_of
from crewlite.state.providers.reading import live_places, newest_sound_place
from crewlite.state.providers.sqlite import SqliteStore
from crewlite.state.transfer import document

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")  # loads when a database is opened

_ASIDE = "aside (at TEXT, why TEXT, run_id TEXT, branch TEXT, seq INTEGER, sum TEXT, body BLOB)"
_PLACE = "id, seq, parent_id, trigger, address, label, created_at"
Statement = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Row:
    """A branch as the database has it; `there` is False if its entries are all that is left of it."""

    id: int
    name: str
    uid: str
    seq: int
    head: str
    touched: float
    there: bool = True


class SqliteDoctor:
    """Looks at one database, once."""

    def __init__(self, store: SqliteStore, *, repair: bool) -> None:
        self._store, self._path, self._repair = store, Path(store.location), repair
        self._found: list[Finding] = []
        self._orphans: dict[str, list[_Row]] = {}
        """By run: branches of which nothing but the entries is left."""

    def findings(self) -> list[Finding]:
        """All there is to say, and with `repair` to do."""
        if not self._path.exists():
            return []
        try:
            with contextlib.closing(self._connection()) as self._db:
                self._database()
        except sqlite3.OperationalError as error:
            raise StoreError(self._store.location, f"cannot be read now ({error}); try again") from error
        except sqlite3.DatabaseError as error:
            self._found.append(self._beyond_repair(str(error)))
        return self._found

    def _database(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            newer = SchemaTooNew(self._store.location, version, SCHEMA)
            self._found.append(Finding("newer_schema", newer.where, str(newer), "Upgrade crewlite; left untouched."))
        elif version and (problem := self._illness()):
            self._found.append(self._beyond_repair(problem))
        elif version:
            self._look_for_orphans()
            runs = [row[0] for row in self._db.execute("SELECT DISTINCT run_id FROM branch ORDER BY run_id")]
            for run_id in dict.fromkeys([*runs, *self._orphans]):
                with self._transaction():
                    self._run(run_id)
            with self._transaction():
                self._strangers()

    def _illness(self) -> str | None:
        """What SQLite itself finds broken."""
        said = [str(row[0]) for row in self._db.execute("PRAGMA integrity_check(5)")]
        if said != ["ok"]:
            return "; ".join(said).replace("\n", " ")
        tables = {row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        gone = sorted({"branch", "entry", "place"} - tables)
        return f"its tables {', '.join(gone)} are gone" if gone else None

    def _beyond_repair(self, problem: str) -> Finding:
        sound, lost = [], "other runs may be in it that cannot be listed"
        with contextlib.suppress(CrewliteError):
            for run_id in dict.fromkeys(info.run_id for info in self._store.branches()):
                with contextlib.suppress(CrewliteError):
                    document(self._store, run_id)
                    sound.append(run_id)
            lost = "the others are not"
        whole = f"These runs are sound: {', '.join(sound)}; {lost}. Export them" if sound else "No run in it is sound"
        remedy = f"{whole}, or bring back a copy. The database is left as it is."
        return Finding("damaged_database", self._store.location, f"SQLite cannot read it: {problem}", remedy)

    def _look_for_orphans(self) -> None:
        """Entries whose branch is gone, by the run they say they are of; of what cannot be told, the run is ""."""
        lost = self._db.execute(
            "SELECT branch_id, body, min(seq) FROM entry WHERE branch_id NOT IN (SELECT id FROM branch) GROUP BY 1"
        ).fetchall()
        for number, body, _ in lost:
            run = _run_of(body)
            names = [str(run.get(name, "")) for name in ("run_id", "branch", "uid")] if run else ["", "", ""]
            row = _Row(number, names[1], names[2], 0, "", 0.0, there=False)
            self._orphans.setdefault(names[0], []).append(row)

    def _run(self, run_id: str) -> None:
        asked = self._db.execute(
            "SELECT id, name, uid, seq, head, touched FROM branch WHERE run_id=? ORDER BY id", (run_id,)
        )
        rows = {row.name: row for row in (_Row(*row) for row in asked)}
        for orphan in self._orphans.get(run_id, ()):
            if orphan.name and orphan.name not in rows:
                rows[orphan.name] = orphan
            else:
                act = self._aside("its branch is gone", run_id, orphan, 0) + self._without(orphan)
                problem = f"{self._store.location}, entries of branch {orphan.id}"
                self._tell(Finding("dangling_rows", problem, "the branch they are of is gone", "set aside"), act)
        journals: dict[str, list[Entry]] = {}
        writers: dict[str, str | None] = {}
        unknown: set[str] = set()
        for row in rows.values():
            entries, writers[row.name], certain = self._branch(run_id, row)
            if not certain:
                unknown.add(row.name)
            if entries:
                journals[row.name] = entries
        for name, problem in adrift(journals, unknown).items():
            statements = self._aside(problem, run_id, rows[name], 0) + self._without(rows[name])
            act = "set aside; bring back a copy that holds what it stands on"
            finding = Finding("dangling_fork", self._where(run_id, name), problem, act)
            self._tell(finding, statements, writers[name])
            del journals[name]
        for name, entries in journals.items():
            if name not in unknown:
                self._places(run_id, rows[name], entries, writers[name])

    def _branch(self, run_id: str, row: _Row) -> tuple[list[Entry], str | None, bool]:
        """The sound entries of a branch, who is at work on it, and whether there is no more to it."""
        where = self._where(run_id, row.name)
        records = self._db.execute("SELECT seq, sum, body FROM entry WHERE branch_id=? ORDER BY seq", (row.id,)).fetchall()

        def unsealed(record: tuple[int, str, object], after: str | None) -> tuple[Entry, int]:
            seq, total, body = record
            if not isinstance(body, bytes):
                raise Unsound("its bytes are gone")
            return unseal(body, total, after=after, where=where), seq

        try:
            entries, problem = sound_part(records, unsealed, run_id, row.name)
        except SchemaTooNew as newer:
            self._found.append(Finding("newer_schema", where, str(newer), "Upgrade crewlite; left untouched."))
            return [], None, False
        said = [*(entry.facts for entry in entries), *(_loosely(body) for *_, body in records[len(entries) :])]
        writer = writer_of(self._store.location, run_id, row.name, said, row.touched)
        sound = newest_sound_place(entries, self._store.ref)
        if not entries:
            act = self._aside(problem or "no entries", run_id, row, 0) + self._without(row)
            finding = Finding("damaged_journal", where, problem or "its commits are gone", "set aside: nothing is sound")
            self._tell(finding, act, writer)
            return [], writer, not writer
        last = entries[-1]
        to_last: list[Statement] = [("UPDATE branch SET seq=?, head=? WHERE id=?", (last.seq, last.sum, row.id))]
        if not row.there:
            told = (run_id, row.name, row.uid, last.seq, last.sum, _time(last), row.id)
            insert = "INSERT INTO branch (run_id, name, uid, seq, head, touched, id) VALUES (?,?,?,?,?,?,?)"
            self._tell(Finding("missing_rows", where, "the row of this branch is gone", "made again", sound), [(insert, told)])
        if problem:
            act = self._aside(problem, run_id, row, last.seq) + to_last
            done = f"what follows set aside; the branch ends at commit {last.seq}"
            self._tell(Finding("damaged_journal", f"{where}, commit {last.seq + 1}", problem, done, sound), act, writer)
            return entries, writer, not writer
        if row.there and (row.seq, row.head) != (last.seq, last.sum):
            gone = isinstance(row.seq, int) and row.seq > last.seq
            problem = f"the commits after {last.seq} are gone" if gone else "its head is not its last commit"
            finding = Finding("missing_rows" if gone else "wrong_head", where, problem, f"ends at commit {last.seq}", sound)
            self._tell(finding, to_last, writer)
        return entries, writer, True

    def _places(self, run_id: str, row: _Row, entries: Sequence[Entry], writer: str | None) -> None:
        """The rows of a branch's checkpoints."""
        where, sound = self._where(run_id, row.name), newest_sound_place(entries, self._store.ref)
        wanted = {place["id"]: _place_row(place) for place in live_places(entries)}
        asked = self._db.execute(f"SELECT {_PLACE} FROM place WHERE branch_id=?", (row.id,))  # noqa: S608
        there = {found[0]: found for found in asked}
        for what, problem, ids in (
            ("missing_rows", "{} of its checkpoints have no row", wanted.keys() - there.keys()),
            ("edited_rows", "{} rows of its checkpoints were changed", {i for i in wanted if i in there and there[i] != wanted[i]}),
        ):
            insert = f"INSERT OR REPLACE INTO place (branch_id, {_PLACE}) VALUES (?,?,?,?,?,?,?,?)"
            made: list[Statement] = [(insert, (row.id, *wanted[i])) for i in sorted(ids)]
            if made:
                self._tell(Finding(what, where, problem.format(len(made)), "made again", sound), made, writer)
        if strangers := sorted(there.keys() - wanted.keys()):
            problem = f"{len(strangers)} rows are of checkpoints that it does not have"
            act = [s for i in strangers for s in self._aside_place(run_id, row.name, there[i])]
            self._tell(Finding("dangling_rows", where, problem, "set aside", sound), act, writer)

    def _strangers(self) -> None:
        """Rows of checkpoints whose branch is gone."""
        kept = [row.id for rows in self._orphans.values() for row in rows]
        asked = self._db.execute(f"SELECT branch_id, {_PLACE} FROM place WHERE branch_id NOT IN (SELECT id FROM branch)")  # noqa: S608
        lost = [found for number, *found in asked if number not in kept]
        if lost:
            act = [statement for found in lost for statement in self._aside_place("", "", tuple(found))]
            problem = f"{len(lost)} rows are of checkpoints whose run is gone"
            self._tell(Finding("dangling_rows", self._store.location, problem, "set aside"), act)

    def _aside(self, why: str, run_id: str, row: _Row, after: int) -> list[Statement]:
        """Set aside the row of a branch, and its entries after a number; those at 0 are all."""
        put = "INSERT INTO aside (at, why, run_id, branch, seq, sum, body) "
        told = (now().isoformat(), why, run_id, row.name)
        which = "branch_id=?" if not after else "branch_id=? AND seq > ?"
        key: tuple[Any, ...] = (row.id, after) if after else (row.id,)
        return [
            (f"CREATE TABLE IF NOT EXISTS {_ASIDE}", ()),
            (f"{put} VALUES (?,?,?,?,?,?,NULL)", (*told, row.seq, row.head)),
            (f"{put} SELECT ?, ?, ?, ?, seq, sum, body FROM entry WHERE {which}", (*told, *key)),  # noqa: S608
            (f"DELETE FROM entry WHERE {which}", key),  # noqa: S608
        ]

    def _without(self, row: _Row) -> list[Statement]:
        """A branch of which nothing is kept."""
        return [("DELETE FROM place WHERE branch_id=?", (row.id,)), ("DELETE FROM branch WHERE id=?", (row.id,))]

    def _aside_place(self, run_id: str, branch: str, row: Sequence[Any]) -> list[Statement]:
        put = "INSERT INTO aside (at, why, run_id, branch, seq, sum, body) VALUES (?,?,?,?,?,?,?)"
        told = (now().isoformat(), "no such checkpoint", run_id, branch, row[1], row[0], json.dumps(row, default=repr))
        create: Statement = (f"CREATE TABLE IF NOT EXISTS {_ASIDE}", ())
        return [create, (put, told), ("DELETE FROM place WHERE id=?", (row[0],))]

    def _tell(self, finding: Finding, statements: Sequence[Statement], writer: str | None = None) -> None:
        """Keep a finding, whose remedy is what a repair does; and do it, if it may be done."""
        if writer:
            remedy = f"{writer} is at work on this branch, so it is left alone: ask again when that has ended."
        elif not self._repair:
            remedy = f"With repair=True: {finding.remedy}."
        else:
            remedy = f"Done: {finding.remedy}."
            for sql, parameters in statements:
                self._do(sql, parameters)
        self._found.append(replace(finding, remedy=remedy, repaired=self._repair and not writer))

    def _where(self, run_id: str, branch: str) -> str:
        return f"{self._store.location}, run {run_id}, branch {branch}"

    def _connection(self) -> sqlite3.Connection:
        db = disk.connect(self._path)
        db.execute("PRAGMA synchronous=FULL" if self._repair else "PRAGMA query_only=ON")
        return db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """What is read is of one moment, and what is mended is mended as a whole."""
        self._do("BEGIN IMMEDIATE") if self._repair else self._db.execute("BEGIN")
        try:
            yield
            self._do("COMMIT") if self._repair else self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _do(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        disk.execute(self._db, self._path, sql, parameters)


def _place_row(place: Facts) -> tuple[Any, ...]:
    named = (place["parent"], place["trigger"], place["address"], place.get("label"), place["at"])
    return (place["id"], place["seq"], *named)


def _time(entry: Entry) -> float:
    return datetime.fromisoformat(entry.facts["at"]).timestamp()


def _run_of(body: object) -> Facts | None:
    """What a first entry says of its run, sealed or not."""
    said = _loosely(body)
    run = said.get("run") if isinstance(said, dict) else None
    return run if isinstance(run, dict) else None


def _loosely(body: object) -> Any:
    try:
        return json.loads(body) if isinstance(body, bytes) else None
    except (ValueError, RecursionError):
        return None
