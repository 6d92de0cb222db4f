"""The reference provider: what the others must answer, without a disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from crewlite.errors import BranchConflictError
from crewlite.state.entry import Entry
from crewlite.state.providers.base import BranchInfo, Commit, PlaceInfo
from crewlite.state.providers.reading import branch_info, live_places


class InMemoryProvider:
    """Keeps runs in this provider object, for as long as it lives. Locations are just names."""

    name = "memory"

    def __init__(self) -> None:
        self._stores: dict[str, _MemoryStore] = {}

    def open(self, location: str) -> _MemoryStore:
        """The store of that name; the same one every time."""
        return self._stores.setdefault(location, _MemoryStore(location))


class _MemoryStore:
    def __init__(self, location: str) -> None:
        self.location = location
        self._journals: dict[tuple[str, str], list[Entry]] = {}
        self._lock = threading.Lock()

    def append(self, commits: Sequence[Commit]) -> None:
        with self._lock:
            for commit in commits:
                journal = self._journals.get((commit.run_id, commit.branch), [])
                seq, total = (journal[-1].seq, journal[-1].sum) if journal else (0, "")
                lacking = commit.beyond(seq, total)
                if lacking is None:
                    raise BranchConflictError(commit.run_id, commit.branch, expected=commit.after, found=seq)
                self._journals.setdefault((commit.run_id, commit.branch), journal).extend(lacking)

    def read(self, run_id: str, branch: str) -> list[Entry]:
        with self._lock:
            return list(self._journals.get((run_id, branch), ()))

    def branches(self) -> list[BranchInfo]:
        with self._lock:
            infos = [branch_info(journal[0]) for journal in self._journals.values()]
        return sorted(infos, key=lambda info: info.uid, reverse=True)

    def places(self, part: str = "") -> list[PlaceInfo]:
        with self._lock:
            found = [p for journal in self._journals.values() for p in live_places(journal) if part in p.id]
        return sorted(found, key=lambda place: place.id, reverse=True)

    def ref(self, place: dict[str, Any]) -> str:
        return f"{self.location}#{place['id']}"

    def close(self) -> None:
        """Nothing is held open; what was written stays."""
