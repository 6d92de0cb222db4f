"""What a compacted commit tells of the commits that it replaces: which they are, and which part of it is from which.

Everything that a compaction keeps has the number of the commit that recorded it. What came first decides what still
counts, so a run goes on from a compacted journal as it does from the whole one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired

from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.state.format.fields import Event, Hex, Number


class Compacted(TypedDict):
    """The commits that one commit replaces after a compaction: the number of the first, the checksum of the last.

    Compactions by early releases wrote no more, and gave everything the number of the last commit.
    """

    first: Number
    sum: Hex
    claims: NotRequired[list[Number]]
    """The numbers of the commits with which claims began or ended."""
    events: NotRequired[list[Number]]
    """The number of the commit of each event; left out if there are no events."""


def check_compacted(folded: Compacted, seq: int, events: Sequence[Event]) -> None:
    """Raise ValueError unless commit `seq` with these events can replace these commits."""
    if folded["first"] > seq:
        raise ValueError("it ends before it begins")
    if "events" in folded and len(folded["events"]) != len(events):
        raise ValueError(f"it has {len(events)} events, and lists the commits of {len(folded['events'])}")


def is_numbered(folded: Compacted | None) -> bool:
    """Return whether what a commit holds has the numbers of the commits that recorded it."""
    return folded is None or "claims" in folded
