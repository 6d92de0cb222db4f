"""The result cache of a directory: one small file for each result of a step that other runs may reuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from crewlite.system import disk
from crewlite.system.file_locks import locked


class ResultFiles:
    """The ResultCache of one location. `make()` creates the location before the first result is stored."""

    def __init__(self, root: Path, make: Callable[[], None]) -> None:
        self._root = root / "cache"
        self._lock = self._root / "~locks" / "all"
        self._make = make

    def recall(self, key: str) -> bytes | None:
        return disk.content(self._path(key))

    def remember(self, key: str, data: bytes) -> None:
        self._prepare()
        with locked([self._lock]):
            disk.replace(self._path(key), data)

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        self._prepare()
        with locked([self._lock]):
            if is_old := self.recall(key) == old:
                disk.replace(self._path(key), new)
        return is_old

    def _prepare(self) -> None:
        if not (self._root / ".gitignore").exists():
            self._make()
            disk.make_directory(self._root)
            disk.replace(self._root / ".gitignore", b"*\n")

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        old = [path for path in self._root.glob("*.json") if modified(path) < before]
        if dry_run or not old:
            return len(old)
        with locked([self._lock]):
            old = [path for path in old if modified(path) < before]  # one may have been remembered again meanwhile
            for path in old:
                disk.remove(path)
        return len(old)

    def _path(self, key: str) -> Path:
        return self._root / f"{key}.json"


def modified(path: Path) -> float:
    """Return the time of the last write of a file, in seconds since the epoch; infinity if it does not exist."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has deleted it
        return math.inf
