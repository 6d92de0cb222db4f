"""Branches whose runs have ended here, and whose release could not be stored: it is stored once the store works again.

As long as this process lives, the others take it for the holder: they refuse the branch, or wait for it in vain.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from crewlite.concurrency.background import ordinary
from crewlite.errors import StoreUnusable, text_of
from crewlite.state.format.commit import CommitParts
from crewlite.state.journal.claim import is_left
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import BranchKey, Commit, Store

log = logging.getLogger("crewlite.state")


def release_owed(owed: dict[BranchKey, CommitParts], store: Store, released: Callable[[], object]) -> None:
    """Try to release the branches that are still `owed`, each with a commit of its parts, and call `released` for each.

    What is released is taken out of `owed`. A location that was replaced is given up.
    """
    for branch, parts in [*owed.items()]:
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
        store.append([Commit.saying(run_id, branch, record.head, parts)])
