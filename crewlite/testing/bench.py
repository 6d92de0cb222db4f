"""The workbench of the provider laws: a location, the stores opened there, and branches made as a run makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crewlite.ids import new_id, now
from crewlite.state.entry import SCHEMA, Entry, Facts, seal
from crewlite.state.locate import Located, locate
from crewlite.state.providers import BaseProvider, Commit, Store


class Bench:
    """What a law works on: one provider, one location, and the stores opened there."""

    def __init__(self, provider: BaseProvider, location: str) -> None:
        self.provider, self.location = provider, location
        self._open: list[Store] = []

    def open(self) -> Store:
        """Open the location once more."""
        store = self.provider.open(self.location)
        self._open.append(store)
        return store

    def close(self, store: Store) -> None:
        """Close a store before the law ends."""
        self._open.remove(store)
        store.close()

    def find(self, ref: str) -> Located:
        """What a ref names, as a resume would ask."""
        return locate(ref, self.location, self.provider, None)

    def clear(self) -> None:
        """Close what is open."""
        while self._open:
            self._open.pop().close()


class Branch:
    """Makes the entries of one branch, as a run would, and the commits that bring them to a store."""

    def __init__(self, run_id: str = "run-1", branch: str = "main", *, name: str = "check", identity: str = "") -> None:
        self.run_id, self.branch, self.uid = run_id, branch, new_id()
        self.name, self.identity = name, identity or f"identity of {name}"
        self.entries: list[Entry] = []
        self._committed = 0

    def add(self, count: int = 1, **facts: Any) -> Branch:
        """The next entries: the first begins the run, the others record a step."""
        for _ in range(count):
            seq = len(self.entries) + 1
            own: Facts = self._beginning() if seq == 1 else {"steps": [_step(seq)]}
            whole = {"schema": SCHEMA, "seq": seq, "at": now().isoformat(), **own, **facts}
            self.entries.append(seal(whole, after=self._sum(seq - 1)))
        return self

    def place(self, *, drops: Sequence[str] = ()) -> Facts:
        """An entry that names a place, and takes others away. Returns the facts of the place."""
        more: Facts = {"drops": [[gone, None] for gone in drops]} if drops else {}
        place: Facts = {
            "id": new_id(),
            "seq": len(self.entries) + 1,
            "parent": None,
            "trigger": "task_completed",
            "address": "task:write",
            "about": {"finished_tasks": 1, "tokens": 7},
            "at": now().isoformat(),
        }
        self.add(place=place, **more)
        return place

    def commit(self) -> Commit:
        """All entries that no commit before held."""
        start, self._committed = self._committed, len(self.entries)
        return self.part(start, self._committed)

    def part(self, start: int, stop: int) -> Commit:
        """The entries from `start` up to `stop`, counted from 0."""
        return Commit(self.run_id, self.branch, start, self._sum(start), tuple(self.entries[start:stop]))

    def fork(self) -> Branch:
        """Somebody else at work on the same branch, from what is committed so far."""
        other = Branch(self.run_id, self.branch, name=self.name, identity=self.identity)
        other.entries, other._committed = self.entries[: self._committed], self._committed
        return other

    def _sum(self, seq: int) -> str:
        return self.entries[seq - 1].sum if seq else ""

    def _beginning(self) -> Facts:
        definition = {"kind": "crew", "name": self.name, "tasks": [{"address": "task:write", "description": "Write."}]}
        return {
            "run": {
                "run_id": self.run_id,
                "branch": self.branch,
                "uid": self.uid,
                "identity": self.identity,
                "definition": definition,
                "inputs": {"topic": "tides"},
            }
        }


def _step(seq: int) -> Facts:
    return {"address": f"task:write/llm#{seq}", "kind": "llm", "value": {"text": f"reply {seq}"}, "ms": 1.5}
