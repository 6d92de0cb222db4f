"""Compaction of stored branches: of one on request, and of a branch at work whenever it has grown enough."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from crewlite.concurrency.background import ordinary
from crewlite.errors import text_of
from crewlite.state.journal.compaction import compact_entries, size
from crewlite.state.journal.lineage import journals_of_branch, standing_on
from crewlite.state.providers import BranchInfo, Store

log = logging.getLogger("crewlite.state")
_FIRST_COMPACTION = 64  # commits; then whenever the branch has doubled, so that it costs no more than writing


@dataclass(eq=False)
class Upkeep:
    """What compactions of a branch at work have to know. The thread that writes the branch calls `compact`."""

    bases: frozenset[str] = frozenset()
    """The ids of the checkpoints of this branch that forks start from."""
    is_due: bool = False
    """Whether checkpoints were dropped since the forks were last listed."""
    pinned: set[int] = field(default_factory=set)
    """The numbers of commits that are getting a manual checkpoint now, so that compaction must keep them."""
    compacted: int = 0
    """The number of the branch's last commit at its last compaction."""

    def compact(self, store: Store, run_id: str, branch: str, seq: int) -> None:
        """List the forks of a branch that ends at commit `seq`, and compact it if it has grown enough. Logs errors."""
        self.is_due = False
        try:
            self.bases = bases(store.branches(run_id), branch)
            if seq >= 2 * self.compacted + _FIRST_COMPACTION:
                self.compacted = seq  # before `pinned` is read: see manual.name_checkpoint
                compact_branch(store, run_id, branch, tuple(self.pinned))
        except BaseException as error:  # whatever storage raises, the thread goes on
            about, problem = {"run_id": run_id, "branch": branch}, text_of(ordinary(error))
            log.warning("%s/%s could not be compacted: %s", run_id, branch, problem, extra=about)


def compact_branch(store: Store, run_id: str, branch: str, pinned: Iterable[int] = ()) -> int:
    """Compact a branch in its store, and return the number of bytes freed. `pinned` are numbers of commits to keep.

    Raises BranchConflictError if another process writes to the branch meanwhile, OSError if storage fails; nothing has
    changed then.
    """
    journals = journals_of_branch(store, run_id, branch)
    if not journals:
        return 0  # it was deleted
    own = journals[branch]
    pins = pinned_by_forks(store.branches(run_id), branch).union(pinned)
    kept = compact_entries(standing_on(journals, branch), own, pins)
    freed = size(own) - size(kept)
    if freed > 0:
        store.rewrite(run_id, branch, own, kept)
    return max(0, freed)


def bases(branches: Iterable[BranchInfo], branch: str) -> frozenset[str]:
    """Return the ids of the checkpoints of a branch that forks start from. `branches` are all branches of the run."""
    found = (info.base for info in branches if info.base)
    return frozenset(base["place"]["id"] for base in found if base["branch"] == branch and base["place"])


def pinned_by_forks(branches: Iterable[BranchInfo], branch: str) -> set[int]:
    """Return the numbers of the commits of a branch that forks start from, and those of the checkpoints there."""
    found = [info.base for info in branches if info.base and info.base["branch"] == branch]
    return {base["seq"] for base in found} | {base["place"]["seq"] for base in found if base["place"]}
