"""Which commits recorded the intents of calls, also after a compaction has left the intents out or moved them."""

from __future__ import annotations

from crewlite.state.format.commit import Commit
from crewlite.state.format.compacted import is_numbered


def intended_in(commit: Commit) -> dict[str, int]:
    """Return the number of the commit that recorded the intent of each call in this commit, by address."""
    numbers = {address: commit["seq"] for address, *_ in commit.get("intents", ())}
    if is_numbered(commit.get("folded")):  # else the outcomes merged with these calls have the number of this commit
        numbers |= {call["address"]: call["seq"] for call in commit.get("made", ())}
    return numbers
