"""Find the live process that runs a branch: this process, or another.

Every verb that must not disturb a running branch calls `holder`. It checks the branches that this process writes, and
the recorded claim of the branch, which names the process that acquired the branch last.
"""

from __future__ import annotations

from crewlite.state.format.commit import Claim
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.writer import at_work
from crewlite.state.providers import Store


def holder(store: Store, run_id: str, branch: str, claim: Claim | None) -> str | None:
    """Return the live process that runs a branch, such as "process 7 on lamp" (its host); None if none does.

    `claim`: the claim of the branch as recorded; None if the branch was released.
    """
    return holder_at(store.location, run_id, branch, claim, store.touched(run_id, branch))


def holder_at(location: str, run_id: str, branch: str, claim: Claim | None, touched: float) -> str | None:
    """Return what `holder` returns, without a store. `touched`: the last sign of life, in seconds since the epoch."""
    return "this process" if at_work(location, run_id, branch) else held_by(claim, touched)
