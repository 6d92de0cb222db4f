"""The result cache of a database: one row for each result of a step that other runs may reuse."""

from __future__ import annotations

import time
from typing import Any

from crewlite.state.providers.sqlite_database import Database


class ResultRows:
    """The results of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def recall(self, key: str) -> bytes | None:
        """Return the bytes last remembered under `key`; None if there are none."""
        rows = self._rows("SELECT data FROM cache WHERE key=?", key)
        return bytes(rows[0][0]) if rows else None

    def remember(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, replacing earlier data of that key. Raises OSError if storage fails."""
        with self._database.writing():
            self._put(key, data)

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Store `new` under `key` if `old` is stored there, and return whether it was. Raises OSError."""
        with self._database.writing():
            found = self._database.ask("SELECT data FROM cache WHERE key=?", (key,)).fetchone()
            if is_old := (bytes(found[0]) if found else None) == old:
                self._put(key, new)
        return is_old

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        """Delete results remembered before `before`, in seconds since the epoch. Returns their number."""
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
