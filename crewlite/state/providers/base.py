"""The port to storage: a provider opens a location, a store keeps the journals of its runs.

Everything crewlite knows is in the entries; a store only has to keep them in order, whole, and answer which branches
and places it holds. `crewlite.testing.check_provider` tells whether it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from crewlite.refs import check_name
from crewlite.state.entry import Entry


@dataclass(frozen=True, slots=True)
class Commit:
    """Entries to add to one branch, all or none, right after the entry `after` whose sum is `after_sum`."""

    run_id: str
    branch: str
    after: int
    """The seq the branch must be at; 0 makes the branch, which must not exist."""
    after_sum: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        check_name("run_id", self.run_id)
        check_name("branch", self.branch, slashes=True)

    def beyond(self, seq: int, total: str) -> tuple[Entry, ...] | None:
        """The entries that a branch lacks whose last one is `seq`, with sum `total`.

        All of them, or the rest if it has some already (a write may arrive and be reported as failed), or None if the
        branch is where this commit does not expect it.
        """
        if (seq, total) == (self.after, self.after_sum):
            return self.entries
        sums = [entry.sum for entry in self.entries]
        return self.entries[sums.index(total) + 1 :] if total in sums else None


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """What a listing tells of a branch without reading its journal."""

    run_id: str
    branch: str
    uid: str
    """Time-ordered id of the run's beginning: newer runs have greater ones."""
    identity: str
    """Digest of the definition's kind, name and task keys."""
    kind: str
    name: str
    started_at: str


@dataclass(frozen=True, slots=True)
class PlaceInfo:
    """What a listing tells of a place."""

    id: str
    run_id: str
    branch: str
    seq: int
    trigger: str
    created_at: str


class Store(Protocol):
    """An opened location. `append` is called from one thread at a time, the reading verbs from any."""

    location: str

    def append(self, commits: Sequence[Commit]) -> None:
        """Add the commits durably before returning: each entry whole or not at all, none without those before it.

        Raises BranchConflictError if a branch is not where its commit expects it, OSError if storage fails; then any
        of the entries may be stored already. Appending what is stored already is no error, so trying again is safe,
        also with a commit that begins with what is stored and goes on (see Commit.beyond).
        An entry whose facts hold a `place` names a checkpoint; one whose facts hold `drops` takes checkpoints away.
        """

    def read(self, run_id: str, branch: str) -> list[Entry]:
        """The whole journal of a branch, verified; [] if there is none. A torn tail is left out.

        Raises JournalCorrupt naming the newest sound place, or SchemaTooNew.
        """

    def branches(self) -> list[BranchInfo]:
        """All branches, newest run first."""

    def places(self, part: str = "") -> list[PlaceInfo]:
        """All places whose id contains `part`, newest first."""

    def ref(self, place: dict[str, Any]) -> str:
        """The text that names this place from anywhere: a file path, or `db#id`."""

    def close(self) -> None:
        """Let go of files and connections. Called once."""


@runtime_checkable
class BaseProvider(Protocol):
    """A kind of storage. Write one of your own by giving it a name and an `open`."""

    name: str

    def open(self, location: str) -> Store:
        """Open a location for reading and writing, making it if need be. Raises StoreUnusable."""
