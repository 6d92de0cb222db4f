"""Journals in one SQLite database: the journal is the storage, a checkpoint is a small row.

WAL, synchronous=FULL, one connection that writes; several runs that commit at the same time share a transaction. SQL
stays within what SQLite 3.35 knows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewlite import disk
from crewlite.errors import BranchConflictError, JournalCorrupt, SchemaTooNew, StoreError, StoreUnusable
from crewlite.lazy import lazy
from crewlite.state.entry import SCHEMA, Entry, Unsound, unseal
from crewlite.state.providers.base import BranchInfo, Commit, PlaceInfo
from crewlite.state.providers.reading import branch_info, newest_sound_place

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")  # these two load when a database is opened
sqlite_utils = lazy("sqlite_utils")

_SUFFIXES = (".db", ".sqlite", ".sqlite3")


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
        except (OSError, sqlite3.Error) as error:
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
        self._ids: dict[tuple[str, str], int] = {}
        """Row ids of the branches that were written to."""

    def append(self, commits: Sequence[Commit]) -> None:
        """See Store.append. All commits share one transaction."""
        if self._connection is None:
            self._connection = self._prepared()
        with self._transaction():
            for commit in commits:
                self._append(commit)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """See Store.read."""
        found: list[Entry] = []
        total = ""
        where = f"{self.location}, run {run_id}, branch {branch}"
        rows = self._query(
            "SELECT seq, sum, body FROM entry WHERE branch_id = (SELECT id FROM branch WHERE run_id=? AND name=?) "
            "ORDER BY seq",
            (run_id, branch),
        )
        for seq, written, body in rows:
            try:
                if seq != len(found) + 1:
                    raise Unsound(f"commit {len(found) + 1} is missing")
                if not isinstance(body, bytes):
                    raise Unsound("it is text now, and was bytes")
                entry = unseal(body, written, after=total, where=where)
            except Unsound as problem:
                sound = newest_sound_place(found, self.ref)
                raise JournalCorrupt(f"{where}, commit {seq}", str(problem), sound) from None
            total = entry.sum
            found.append(entry)
        return found

    def branches(self) -> list[BranchInfo]:
        """See Store.branches."""
        rows = self._query(
            "SELECT run_id, name, sum, body FROM branch JOIN entry ON branch_id = id AND entry.seq = 1 "
            "ORDER BY uid DESC"
        )
        found = []
        for run_id, name, total, body in rows:
            try:
                first = unseal(body, total or "", after="", where=f"{self.location}, run {run_id}, branch {name}")
            except Unsound as problem:
                raise JournalCorrupt(f"{self.location}, run {run_id}, commit 1", str(problem), None) from None
            found.append(branch_info(first))
        return found

    def places(self, part: str = "") -> list[PlaceInfo]:
        """See Store.places."""
        rows = self._query(
            "SELECT place.id, run_id, name, place.seq, trigger, created_at "
            "FROM place JOIN branch ON branch_id = branch.id "
            "WHERE instr(place.id, ?) > 0 ORDER BY place.id DESC",
            (part,),
        )
        return [PlaceInfo(*row) for row in rows]

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
        branch = self._move(commit, commit.entries[-1])
        if branch is None:
            self._catch_up(commit)
            return
        for entry in commit.entries:
            row = (branch, entry.seq, entry.sum, entry.body)
            self._run("INSERT INTO entry (branch_id, seq, sum, body) VALUES (?,?,?,?)", row)
            for gone in entry.facts.get("drops", ()):
                self._run("DELETE FROM place WHERE id=?", (gone,))
            if place := entry.facts.get("place"):
                self._run(
                    "INSERT INTO place (id, branch_id, seq, trigger, created_at) VALUES (?,?,?,?,?)",
                    (place["id"], branch, place["seq"], place["trigger"], place["at"]),
                )

    def _catch_up(self, commit: Commit) -> None:
        """Add what a branch lacks that is not where the commit expects it, if it has the beginning already."""
        key = (commit.run_id, commit.branch)
        seq, head = self._db.execute("SELECT seq, head FROM branch WHERE run_id=? AND name=?", key).fetchone() or (
            0,
            "",
        )
        lacking = commit.beyond(seq, head)
        if lacking is None:
            raise BranchConflictError(*key, expected=commit.after, found=seq)
        if lacking:
            self._append(Commit(*key, seq, head, lacking))

    def _move(self, commit: Commit, last: Entry) -> int | None:
        """Move the head of a branch, or make the branch: compare and set. Its row id, or None if it has moved."""
        key = (commit.run_id, commit.branch)
        if commit.after == 0:
            uid = commit.entries[0].facts["run"]["uid"]
            row = self._run(
                "INSERT INTO branch (run_id, name, uid, seq, head) VALUES (?,?,?,?,?) "
                "ON CONFLICT (run_id, name) DO NOTHING",
                (*key, uid, last.seq, last.sum),
            )
            return row.lastrowid if row.rowcount else None
        row = self._run(
            "UPDATE branch SET seq=?, head=? WHERE run_id=? AND name=? AND seq=? AND head=?",
            (last.seq, last.sum, *key, commit.after, commit.after_sum),
        )
        if not row.rowcount:
            return None
        if key not in self._ids:
            self._ids[key] = self._db.execute("SELECT id FROM branch WHERE run_id=? AND name=?", key).fetchone()[0]
        return self._ids[key]

    def _prepared(self) -> sqlite3.Connection:
        """A connection to a database of ours, with its tables."""
        self._connection = disk.connect(self._path)
        try:
            self._run("PRAGMA journal_mode=WAL")
            self._run("PRAGMA synchronous=FULL")
            self._run("PRAGMA wal_autocheckpoint=200")  # a log that is reused syncs in half the time of one that grows
            with self._transaction():
                if _version(self._db, self.location) == 0:
                    if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        raise StoreUnusable(self.location, "is a database of another program; choose another location")
                    _make_tables(self._db)
                    self._run(f"PRAGMA user_version={SCHEMA}")
        except BaseException:
            self._connection.close()
            self._connection = None
            raise
        return self._connection

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
        except sqlite3.Error as error:
            raise OSError(f"{self.location}: {error}") from error

    def _query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Read on a connection of its own, so that readers and the writer never wait for each other."""
        if not self._path.exists():
            return []
        try:
            with contextlib.closing(self._reader()) as db:
                return db.execute(sql, parameters).fetchall() if _version(db, self.location) else []
        except sqlite3.OperationalError as error:
            raise StoreError(self.location, f"cannot be read now ({error}); try again") from error
        except sqlite3.DatabaseError as error:
            raise JournalCorrupt(self.location, f"SQLite cannot read it ({error})", None) from error

    def _reader(self) -> sqlite3.Connection:
        """A connection that reads only, yet may put in order what a killed writer left, where that is allowed."""
        if not os.access(self._path, os.W_OK) or not os.access(self._path.parent, os.W_OK):
            return disk.connect(self._path, read_only=True)
        db = disk.connect(self._path)
        db.execute("PRAGMA query_only=ON")
        return db


def _version(db: sqlite3.Connection, location: str) -> int:
    """The schema of a database; 0 if it has none yet. Raises SchemaTooNew."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        raise SchemaTooNew(location, version, SCHEMA)
    return version


def _make_tables(connection: sqlite3.Connection) -> None:
    db = sqlite_utils.Database(connection)
    db["branch"].create(
        {"id": int, "run_id": str, "name": str, "uid": str, "seq": int, "head": str},
        pk="id",
        not_null={"run_id", "name"},
    )
    db["branch"].create_index(["run_id", "name"], unique=True)
    db["entry"].create({"branch_id": int, "seq": int, "sum": str, "body": bytes}, pk=("branch_id", "seq"))
    db["place"].create({"id": str, "branch_id": int, "seq": int, "trigger": str, "created_at": str}, pk="id")
