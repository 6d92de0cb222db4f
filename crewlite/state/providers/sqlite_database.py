"""One SQLite database: a connection that writes, others that read, the translation of SQLite's errors.

Its rows of checkpoints are an index, which can be rebuilt from the journals.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from crewlite.encoding.codec import digest
from crewlite.errors import JournalCorrupt, SchemaTooNew, StoreBusy, StoreError, StoreUnusable
from crewlite.lazy import lazy, sqlite3
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import SCHEMA
from crewlite.state.providers.locations import NO_LOCKS, FileId, exists, file_id
from crewlite.state.providers.open_files import FileIds, close_connection, file_ids, move_log
from crewlite.state.providers.sqlite_reading import Readers
from crewlite.system import disk
from crewlite.system.forked import between_forks, lock
from crewlite.system.steady_clock import steady
from crewlite.texts.logs import logger

sqlite_tables = lazy("crewlite.state.providers.sqlite_tables")  # which loads sqlite_utils

T = TypeVar("T")
COLUMNS = ("id", "seq", "parent_id", "trigger", "address", "label", "created_at", "sum")
PUT_CHECKPOINT = f"INSERT OR REPLACE INTO place (branch_id, {', '.join(COLUMNS)}) VALUES (?,?,?,?,?,?,?,?,?)"

MAY_REWIND = "instr(body, x'22726577696e64223a7b') > 0"
"""The condition of the index of commits that may rewind their branch: the bytes are `"rewind":{`, also inside texts."""
log = logger("crewlite.state")
_LAYOUT = 3  # the number of migrations in sqlite_tables, which is loaded only for a database that lacks one
_BUSY = frozenset({5, 6})  # SQLite codes: busy, locked
_PLAIN = (str, int, type(None))
_SMALLEST = 512  # bytes of a page
_NO_DATABASE = 26  # SQLite code
_FULL = 13  # SQLite code
_READ_ONLY = 8  # SQLite code
_NO_SHARED_MEMORY = 4874  # SQLite's full code, where it has no space for the file that it also reads with
_REMEDIES = {
    _READ_ONLY: "make the file, its directory, and the files beside it whose names begin with its name writable",
    10: "look at the disk, and at the files beside it whose names begin with its name",
    _FULL: "free space on the disk, which SQLite needs to read as well",
    14: "make the file, its directory, and the files beside it whose names begin with its name readable and writable, "
    "or copy all of them to where they are",
    15: NO_LOCKS,
}
"""What to do about a database that SQLite cannot open or read now, by SQLite's code."""


class Database:
    """The database at a path. The first write opens it for writing, so a program that only reads does not change it."""

    def __init__(self, path: Path) -> None:
        self.location = str(path)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: FileId | None = None
        """The file to which the writing connection was opened; None before that."""
        self._files: FileIds = (None, None, None)
        """All files that the writing connection has open."""
        self._thread = 0
        """The number of the thread that opened the writing connection."""
        self._turn = lock()
        """Held by the thread that uses the writing connection: a transaction of SQLite is one of the connection."""
        self.readers = Readers(path)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block in a transaction on the writing connection. The first call opens it, also after each fork.

        Threads take turns. Raises StoreBusy if another program holds the database for longer than `disk.PATIENCE`,
        OSError if it fails.
        """
        with between_forks, self._turn:  # in this order: who waits for a turn makes a fork wait, not the reverse
            try:
                for last in (False, True):
                    self._check_place()
                    if self._connection is None:
                        self._connection = self._prepared()
                    with transaction(self._writer, self.run):  # who leaves these files waits for its end
                        if stored := last or file_ids(self._path) == self._files:
                            yield
                    if file_ids(self._path) != self._files:
                        self._open_again(is_stored=stored and not last)
                    if stored:
                        return
            except (sqlite3.Error, UnicodeDecodeError) as error:  # Python may fail at the text of SQLite's own message
                raise self._failure(error) from error

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute a statement on the writing connection. Raises StoreBusy, OSError."""
        try:
            return disk.execute(self._writer, self._path, sql, parameters)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # Python may fail at the text of SQLite's own message
            raise self._failure(error) from error

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute a query on the writing connection; return its cursor. The caller is inside `with self.writing()`."""
        return self._writer.execute(sql, parameters)

    def give_back(self) -> None:
        """Return free pages to the file system. Does nothing while another process writes: a later call will do it."""
        try:
            with self.writing():
                for _ in range(self._writer.execute("PRAGMA freelist_count").fetchone()[0]):
                    self.run("PRAGMA incremental_vacuum(1)")  # sqlite3 runs a single step of it, which frees one page
        except StoreBusy:
            pass
        except OSError as error:  # the deletion before is stored already
            log.warning("%s: free pages were not given back: %s", self.location, error)

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query, on a read-only connection; [] if there is no database."""
        return self.read(lambda db: db.execute(sql, parameters).fetchall(), [])

    def peek(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """Return all rows as `query` does, cheaper for frequent calls: the writer's thread uses its open connection."""
        with between_forks:
            mine = self._thread == threading.get_ident() and file_id(self._path) == self._file
            if not (mine and self._turn.acquire(blocking=False)):  # another thread may be amid a transaction
                return self.query(sql, parameters)
            try:
                return self.ask(sql, parameters).fetchall() if self._connection else self.query(sql, parameters)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise self._failure(error) from error
            finally:
                self._turn.release()

    def read(self, ask: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Return what `ask(connection)` returns, with a read-only connection; `otherwise` if there is no database.

        Readers have connections of their own, so they and the writer never wait for each other. Raises StoreBusy,
        StoreError if it cannot be read now, JournalCorrupt if SQLite cannot read it, SchemaTooNew, StoreUnusable.
        """
        if not exists(self._path):
            return otherwise
        try:
            with self.readers.connection() as db:
                return ask(db) if version_of(db, self.location) else otherwise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not exists(self._path):  # it was deleted after the check above
                return otherwise
            if later := not_read_now(error, self.location):
                raise later from error
            raise JournalCorrupt(self.location, f"SQLite cannot read it ({error})", None, self.location) from error

    def close(self) -> None:
        """Close all connections. SQLite moves the WAL into the database when the last connection closes."""
        with between_forks, self._turn:
            self.readers.close()
            if self._connection is not None:
                with self.readers.closing:
                    close_connection(self._connection, self._path, self._files)
            self._connection, self._thread = None, 0
            between_forks.idle.discard(self)

    def _check_place(self) -> None:
        if self._file and file_id(self._path) != self._file:
            raise OSError(
                f"{self.location} is gone: it was deleted, moved or replaced while a run was using it. Put it "
                "back, and start the run again"
            )

    def _open_again(self, *, is_stored: bool) -> None:
        """Open the files that are at the path now, as the log or the memory of the database was deleted or replaced.

        `is_stored`: whether a commit was made to the old ones. Raises OSError if nobody knows what became of it.
        """
        self._check_place()
        log.warning("%s-wal or -shm was deleted while it was in use: it is made again", self.location)
        moved = move_log(self._writer, self._path, self._files)  # while it is open: deleted, it ends with the process
        for one in [*between_forks.idle]:  # a new connection would share the memory of any other in this process
            if not isinstance(one, Database):
                one.close()
            elif one._file == self._file and one._turn.acquire(blocking=False):
                try:
                    one.close()
                finally:
                    one._turn.release()
        self._connection = self._prepared()
        if not self._files[2]:
            self.close()
            raise OSError(f"{self.location}-shm was deleted, and another thread still uses it. Start the run again")
        if is_stored and not moved:
            raise OSError(
                f"{self.location}-wal was deleted during a commit, which may be lost, as another process has begun a "
                "new one. Start the run again"
            )

    @property
    def _writer(self) -> sqlite3.Connection:
        assert self._connection is not None, "writing opens it"
        return self._connection

    def _prepared(self) -> sqlite3.Connection:
        """Open the writing connection: create the database and its tables, or migrate the tables, if needed."""
        self._connection, self._thread = disk.connect(self._path, make=not self._file), threading.get_ident()
        between_forks.idle.add(self)
        found = self._path.stat()
        self._file, self._files = (found.st_dev, found.st_ino), file_ids(self._path)
        try:
            if not found.st_size:
                self.run("PRAGMA auto_vacuum=INCREMENTAL")  # so that `give_back` can return the pages of deleted rows
            self._log_ahead()
            self.run("PRAGMA synchronous=FULL")
            self.run("PRAGMA wal_autocheckpoint=200")  # a WAL that is reused syncs twice as fast as one that grows
            with transaction(self._writer, self.run):
                new = version_of(self._writer, self.location) == 0
                if _layout(self._writer) < _LAYOUT:
                    sqlite_tables.migrate(self._writer)
                if new:
                    self.run(f"PRAGMA user_version={SCHEMA}")
            self._files = file_ids(self._path)
        except BaseException:
            self.close()
            raise
        return self._connection

    def _log_ahead(self) -> None:
        """Turn WAL on. If several processes do so in a new database at once, SQLite does not wait, so this retries."""
        until = steady() + disk.PATIENCE
        while True:
            try:
                self.run("PRAGMA journal_mode=WAL")
            except StoreBusy:
                if steady() >= until:
                    raise
                time.sleep(os.urandom(1)[0] / 12_800)  # a random time up to 20 ms, so that they do not collide again
            else:
                return

    def _failure(self, error: Exception) -> OSError:
        if _code_of(error) in _BUSY:
            return StoreBusy(self.location, disk.PATIENCE)
        text = f"{self.location}: {_words_of(error)}{self._refusing() if _code_of(error) == _READ_ONLY else ''}"
        return OSError(errno.ENOSPC, text) if _code_of(error) == _FULL else OSError(text)

    def _refusing(self) -> str:
        """Name the files that this process may not write. SQLite makes those beside a read-only database read-only."""
        files = [f"{self._path}{end}" for end in ("", "-wal", "-shm")]
        found = [one for one in (*files, str(self._path.parent)) if os.path.exists(one) and not os.access(one, os.W_OK)]
        return f" ({', '.join(found)} may not be written)" if found else ""


def is_database_file(path: Path) -> bool:
    """Return whether SQLite accepts a file as a database; False if it is empty, missing or cannot be opened."""
    return not problem_with_file(path)


@contextlib.contextmanager
def transaction(
    connection: sqlite3.Connection, run: Callable[[str], object], begin: str = "BEGIN IMMEDIATE"
) -> Iterator[None]:
    """Run the block in a transaction, which is rolled back if the block raises. `run` executes on the connection."""
    run(begin)
    try:
        yield
        run("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def problem_with_file(path: Path) -> str:
    """Return why SQLite cannot use a file as a database, and what to do; "" if it can.

    SQLite itself looks, because nothing else may open a database: see `disk.connect`.
    """
    another = "is not a SQLite database; choose another location"
    try:
        if not path.is_file() or path.stat().st_size < _SMALLEST:  # SQLite would accept it as a new database
            return another
        with Readers(path).connection() as db:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except OSError as error:
        return f"cannot be read ({error}); choose another location"
    except sqlite3.Error as error:
        if _code_of(error) == _NO_DATABASE:
            return another
        if remedy := _REMEDIES.get(_code_of(error)):
            return f"cannot be opened now ({_words_of(error)}). Nothing was changed: {remedy}, and try again"
    return ""


def _code_of(error: Exception) -> int:
    """Return SQLite's primary error code, without the details in its higher bits; 0 for an error that has no code.

    For a full disk SQLite has two codes: both are returned as `_FULL`.
    """
    code: int = getattr(error, "sqlite_errorcode", 0)
    return _FULL if code == _NO_SHARED_MEMORY else code & 0xFF


def not_read_now(error: Exception, location: str) -> StoreError | None:
    """Return the error for a database that SQLite does not read at the moment; None if it would not do so later."""
    if _code_of(error) in _BUSY:
        return StoreBusy(location, disk.PATIENCE)
    if remedy := _REMEDIES.get(_code_of(error)):
        return StoreError(location, f"cannot be read now ({_words_of(error)}); {remedy}, and try again")
    return None


def _words_of(error: Exception) -> str:
    """Return the text of an error of SQLite, which of a full disk may say no more than "disk I/O error"."""
    return f"{error}: the disk is full" if _code_of(error) == _FULL and "full" not in str(error) else str(error)


def version_of(db: sqlite3.Connection, location: str) -> int:
    """Return the schema number of a database; 0 if it is empty.

    Raises SchemaTooNew for a schema of a later release, StoreUnusable for a database of another program.
    """
    version, tables = db.execute(  # in one statement, as another process may be creating the tables
        "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()
    if version > SCHEMA:
        raise SchemaTooNew(location, version, SCHEMA)
    if version < 1 and tables:
        raise StoreUnusable(location, "is a database of another program; choose another location")
    return max(int(version), 0)


def _layout(db: sqlite3.Connection) -> int:
    """Return the number of migrations applied to a database."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name='_sqlite_migrations'").fetchone():
        return 0
    found = db.execute("SELECT count(*) FROM _sqlite_migrations WHERE migration_set='crewlite'").fetchone()
    return int(found[0])


def checkpoint_row(run_id: str, branch: str, checkpoint: CheckpointRecord) -> tuple[Any, ...]:
    """Build the row of a checkpoint, without its first column, the number of the branch."""
    seq, parent, label = checkpoint["seq"], checkpoint["parent"], checkpoint.get("label")
    named = (seq, parent, checkpoint["trigger"], checkpoint["address"], label, checkpoint["at"])
    return (checkpoint["id"], *named, row_digest([checkpoint["id"], run_id, branch, *named]))


def row_digest(row: Sequence[Any]) -> str:
    """Return a checksum of a checkpoint row, so that a listing detects changes without reading the journal."""
    return digest([item if isinstance(item, _PLAIN) else repr(item) for item in row])


class ResultRows:
    """The ResultCache of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def recall(self, key: str) -> bytes | None:
        rows = self._rows("SELECT data FROM cache WHERE key=?", key)
        return bytes(rows[0][0]) if rows else None

    def remember(self, key: str, data: bytes) -> None:
        with self._database.writing():
            self._put(key, data)

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        with self._database.writing():
            found = self._database.ask("SELECT data FROM cache WHERE key=?", (key,)).fetchone()
            if is_old := (bytes(found[0]) if found else None) == old:
                self._put(key, new)
        return is_old

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        rows = self._rows("SELECT key FROM cache WHERE at<?", before)
        if rows and not dry_run:
            with self._database.writing():
                self._database.run("DELETE FROM cache WHERE at<?", (before,))
            self._database.give_back()
        return len(rows)

    def _put(self, key: str, data: bytes) -> None:
        self._database.run("INSERT OR REPLACE INTO cache (key, at, data) VALUES (?,?,?)", (key, time.time(), data))

    def _rows(self, query: str, given: object) -> list[Any]:
        """Return rows of the cache table; none in a database of an earlier release that has no such table yet."""
        made = "SELECT 1 FROM sqlite_master WHERE name='cache'"
        return self._database.read(
            lambda db: db.execute(query, (given,)).fetchall() if db.execute(made).fetchone() else [], []
        )
