"""Who is at work on a branch: a run of this process, or one that lives elsewhere.

Every verb that must not disturb a run at work asks here. It looks at the branches that this process writes, and at the
claim in the record.
"""

from __future__ import annotations

from crewlite.state.format.commit import Claim
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.writer import at_work
from crewlite.state.providers import Store


def holder(store: Store, run_id: str, branch: str, claim: Claim | None) -> str | None:
    """Who is at work on a branch whose record has this claim, such as "process 7 on lamp"; None if nobody is."""
    return holder_at(store.location, run_id, branch, claim, store.touched(run_id, branch))


def holder_at(location: str, run_id: str, branch: str, claim: Claim | None, touched: float) -> str | None:
    """`holder`, without a store; `touched` is the last sign of life, in seconds since the epoch."""
    return "this process" if at_work(location, run_id, branch) else held_by(claim, touched)
