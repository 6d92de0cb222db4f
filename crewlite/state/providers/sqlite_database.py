"""One SQLite database: a connection that writes, others that read, and what its errors mean."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crewlite import disk
from crewlite.errors import JournalCorrupt, SchemaTooNew, StoreBusy, StoreError, StoreUnusable
from crewlite.lazy import lazy
from crewlite.state.format.entry import SCHEMA

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = lazy("sqlite3")  # loads when a database is opened
sqlite_tables = lazy("crewlite.state.providers.sqlite_tables")  # which loads sqlite_utils

T = TypeVar("T")
log = logging.getLogger("crewlite.state")
_LAYOUT = 2  # migrations in sqlite_tables, so that a database that has had them does not load that
BUSY = frozenset({5, 6})  # SQLite codes: busy, locked
LATER = BUSY | {8, 10, 13, 14}  # read only, input/output, full, cannot open


class Database:
    """The database at a path. It is opened for writing with the first write, so that readers leave it as it is."""

    def __init__(self, path: Path) -> None:
        self.location = str(path)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        """Which file the writing connection has open."""
        self._thread = 0
        """The thread that opened it, and alone uses it."""

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction on the writing connection, which is opened with the first."""
        try:
            if self._connection is None:
                self._connection = self._prepared()
            if not self._is_there():  # one that is moved after this is written where it is then
                raise OSError(f"{self.location} is gone: it was deleted, moved or replaced while a run was at work")
            with self._transaction():
                yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # Python may fail at the text of SQLite's own message
            raise self._failure(error) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """One statement on the writing connection. Raises StoreBusy, OSError."""
        try:
            return disk.execute(self._writer, self._path, sql, parameters)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # Python may fail at the text of SQLite's own message
            raise self._failure(error) from error

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """A question in the middle of `writing`."""
        return self._writer.execute(sql, parameters)

    def give_back(self) -> None:
        """Give free pages back to the disk, unless others are writing: then it is left to the next time."""
        try:
            with self._transaction():
                for _ in range(self._writer.execute("PRAGMA freelist_count").fetchone()[0]):
                    self.run("PRAGMA incremental_vacuum(1)")  # a step frees a page, and Python makes but one
        except StoreBusy:
            pass
        except OSError as error:  # what was asked for is done and stored
            log.warning("%s: free pages were not given back: %s", self.location, error)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """All rows, on a connection that reads; none where there is no database."""
        return self.read(lambda db: db.execute(sql, parameters).fetchall(), [])

    def peek(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """`query` for what is asked again and again: the writer's thread needs no connection of its own for it."""
        if self._thread != threading.get_ident() or not self._is_there():
            return self.query(sql, parameters)
        try:
            return self.ask(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._failure(error) from error

    def read(self, ask: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Read on a connection of its own, so that readers and the writer never wait for each other."""
        if not self._path.exists():
            return otherwise
        try:
            with contextlib.closing(self._reader()) as db:
                return ask(db) if version_of(db, self.location) else otherwise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not self._path.exists():  # it was taken away after the first look
                return otherwise
            if code_of(error) in BUSY:
                raise StoreBusy(self.location, disk.PATIENCE) from error
            if code_of(error) in LATER:
                raise StoreError(self.location, f"cannot be read now ({error}); try again") from error
            raise JournalCorrupt(self.location, f"SQLite cannot read it ({error})", None) from error

    def close(self) -> None:
        """Close the writing connection; the last one folds the WAL into the database."""
        if self._connection is not None:
            self._connection.close()

    @property
    def _writer(self) -> sqlite3.Connection:
        assert self._connection is not None, "writing opens it"
        return self._connection

    def _prepared(self) -> sqlite3.Connection:
        """A connection to a database of ours, with its tables."""
        self._connection, self._thread = disk.connect(self._path, make=True), threading.get_ident()
        found = self._path.stat()
        self._file = (found.st_dev, found.st_ino)
        try:
            if not found.st_size:
                self.run("PRAGMA auto_vacuum=INCREMENTAL")  # so that what is taken away is given back to the disk
            self._log_ahead()
            self.run("PRAGMA synchronous=FULL")
            self.run("PRAGMA wal_autocheckpoint=200")  # a log that is reused syncs in half the time of one that grows
            with self._transaction():
                new = version_of(self._writer, self.location) == 0
                if _layout(self._writer) < _LAYOUT:
                    sqlite_tables.migrate(self._writer)
                if new:
                    self.run(f"PRAGMA user_version={SCHEMA}")
        except BaseException:
            self._connection.close()
            self._connection, self._thread = None, 0
            raise
        return self._connection

    def _log_ahead(self) -> None:
        """Turn WAL on. Where several do so at once in a new database SQLite does not wait, so that is done here."""
        until = time.monotonic() + disk.PATIENCE
        while True:
            try:
                self.run("PRAGMA journal_mode=WAL")
            except StoreBusy:
                if time.monotonic() >= until:
                    raise
                time.sleep(os.urandom(1)[0] / 12_800)  # up to 20 ms, another each, so that they do not meet again
            else:
                return

    def _is_there(self) -> bool:
        """Whether the file that was opened is still the one at its path. SQLite itself would not notice."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _failure(self, error: Exception) -> OSError:
        """What to raise for an error of SQLite while writing."""
        if code_of(error) in BUSY:
            return StoreBusy(self.location, disk.PATIENCE)
        return OSError(f"{self.location}: {error}")

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


def version_of(db: sqlite3.Connection, location: str) -> int:
    """The schema of a database; 0 if there is nothing in it yet. Raises SchemaTooNew, StoreUnusable."""
    version, tables = db.execute(  # in one statement: somebody may be making the tables
        "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()
    if version > SCHEMA:
        raise SchemaTooNew(location, version, SCHEMA)
    if version < 1 and tables:
        raise StoreUnusable(location, "is a database of another program; choose another location")
    return max(int(version), 0)


def as_text(data: bytes) -> str:
    """Text of a database, which holds what it was given: what is no UTF-8 fits nothing, and fails nothing else."""
    return data.decode("utf-8", "surrogateescape")


def _layout(db: sqlite3.Connection) -> int:
    """How many migrations a database has had."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name='_sqlite_migrations'").fetchone():
        return 0
    found = db.execute("SELECT count(*) FROM _sqlite_migrations WHERE migration_set='crewlite'").fetchone()
    return int(found[0])
