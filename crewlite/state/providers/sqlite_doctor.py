"""The doctor of databases.

A run is looked at, and mended, in one transaction: its commits first, then the forks that stand on them, then the rows
of its checkpoints, which are what the commits say they are. What is damaged goes to the table `aside`, which nothing
else looks at. A database that SQLite itself cannot read in places is explained and left as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewlite import disk
from crewlite.codec import JsonObject
from crewlite.errors import CrewliteError, SchemaTooNew, StoreBusy, StoreError
from crewlite.ids import short
from crewlite.lazy import lazy
from crewlite.state.entry import SCHEMA, Entry, unseal
from crewlite.state.finding import Finding, adrift, loosely, sound_part, writer_of
from crewlite.state.providers.reading import live_places, newest_sound_place
from crewlite.state.providers.sqlite import SqliteStore, place_row
from crewlite.state.providers.sqlite_aside import (
    PLACES,
    STRANGERS,
    Statement,
    branch_aside,
    entries_aside,
    entry_without_place,
    make_place,
    place_aside,
)
from crewlite.state.providers.sqlite_database import BUSY, LATER, as_text, code_of
from crewlite.state.transfer import document

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")  # loads when a database is opened

_ANY = "SELECT 1 FROM entry WHERE branch_id=? LIMIT 1"


@dataclass(frozen=True, slots=True)
class _Row:
    """A branch as the database has it; `there` is False if nothing but its entries knows of it."""

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
        except sqlite3.Error as error:
            if code_of(error) in BUSY:
                raise StoreBusy(self._store.location, disk.PATIENCE) from error
            if code_of(error) in LATER:
                raise StoreError(self._store.location, f"cannot be looked at now ({error}); try again") from error
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
        for run_id, row in self._orphans_among("GROUP BY branch_id"):
            self._orphans.setdefault(run_id, []).append(row)

    def _orphans_among(self, rows: str, parameters: Sequence[Any] = ()) -> list[tuple[str, _Row]]:
        """Entries whose branch is gone, or has another name, with the run they say they are of; "" if they say none."""
        asked = self._db.execute(
            "SELECT branch_id, run_id, name, body, min(entry.seq) "  # noqa: S608
            f"FROM entry LEFT JOIN branch ON branch_id = id {rows}",
            parameters,
        )
        found = []
        for number, run_id, name, body, _ in asked:
            run = _run_of(body) if type(number) is int else None
            said = [str(run.get(key, "")) for key in ("run_id", "branch", "uid")] if run else ["", "", ""]
            if run_id is None or (run and said[:2] != [run_id, name]):
                found.append((said[0], _Row(number, said[1], said[2], 0, "", 0.0, there=False)))
        return found

    def _rows(self, run_id: str) -> dict[str, _Row]:
        """The branches of a run by name. Entries that no branch has, and that cannot have one, are told."""
        query = "SELECT id, name, uid, seq, head, touched FROM branch WHERE run_id=? ORDER BY id"
        if known := self._orphans.pop(run_id, None):  # another repair may have been here, and their ids be used again
            again = [self._orphans_among("WHERE branch_id IS ? GROUP BY branch_id", (row.id,)) for row in known]
            self._orphans[run_id] = [row for rows in again for run, row in rows if run == run_id]
        lost = {row.id for rows in self._orphans.values() for row in rows}
        rows = {
            row.name: row for row in (_Row(*row) for row in self._db.execute(query, (run_id,))) if row.id not in lost
        }
        for orphan in self._orphans.get(run_id, ()):
            rival = rows.get(orphan.name)
            if orphan.name and not (rival and self._db.execute(_ANY, (rival.id,)).fetchone()):
                rows[orphan.name] = orphan
                continue
            problem = "its own row is gone or changed"
            statements = branch_aside(orphan.id, problem, run_id, orphan.name, (orphan.seq, orphan.head))
            where = f"{self._store.location}, branch {orphan.id}"
            self._tell(Finding("dangling_rows", where, problem, "set aside"), statements)
        return rows

    def _run(self, run_id: str) -> None:
        rows = self._rows(run_id)
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
            row = rows[name]
            statements = branch_aside(row.id, problem, run_id, name, (row.seq, row.head))
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
        records = self._db.execute(
            "SELECT seq, sum, body FROM entry WHERE branch_id=? ORDER BY seq", (row.id,)
        ).fetchall()

        def unsealed(record: tuple[int, str, bytes], after: str | None) -> tuple[Entry, int]:
            seq, total, body = record
            return unseal(body, total, after=after, where=where), seq

        try:
            part = sound_part(records, unsealed, lambda record: (record[2], record[1]), run_id, row.name)
        except SchemaTooNew as newer:
            self._found.append(Finding("newer_schema", where, str(newer), "Upgrade crewlite; left untouched."))
            return [], None, False
        entries, problem = part.entries, part.problem
        said = [*(entry.facts for entry in entries), *(loosely(body) for *_, body in records[len(entries) :])]
        writer = writer_of(self._store.location, run_id, row.name, said, row.touched)
        sound = newest_sound_place(entries, self._store.ref)
        head = (row.seq, row.head)
        for at, identifier in part.without.items():
            entry, why = entries[at], f"checkpoint {short(identifier)} is not of the commit that names it"
            finding = Finding(
                "wrong_checkpoint",
                f"{where}, commit {entry.seq}",
                why,
                "a copy of the commit kept aside, and that checkpoint taken away; the run loses nothing",
                sound,
            )
            self._tell(finding, entry_without_place(row.id, entry, why, run_id, row.name), writer)
        if not entries:
            problem = problem or "its commits are gone"
            statements = branch_aside(row.id, problem, run_id, row.name, head)
            finding = Finding("damaged_journal", where, problem, "set aside: nothing in it is sound")
            self._tell(finding, statements, writer)
            return [], writer, not writer
        last = entries[-1]
        to_last: Statement = ("UPDATE branch SET seq=?, head=? WHERE id=?", (last.seq, last.sum, row.id))
        if not row.there:
            self._make_branch(run_id, row, last, sound)
        if problem:
            statements = [*entries_aside(row.id, last.seq, problem, run_id, row.name, head), to_last]
            act = f"what follows set aside; the branch ends at commit {last.seq}"
            self._tell(
                Finding("damaged_journal", f"{where}, commit {last.seq + 1}", problem, act, sound), statements, writer
            )
            return entries, writer, not writer
        if row.there and head != (last.seq, last.sum):
            gone = isinstance(row.seq, int) and row.seq > last.seq
            problem = f"the commits after {last.seq} are gone" if gone else "its head is not its last commit"
            act = f"the branch ends at commit {last.seq}"
            self._tell(Finding("missing_rows" if gone else "wrong_head", where, problem, act, sound), [to_last], writer)
            return entries, writer, not writer
        return entries, writer, True

    def _make_branch(self, run_id: str, row: _Row, last: Entry, sound: str | None) -> None:
        insert = "INSERT OR REPLACE INTO branch (id, run_id, name, uid, seq, head, touched) VALUES (?,?,?,?,?,?,?)"
        touched = datetime.fromisoformat(last.facts["at"]).timestamp()
        made = (insert, (row.id, run_id, row.name, row.uid, last.seq, last.sum, touched))
        finding = Finding(
            "missing_rows", self._where(run_id, row.name), "its own row is gone or changed", "made again", sound
        )
        self._tell(finding, [made])

    def _places(self, run_id: str, row: _Row, entries: Sequence[Entry], writer: str | None) -> None:
        """The rows of a branch's checkpoints."""
        where, sound = self._where(run_id, row.name), newest_sound_place(entries, self._store.ref)
        wanted = {place["id"]: place_row(run_id, row.name, place) for place in live_places(entries)}
        there = {found[0]: found for found in self._db.execute(PLACES, (row.id,))}
        missing = [wanted[i] for i in wanted if i not in there]
        edited = [wanted[i] for i in wanted if i in there and there[i] != wanted[i]]
        strangers = [there[i] for i in there if i not in wanted]
        for what, rows, problem in (
            ("missing_rows", missing, f"{len(missing)} of its checkpoints have no row"),
            ("edited_rows", edited, f"{len(edited)} rows of its checkpoints were changed"),
        ):
            if rows:
                statements = [make_place(row.id, place) for place in rows]
                self._tell(Finding(what, where, problem, "made again", sound), statements, writer)
        if strangers:
            problem = f"{len(strangers)} rows are of checkpoints that it does not have"
            statements = [statement for found in strangers for statement in place_aside(run_id, row.name, found)]
            self._tell(Finding("dangling_rows", where, problem, "set aside", sound), statements, writer)

    def _strangers(self) -> None:
        """Rows of checkpoints whose branch is gone."""
        kept = [row.id for rows in self._orphans.values() for row in rows]
        if lost := [found for number, *found in self._db.execute(STRANGERS) if number not in kept]:
            statements = [statement for found in lost for statement in place_aside("", "", found)]
            problem = f"{len(lost)} rows are of checkpoints whose run is gone"
            self._tell(Finding("dangling_rows", self._store.location, problem, "set aside"), statements)

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
        writable = os.access(self._path, os.W_OK) and os.access(self._path.parent, os.W_OK)
        db = disk.connect(self._path, read_only=not writable and not self._repair)
        db.execute("PRAGMA synchronous=FULL" if self._repair else "PRAGMA query_only=ON")
        db.text_factory = as_text
        return db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """What is read is of one moment, and what is mended is mended as a whole."""
        run = self._do if self._repair else self._db.execute
        run("BEGIN IMMEDIATE" if self._repair else "BEGIN")
        try:
            yield
            run("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _do(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return disk.execute(self._db, self._path, sql, parameters)


def _run_of(body: object) -> JsonObject | None:
    """What a first entry says of its run, sealed or not."""
    said = loosely(body)
    run = said.get("run") if isinstance(said, dict) else None
    return run if isinstance(run, dict) else None
