"""The files of a SQLite database that connections have open: what becomes of commits if they are deleted or replaced.

SQLite notices neither. A connection goes on with the files that it has opened: its log, and the memory in which all
connections to that log note how long it is. The last one to be closed moves the log to the database, and deletes the
log at the path, which others may have begun since. This happens without malice: a program that copies its own database
drops its locks, and the next process that closes the database deletes the log.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from crewlite.ids import new_id
from crewlite.lazy import sqlite3
from crewlite.state.providers.locations import FileId, file_id
from crewlite.system import disk

FileIds = tuple[FileId | None, FileId | None, FileId | None]
"""Those of a database, of its log, and of the memory that its connections share; None for what does not exist."""


def file_ids(path: Path) -> FileIds:
    """Return the ids of the files of the database at a path."""
    return file_id(path), file_id(f"{path}-wal"), file_id(f"{path}-shm")


def close_connection(db: sqlite3.Connection, path: Path, files: FileIds) -> None:
    """Close a connection that has these files open, and keep the log that others have begun in their place."""
    database, _, memory = found = file_ids(path)
    replaced = found != files and database == files[0]  # SQLite itself leaves a log alone if the database was moved
    if replaced:
        with contextlib.suppress(sqlite3.Error):  # a process that still has this log moves it later
            db.execute("PRAGMA query_only=OFF")
            move_log(db, path, files)
    others = replaced and (memory not in (None, files[2]) or _others_write(path, files))
    with _log_kept(db, path) if others else contextlib.nullcontext():
        db.close()


def move_log(db: sqlite3.Connection, path: Path, files: FileIds) -> bool:
    """Move the log of a connection to the database if the log or its memory was deleted and others have begun no other.

    Whoever is the first to notice does so for all who have these files open. Returns whether all that the log holds is
    found by whoever opens the database now. Raises sqlite3.Error if it cannot be moved now.
    """
    _, log, memory = file_ids(path)
    if memory not in (None, files[2]) or _others_write(path, files):
        return log == files[1]
    busy, length, moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # another mode waits for others
    if busy or length != moved:
        raise sqlite3.OperationalError("another process reads what a deleted log holds")
    if memory and log != files[1]:  # who opens the database next is not to use this memory with another log
        db.execute("BEGIN IMMEDIATE")
        try:
            if file_id(f"{path}-shm") == memory and not _others_write(path, files):
                disk.remove(f"{path}-shm")
        finally:
            db.execute("ROLLBACK")
    return True


def _others_write(path: Path, files: FileIds) -> bool:
    """Return whether others have begun a log in the place of one that was deleted."""
    return file_ids(path)[1] != files[1] and disk.size(f"{path}-wal") > 0


@contextlib.contextmanager
def _log_kept(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Keep the log at a path while a connection that has other files open is closed in the block."""
    if sys.version_info >= (3, 12):
        db.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
        yield
        return
    log, other_name = Path(f"{path}-wal"), Path(f"{path}-wal-{new_id()}")
    with contextlib.suppress(OSError):  # nobody has begun one, or the file system knows no second names
        os.link(log, other_name)  # no write: it has a second name while SQLite may remove the first
    yield
    with contextlib.suppress(FileExistsError, FileNotFoundError):  # SQLite has left the log, or it had no other name
        os.link(other_name, log)  # which takes no name from a log that has been begun meanwhile, as a rename would
    disk.remove(other_name)
