"""Copying a run to another location, to resume it there. The original is not changed."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

from crewlite.errors import BranchConflictError, RunExists
from crewlite.state.config import CheckpointConfig
from crewlite.state.providers import Commit, Store, provider_for
from crewlite.state.reading.locate import Located
from crewlite.state.verbs.transfer import commits


def is_elsewhere(found: Located, given: object) -> bool:
    """Return whether `given` sets a location explicitly, other than the location at which the run was found."""
    if not isinstance(given, CheckpointConfig) or "location" not in given.model_fields_set:
        return False
    return os.path.realpath(found.location) != os.path.realpath(given.location)


def copy_if_elsewhere(found: Located, given: object) -> Located:
    """Copy a branch, with the branches it is forked from, to the location that `given` sets, if the run is not there.

    Returns the branch at that location, or `found` if nothing is to be copied. A copy that was made earlier and resumed
    there is left as it is. Raises RunExists if a run of that name there is a different one, StoreError, OSError.
    """
    if not isinstance(given, CheckpointConfig) or not is_elsewhere(found, given):
        return found
    with contextlib.closing(found.provider.open(found.location)) as kept:
        copied = commits(kept, found.run_id, found.branch)
    provider = provider_for(given.location, given.provider)
    with contextlib.closing(provider.open(given.location)) as store:
        _copy(store, copied, found)
    return replace(found, provider=provider, location=given.location)


def _copy(store: Store, copied: list[Commit], found: Located) -> None:
    try:
        store.append(copied)
    except BranchConflictError:
        there = {info.branch: info.uid for info in store.branches(found.run_id)}
        for commit in copied:
            seq, total = commit.head
            same = commit.run and there.get(commit.branch) == commit.run["uid"]
            ahead = store.sum_at(commit.run_id, commit.branch, seq) == total
            named = found.checkpoint and any(one.run_id == found.run_id for one in store.places(found.checkpoint))
            if not same or not (ahead or named):
                known = there.get(commit.branch, "nothing")
                raise RunExists(found.run_id, store.location, found.location, found=known, wanted=total) from None
