"""Append commits to branches that other processes may write to at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from crewlite.errors import BranchConflictError
from crewlite.state.providers import Store
from crewlite.state.providers.base import Commit

T = TypeVar("T")
_TRIES = 20  # others may commit meanwhile, though hardly that often in a row


def appended(store: Store, make: Callable[[], tuple[Sequence[Commit], T]]) -> T:
    """Append the commits that `make` builds from what is recorded, and return the value that it returns beside them.

    If another process has committed meanwhile, `make` is called again. Without commits, nothing is written. Raises
    what `make` raises, and BranchConflictError if others were faster each time.
    """
    for left in reversed(range(_TRIES)):
        commits, value = make()
        try:
            if commits:
                store.append(commits)
            break
        except BranchConflictError:
            if not left:
                raise
    return value
