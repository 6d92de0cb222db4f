"""The reference provider, in memory: the tests require every other provider to answer as it does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from crewlite.errors import BranchConflictError
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry, Head
from crewlite.state.format.rewinds import abandoned, rewinds_of
from crewlite.state.providers import reading, writing
from crewlite.state.providers.base import BranchInfo, BranchKey, CheckpointInfo, Commit, End
from crewlite.system.forked import lock


class InMemoryProvider:
    """Stores runs in this object, until it is garbage-collected. A location is any name."""

    name = "memory"
    in_memory = True

    def __init__(self) -> None:
        self._stores: dict[str, _MemoryStore] = {}

    def open(self, location: str) -> _MemoryStore:
        """Return the store of that name: the same one at every call."""
        return self._stores.setdefault(location, _MemoryStore(location))


class _MemoryStore:
    def __init__(self, location: str) -> None:
        self.location = location
        self._journals: dict[BranchKey, list[Entry]] = {}
        self._touched: dict[BranchKey, float] = {}
        self.results = _MemoryResults()
        self._lock = lock()

    def append(self, commits: Sequence[Commit]) -> None:
        with self._lock:
            there = {run for run, _ in self._journals}
            try:
                for commit in commits:
                    key, lacking = commit.key, self._lacking(commit)
                    self._journals.setdefault(key, []).extend(lacking)
                    self._touched[key] = writing.committed_at(commit)
            except BranchConflictError:
                for key in [key for key in self._journals if key[0] not in there]:
                    del self._journals[key], self._touched[key]
                raise

    def read(self, run_id: str, branch: str) -> list[Entry]:
        with self._lock:
            return list(self._journals.get((run_id, branch), ()))

    def sum_at(self, run_id: str, branch: str, seq: int) -> str | None:
        return next((entry.sum for entry in self.read(run_id, branch) if entry.seq == seq), None)

    def ended(self, branches: Iterable[BranchKey]) -> dict[BranchKey, End]:
        journals = {key: self._journals.get(key, [])[: -reading.LAST - 1 : -1] for key in branches}
        records = {key: [(entry.body, entry.seal) for entry in last] for key, last in journals.items()}
        return {key: end for key, last in records.items() if (end := reading.end_of(last))}

    def touched(self, run_id: str, branch: str) -> float:
        return self._touched.get((run_id, branch), 0.0)

    def rewrite(self, run_id: str, branch: str, own: Sequence[Entry], entries: Sequence[Entry]) -> None:
        with self._lock:
            forks = self._branches(run_id)
            found = [(entry.seq, entry.seal) for entry in self._journals.get((run_id, branch), ())]
            writing.check_rewrite(self.location, run_id, branch, own, entries, found=found, forks=forks)
            self._journals[run_id, branch] = list(entries)

    def remove(self, run_id: str, heads: Mapping[str, Head]) -> None:
        with self._lock:
            mine = [key for key in self._journals if key[0] == run_id]
            writing.check_remove(run_id, heads, {branch: self._head(run_id, branch) or (0, "") for _, branch in mine})
            for key in mine:
                del self._journals[key], self._touched[key]

    def branches(self, run_id: str | None = None) -> list[BranchInfo]:
        with self._lock:
            return reading.in_order(self._branches(run_id))

    def places(self, part: str = "", *, limit: int | None = None, before: str | None = None) -> list[CheckpointInfo]:
        with self._lock:
            found = [
                reading.checkpoint_info(journal[0].commit["run"], checkpoint, ranges)
                for journal in self._journals.values()
                for ranges in [abandoned(rewinds_of(journal))]
                for checkpoint in reading.live_checkpoints(journal)
                if part in checkpoint["id"] and (before is None or checkpoint["id"] < before)
            ]
        return sorted(found, key=lambda checkpoint: checkpoint.id, reverse=True)[:limit]

    def ref(self, checkpoint: CheckpointRecord) -> str:
        return f"{self.location}#{checkpoint['id']}"

    def close(self) -> None:
        """Do nothing: the provider keeps the store, and can open it again."""

    def _branches(self, run_id: str | None) -> list[BranchInfo]:
        return [
            reading.branch_info(journal[0]) for (run, _), journal in self._journals.items() if run_id in (None, run)
        ]

    def _lacking(self, commit: Commit) -> tuple[Entry, ...]:
        head = self._head(*commit.key)
        lacking = commit.beyond(head)
        base = commit.run.get("base") if commit.run else None
        if lacking and base:
            sums = {entry.seq: entry.sum for entry in self._journals.get((commit.run_id, base["branch"]), ())}
            writing.check_base(commit, base, sums.get, lambda: min(sums))
        if lacking is None:
            if head is None:
                raise writing.no_branch(*commit.key, commit.after)
            raise BranchConflictError(*commit.key, expected=commit.after, found=head[0])
        return lacking

    def _head(self, run_id: str, branch: str) -> Head | None:
        journal = self._journals.get((run_id, branch))
        return journal[-1].head if journal else None


class _MemoryResults:
    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._lock = lock()

    def recall(self, key: str) -> bytes | None:
        _, data = self._kept.get(key, (0.0, None))
        return data

    def remember(self, key: str, data: bytes) -> None:
        with self._lock:
            self._kept[key] = (time.time(), data)

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        with self._lock:
            if is_old := self.recall(key) == old:
                self._kept[key] = (time.time(), new)
        return is_old

    def forget(self, before: float, *, dry_run: bool = False) -> int:
        with self._lock:
            old = [key for key, (at, _) in self._kept.items() if at < before]
            for key in old if not dry_run else ():
                del self._kept[key]
        return len(old)
