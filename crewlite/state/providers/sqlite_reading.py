"""The connections with which a SQLite database is read."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from crewlite.lazy import sqlite3
from crewlite.state.providers.locations import file_id
from crewlite.state.providers.open_files import FileIds, close_connection, file_ids
from crewlite.system import disk
from crewlite.system.forked import between_forks, lock


class Readers:
    """The connections for queries on the database at a path. Threads that read never wait for each other."""

    def __init__(self, path: Path) -> None:
        self.holds = False
        """Whether a connection stays open after its use, for the next one, until `close`."""
        self.closing = lock()
        """Held while a connection is closed. The last one moves the log to the database; of two at once, neither is."""
        self._path = path
        self._spare: deque[tuple[sqlite3.Connection, FileIds]] = deque()  # threads may take from it at any moment
        """The open connections that no thread uses, each with its files."""

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Use a spare connection, or a new one."""
        with between_forks:
            file = file_id(self._path)  # before it is opened: if it is replaced just then, it is not kept
            db, keeps = self._take() or _opened(self._path)
            try:
                yield db
            except BaseException:
                self._close(db)
                raise
            files = file_ids(self._path)
            if not (file and keeps and self.holds and file == files[0]):
                self._close(db)
                return
            between_forks.idle.add(self)
            self._spare.append((db, files))
            if not self.holds:  # another thread has closed the store meanwhile
                self.close()

    def close(self) -> None:
        """Close the spare connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._close(*self._spare.pop())

    def _take(self) -> tuple[sqlite3.Connection, bool] | None:
        """Take a spare connection to the files that are there; None if there is none. Closes one to other files."""
        with contextlib.suppress(IndexError):  # another thread may be faster
            db, files = self._spare.pop()
            if files == file_ids(self._path):
                return db, True
            self._close(db, files)
        return None

    def _close(self, db: sqlite3.Connection, files: FileIds | None = None) -> None:
        with self.closing:
            close_connection(db, self._path, files or file_ids(self._path))


def as_text(data: bytes) -> str:
    """Decode a text. Bad UTF-8 becomes lone surrogates, so that it fails its row and not the complete query."""
    return data.decode("utf-8", "surrogateescape")


def _opened(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open a connection for queries. Return it, and whether it sees what others write while it is open.

    If the file is writable, it does, and SQLite may recover the WAL of a killed writer.
    """
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    db = disk.connect(path, read_only=not writable)
    try:
        if writable:
            db.execute("PRAGMA query_only=ON")
        db.text_factory = as_text
    except BaseException:
        db.close()
        raise
    return db, writable
