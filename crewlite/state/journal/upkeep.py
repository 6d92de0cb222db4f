"""What the thread that writes does for branches beside their commits: compaction, and releases that are still owed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crewlite.concurrency.background import ordinary
from crewlite.errors import StoreUnusable, text_of
from crewlite.state.format.commit import CommitParts
from crewlite.state.journal.claim import is_left
from crewlite.state.journal.compaction import compact_entries, size
from crewlite.state.journal.lineage import find_lineage, inherited_entries, journals_of_branch
from crewlite.state.providers import BranchInfo, BranchKey, Commit, Store
from crewlite.texts.logs import logger

log = logger("crewlite.state")
_FIRST_COMPACTION = 64  # commits; then whenever the branch has doubled, so that it costs no more than writing


@dataclass(eq=False)
class Upkeep:
    """What the compaction of a branch needs to know while a run writes it. The thread that writes calls `compact`."""

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


def release_owed(owed: dict[BranchKey, CommitParts], store: Store, released: Callable[[], object]) -> None:
    """Try to release the branches that are still `owed`, each with a commit of its parts, and call `released` for each.

    Their runs have ended here, and as long as this process lives, the others take it for the holder: they refuse the
    branch, or wait for it in vain. What is released is taken out of `owed`. A location that was replaced is given up.
    """
    for branch in list(owed):
        if (parts := owed.get(branch)) is None:  # the run was kicked off again meanwhile
            continue
        try:
            with contextlib.suppress(StoreUnusable):
                _release(store, *branch, parts)
        except BaseException as error:  # whatever storage raises: it is tried again, and the run has told of it
            log.debug("%s/%s is not released yet: %s", *branch, text_of(ordinary(error)))
        else:
            if owed.pop(branch, None) is not None:
                released()


def _release(store: Store, run_id: str, branch: str, parts: CommitParts) -> None:
    """Commit these parts to a branch, unless it was released, deleted or claimed anew meanwhile."""
    record = find_lineage(store, run_id, branch).record()
    if record.claim and is_left(record.claim):
        store.append([Commit.of(run_id, branch, record.head, parts)])


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
    kept = compact_entries(inherited_entries(journals, branch), own, pins)
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
