"""Journals in one SQLite database: the journal is the storage, a checkpoint is a small row.

WAL, synchronous=FULL, one connection that writes; several runs that commit at the same time share a transaction. SQL
stays within what SQLite 3.35 knows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crewlite import disk
from crewlite.codec import digest
from crewlite.errors import BranchConflictError, JournalCorrupt, SchemaTooNew, StoreBusy, StoreError, StoreUnusable
from crewlite.lazy import lazy
from crewlite.state.entry import SCHEMA, Entry, Facts, Unsound, chained, parse, unseal
from crewlite.state.providers.base import BranchInfo, Commit, Head, PlaceInfo
from crewlite.state.providers.reading import (
    branch_info,
    check_follows,
    check_remove,
    check_rewrite,
    in_order,
    newest_sound_place,
    told_at,
)

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")  # these two load when a database is opened
sqlite_utils = lazy("sqlite_utils")

T = TypeVar("T")
log = logging.getLogger("crewlite.state")
_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_ORPHANS = (  # branches with entries and no row; a step through the index for each branch, not for each entry
    "WITH RECURSIVE known(id) AS (SELECT min(branch_id) FROM entry UNION "
    "SELECT (SELECT min(branch_id) FROM entry WHERE branch_id > known.id) FROM known WHERE known.id IS NOT NULL) "
    "SELECT count(*) FROM known WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM branch)"
)
PUT_PLACE = (
    "INSERT OR REPLACE INTO place (branch_id, id, seq, parent_id, trigger, address, label, created_at, sum) "
    "VALUES (?,?,?,?,?,?,?,?,?)"
)
BUSY = frozenset({5, 6})  # SQLite codes: busy, locked
LATER = BUSY | {8, 10, 13, 14}  # read only, input/output, full, cannot open


class SqliteProvider:
    """One database file for all runs. A location without a suffix gets `.db`."""

    name = "sqlite"

    def open(self, location: str) -> SqliteStore:
        """Open a database, making it if need be (0600). Raises StoreUnusable, SchemaTooNew."""
        path = Path(location).absolute()
        if path.is_dir():
            raise StoreUnusable(location, "is a directory, SqliteProvider wants a database file: pass JsonProvider()")
        if not path.suffix:
            path = path.with_name(f"{path.name}.db")
        try:
            if path.exists() and path.stat().st_size and disk.head(path, 15) != b"SQLite format 3":
                raise StoreUnusable(location, "is not a SQLite database; choose another location")
            disk.make_directory(path.parent)
            return SqliteStore(path)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            if isinstance(error, StoreUnusable):
                raise
            raise StoreUnusable(location, f"cannot be used ({error}); choose another location") from error


def is_database(location: str) -> bool:
    """Whether a location without a provider means SQLite."""
    return location.lower().endswith(_SUFFIXES)


class SqliteStore:
    """An opened database."""

    def __init__(self, path: Path) -> None:
        self.location = str(path)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        """For writing; opened with the first append, so that readers leave a database as it is."""
        self._file = (0, 0)
        """Which file the writing connection has open."""

    def append(self, commits: Sequence[Commit]) -> None:
        """See Store.append. All commits share one transaction."""
        with self._writing():
            for commit in commits:
                self._append(commit)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """See Store.read."""
        found: list[Entry] = []
        total: str | None = None
        where = f"{self.location}, run {run_id}, branch {branch}"
        rows = self._query(
            "SELECT branch.seq, head, entry.seq, sum, body FROM branch LEFT JOIN entry ON branch_id = id "
            "WHERE run_id=? AND name=? ORDER BY entry.seq",
            (run_id, branch),
        )
        for *_, seq, written, body in rows:
            try:
                entry = unseal(body, written, after=total, where=where)
                check_follows(entry, found, run_id, branch, seq)
            except Unsound as problem:
                sound = newest_sound_place(found, self.ref)
                raise JournalCorrupt(f"{where}, commit {seq}", str(problem), sound) from None
            total = entry.sum
            found.append(entry)
        if rows and (rows[0][0], rows[0][1]) != (found[-1].seq, total):
            sound = newest_sound_place(found, self.ref)
            raise JournalCorrupt(f"{where}, commit {found[-1].seq}", "the commits after it are gone", sound)
        return found

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        """See Store.sum_at."""
        rows = self._query(
            "SELECT entry.seq, sum, body FROM entry JOIN branch ON branch_id = id "
            "WHERE run_id=? AND name=? AND entry.seq<=? ORDER BY entry.seq DESC LIMIT 2",
            (run_id, branch, seq),
        )
        if not rows or rows[0][0] != seq:
            return None
        where = f"{self.location}, run {run_id}, branch {branch}, commit {seq}"
        try:
            after = _chained(*rows[1][1:]) if len(rows) == 2 else None
            return unseal(rows[0][2], rows[0][1], after=after, where=where).sum
        except Unsound as problem:
            raise JournalCorrupt(where, str(problem), None) from None

    def touched(self, run_id: str, branch: str) -> float:
        """See Store.touched."""
        rows = self._query("SELECT touched FROM branch WHERE run_id=? AND name=?", (run_id, branch))
        return float(rows[0][0]) if rows and isinstance(rows[0][0], int | float) else 0.0

    def rewrite(self, run_id: str, branch: str, head: Head, entries: Sequence[Entry]) -> None:
        """See Store.rewrite."""
        with self._writing():
            at = self._db.execute("SELECT seq, head FROM branch WHERE run_id=? AND name=?", (run_id, branch)).fetchone()
            check_rewrite(run_id, branch, head, at, entries, self._branches(self._db, run_id))
            number = self._id_of(run_id, branch)
            self._run("DELETE FROM entry WHERE branch_id=?", (number,))
            for entry in entries:
                self._insert(number, entry)
        self._give_back()

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        """See Store.remove."""
        with self._writing():
            rows = self._db.execute("SELECT name, seq, head FROM branch WHERE run_id=?", (run_id,)).fetchall()
            check_remove(run_id, dict(heads), {name: (seq, head) for name, seq, head in rows})
            for table in ("place", "entry"):
                self._run(
                    f"DELETE FROM {table} WHERE branch_id IN (SELECT id FROM branch WHERE run_id=?)",  # noqa: S608
                    (run_id,),
                )
            self._run("DELETE FROM branch WHERE run_id=?", (run_id,))
        self._give_back()

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        """See Store.branches."""
        return self._read(lambda db: self._branches(db, run_id), [])

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[PlaceInfo]:
        """See Store.places."""
        rows = self._query(
            "SELECT place.id, run_id, name, place.seq, parent_id, trigger, address, label, created_at, sum "
            "FROM place JOIN branch ON branch_id = branch.id "
            "WHERE place.id < ? AND (? = '' OR instr(place.id, ?) > 0) ORDER BY place.id DESC LIMIT ?",
            (before or "g", part, part, -1 if limit is None else limit),  # ids are hexadecimal: all come before "g"
        )
        found = []
        for *row, total in rows:
            if total is not None and total != row_digest(row):
                log.warning("%s: the row of checkpoint %s was changed: left out of the list", self.location, row[0])
                continue
            found.append(PlaceInfo(*row))
        return found

    def ref(self, place: dict[str, Any]) -> str:
        """`database#id`."""
        return f"{self.location}#{place['id']}"

    def close(self) -> None:
        """Close the writing connection; the last one folds the WAL into the database."""
        if self._connection is not None:
            self._connection.close()

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._connection is not None, "append opens it"
        return self._connection

    def _append(self, commit: Commit) -> None:
        number = self._move(commit)
        if number is None:
            self._catch_up(commit)
            return
        for entry in commit.entries:
            self._insert(number, entry)
            for gone, _ in entry.facts.get("drops", ()):
                self._run("DELETE FROM place WHERE id=?", (gone,))
            if place := entry.facts.get("place"):
                self._run(PUT_PLACE, (number, *place_row(commit.run_id, commit.branch, place)))

    def _insert(self, number: int, entry: Entry) -> None:
        row = (number, entry.seq, entry.seal, entry.body)
        self._run("INSERT INTO entry (branch_id, seq, sum, body) VALUES (?,?,?,?)", row)

    def _catch_up(self, commit: Commit) -> None:
        """Add what a branch lacks that is not where the commit expects it, if it has the beginning already."""
        key = (commit.run_id, commit.branch)
        head = self._db.execute("SELECT seq, head FROM branch WHERE run_id=? AND name=?", key).fetchone()
        lacking = commit.beyond(head)
        if lacking is None or head is None:
            raise BranchConflictError(*key, expected=commit.after, found=head[0] if head else "its end")
        if lacking:
            self._append(Commit(*key, head[0], head[1], lacking))

    def _move(self, commit: Commit) -> int | None:
        """Move the head of a branch, or make the branch: compare and set. Its row id, or None if it has moved."""
        key = (commit.run_id, commit.branch)
        if run := commit.run:
            if (base := run.get("base")) and not self._has(commit.run_id, base):
                raise BranchConflictError(*key, expected=commit.after, found="a base that is gone")
            row = self._run(
                "INSERT INTO branch (run_id, name, uid, seq, head, touched) VALUES (?,?,?,?,?,?) "
                "ON CONFLICT (run_id, name) DO NOTHING",
                (*key, run["uid"], *commit.head, told_at(commit)),
            )
            return row.lastrowid if row.rowcount else None
        row = self._run(
            "UPDATE branch SET seq=?, head=?, touched=? WHERE run_id=? AND name=? AND seq=? AND head=?",
            (*commit.head, told_at(commit), *key, commit.after, commit.after_sum),
        )
        return self._id_of(*key) if row.rowcount else None

    def _has(self, run_id: str, base: Facts) -> bool:
        row = self._db.execute(
            "SELECT sum, body FROM entry JOIN branch ON branch_id = id WHERE run_id=? AND name=? AND entry.seq=?",
            (run_id, base["branch"], base["seq"]),
        ).fetchone()
        try:
            return bool(row) and _chained(*row) == base["sum"]
        except Unsound:
            return False

    def _id_of(self, run_id: str, branch: str) -> int:
        """Asked each time: somebody may have removed the run and made it anew, which gives it another id."""
        query = "SELECT id FROM branch WHERE run_id=? AND name=?"
        number: int = self._db.execute(query, (run_id, branch)).fetchone()[0]
        return number

    def _branches(self, db: sqlite3.Connection, run_id: str | None) -> list[BranchInfo]:
        rows = db.execute(
            "SELECT run_id, name, sum, body FROM branch LEFT JOIN entry ON branch_id = id AND entry.seq = "
            "(SELECT min(seq) FROM entry WHERE branch_id = branch.id) WHERE ? IS NULL OR run_id = ?",
            (run_id, run_id),
        ).fetchall()
        if run_id is None and (lost := db.execute(_ORPHANS).fetchone()[0]):
            log.warning("%s holds commits of %d branches that are gone: left out of the list", self.location, lost)
        found = []
        for run, name, total, body in rows:
            where = f"{self.location}, run {run}, branch {name}"
            try:
                first = unseal(body, total, after=None, where=where)
                check_follows(first, [], run, name, first.seq)
                found.append(branch_info(first))
            except (Unsound, SchemaTooNew) as problem:
                log.warning("%s begins with a commit that cannot be read (%s): left out of the list", where, problem)
        return in_order(found)

    def _prepared(self) -> sqlite3.Connection:
        """A connection to a database of ours, with its tables."""
        self._connection = disk.connect(self._path)
        found = self._path.stat()
        self._file = (found.st_dev, found.st_ino)
        try:
            if not found.st_size:
                self._run("PRAGMA auto_vacuum=INCREMENTAL")  # so that what is taken away is given back to the disk
            self._log_ahead()
            self._run("PRAGMA synchronous=FULL")
            self._run("PRAGMA wal_autocheckpoint=200")  # a log that is reused syncs in half the time of one that grows
            with self._transaction():
                if _version(self._db, self.location) == 0:
                    _make_tables(self._db)
                    self._run(f"PRAGMA user_version={SCHEMA}")
        except BaseException:
            self._connection.close()
            self._connection = None
            raise
        return self._connection

    def _log_ahead(self) -> None:
        """Turn WAL on. Where several do so at once in a new database SQLite does not wait, so that is done here."""
        until = time.monotonic() + disk.PATIENCE
        while True:
            try:
                self._run("PRAGMA journal_mode=WAL")
            except StoreBusy:
                if time.monotonic() >= until:
                    raise
                time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - so that they do not meet again
            else:
                return

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction on the writing connection, which is opened with the first."""
        if self._connection is None:
            self._connection = self._prepared()
        if not self._is_there():
            raise OSError(f"{self.location} is gone: it was deleted, moved or replaced while a run was at work")
        try:
            with self._transaction():
                yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # Python may fail at the text of SQLite's own message
            raise self._failure(error) from error

    def _is_there(self) -> bool:
        """Whether the file that was opened is still the one at its path. SQLite itself would not notice."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return disk.execute(self._db, self._path, sql, parameters)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # Python may fail at the text of SQLite's own message
            raise self._failure(error) from error

    def _give_back(self) -> None:
        """Give free pages back to the disk, unless others are writing: then it is left to the next time."""
        with contextlib.suppress(StoreBusy), self._transaction():
            for _ in range(self._db.execute("PRAGMA freelist_count").fetchone()[0]):
                self._run("PRAGMA incremental_vacuum(1)")  # a step frees a page, and Python makes but one

    def _failure(self, error: Exception) -> OSError:
        """What to raise for an error of SQLite while writing."""
        if code_of(error) in BUSY:
            return StoreBusy(self.location, disk.PATIENCE)
        return OSError(f"{self.location}: {error}")

    def _query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self._read(lambda db: db.execute(sql, parameters).fetchall(), [])

    def _read(self, ask: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Read on a connection of its own, so that readers and the writer never wait for each other."""
        if not self._path.exists():
            return otherwise
        try:
            with contextlib.closing(self._reader()) as db:
                return ask(db) if _version(db, self.location) else otherwise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if code_of(error) in BUSY:
                raise StoreBusy(self.location, disk.PATIENCE) from error
            if code_of(error) in LATER:
                raise StoreError(self.location, f"cannot be read now ({error}); try again") from error
            raise JournalCorrupt(self.location, f"SQLite cannot read it ({error})", None) from error

    def _reader(self) -> sqlite3.Connection:
        """A connection that reads only, yet may put in order what a killed writer left, where that is allowed."""
        if not os.access(self._path, os.W_OK) or not os.access(self._path.parent, os.W_OK):
            db = disk.connect(self._path, read_only=True)
            db.text_factory = as_text
            return db
        db = disk.connect(self._path)
        db.execute("PRAGMA query_only=ON")
        db.text_factory = as_text
        return db


def code_of(error: Exception) -> int:
    """SQLite's number of an error, without the detail in its higher bits; 0 if it has none."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _version(db: sqlite3.Connection, location: str) -> int:
    """The schema of a database; 0 if there is nothing in it yet. Raises SchemaTooNew, StoreUnusable."""
    version, tables = db.execute(  # in one statement: somebody may be making the tables
        "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()
    if version > SCHEMA:
        raise SchemaTooNew(location, version, SCHEMA)
    if version < 1 and tables:
        raise StoreUnusable(location, "is a database of another program; choose another location")
    return max(int(version), 0)


def _chained(total: object, body: object) -> str:
    """What the commit after this row is chained to. Raises Unsound."""
    if not isinstance(body, bytes) or not isinstance(total, str):
        raise Unsound("the bytes of the commit before it are gone")
    return chained(parse(body), total)


def place_row(run_id: str, branch: str, place: Facts) -> tuple[Any, ...]:
    """The row of a checkpoint, but for the number of its branch."""
    named = (place["seq"], place["parent"], place["trigger"], place["address"], place.get("label"), place["at"])
    return (place["id"], *named, row_digest([place["id"], run_id, branch, *named]))


def row_digest(row: Sequence[Any]) -> str:
    """A checksum of what a row says of a checkpoint, so that a listing need not ask the journal."""
    return digest([item if isinstance(item, str | int | None) else repr(item) for item in row])


def as_text(data: bytes) -> str:
    """Text of a database, which holds what it was given: what is no UTF-8 fits nothing, and fails nothing else."""
    return data.decode("utf-8", "surrogateescape")


def _make_tables(connection: sqlite3.Connection) -> None:
    db = sqlite_utils.Database(connection)
    db["branch"].create(
        {"id": int, "run_id": str, "name": str, "uid": str, "seq": int, "head": str, "touched": float},
        pk="id",
        not_null={"run_id", "name"},
    )
    db["branch"].create_index(["run_id", "name"], unique=True)
    db["entry"].create({"branch_id": int, "seq": int, "sum": str, "body": bytes}, pk=("branch_id", "seq"))
    texts = {"parent_id": str, "trigger": str, "address": str, "label": str, "created_at": str}
    db["place"].create({"id": str, "branch_id": int, "seq": int, **texts, "sum": str}, pk="id")
    db["place"].create_index(["branch_id"])
