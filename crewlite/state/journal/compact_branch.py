"""Compaction of a branch in its store, which keeps everything that checkpoints and forks need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crewlite.state.format.entry import Entry
from crewlite.state.journal.compaction import compact_entries, size
from crewlite.state.journal.lineage import journals_of_branch, standing_on
from crewlite.state.providers import BranchInfo, Store


def bases(branches: Iterable[BranchInfo], branch: str) -> frozenset[str]:
    """Return the ids of the checkpoints of a branch that forks start from. `branches` are all branches of the run."""
    found = (info.base for info in branches if info.base)
    return frozenset(base["place"]["id"] for base in found if base["branch"] == branch and base["place"])


def compact_branch(store: Store, run_id: str, branch: str, pinned: Iterable[int] = ()) -> int:
    """Compact a branch in its store, and return the number of bytes freed. `pinned` are numbers of commits to keep.

    Raises BranchConflictError if another process writes to the branch meanwhile, OSError if storage fails; nothing has
    changed then.
    """
    journals = journals_of_branch(store, run_id, branch)
    if not journals:
        return 0  # it was deleted
    own = journals[branch]
    kept = compacted_entries(branch, standing_on(journals, branch), own, store.branches(run_id), pinned)
    freed = size(own) - size(kept)
    if freed > 0:
        store.rewrite(run_id, branch, own, kept)
    return max(0, freed)


def compacted_entries(
    branch: str,
    before: Sequence[Entry],
    own: Sequence[Entry],
    branches: Sequence[BranchInfo],
    pinned: Iterable[int] = (),
) -> list[Entry]:
    """Return the entries of a branch, compacted.

    `before` are the inherited entries, `own` those of the branch itself, `branches` all branches of the run, `pinned`
    numbers of commits to keep.
    """
    stands = set(pinned)
    for fork in (info.base for info in branches if info.base):
        if fork["branch"] == branch:
            stands |= {fork["seq"]} | ({fork["place"]["seq"]} if fork["place"] else set())
    return compact_entries(before, own, stands)
