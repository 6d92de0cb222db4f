"""Rewinds of a branch: which commits are valid after a rewind, and which it abandoned.

A rewind erases nothing. Its commit names the earlier one from which the run continues; the commits between the two
stay readable, and are valid again if a later rewind goes back to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crewlite.state.format.entry import Entry

Rewound = tuple[int, int]
"""(number of the commit that rewinds, number of the commit that it goes back to)"""
Ranges = tuple[tuple[int, int], ...]
"""Ranges of abandoned commits, each as (the valid commit before it, the valid commit after it)."""


def rewinds_of(entries: Iterable[Entry]) -> list[Rewound]:
    """Return the rewinds among these entries, in order."""
    return [(entry.first, back["seq"]) for entry in entries if (back := entry.commit.get("rewind"))]


def abandoned(rewinds: Iterable[Rewound]) -> Ranges:
    """Return the ranges of commits that these rewinds of a branch, in order, have abandoned."""
    found: list[tuple[int, Ranges]] = []
    for number, back in rewinds:
        before = next((ranges for earlier, ranges in reversed(found) if earlier <= back), ())
        found.append((number, (*before, (back, number))))
    return found[-1][1] if found else ()


def ends_of_tails(entries: Sequence[Entry]) -> list[int]:
    """Return the number of the last commit before each rewind of a branch, without the rewinds of its bases."""
    return [entry.first - 1 for entry in own_entries(entries) if "rewind" in entry.commit]


def own_entries(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return a branch's own entries: `entries` without those of its bases, with which they begin."""
    return entries[max((at for at, entry in enumerate(entries) if "run" in entry.commit), default=0) :]


def valid_at(entries: Sequence[Entry], seq: int) -> tuple[list[Entry], Ranges]:
    """Return (the entries that were valid when commit `seq` was the last one, the ranges that were abandoned then)."""
    ranges = abandoned(each for each in rewinds_of(entries) if each[0] <= seq)
    return [entry for entry in entries if entry.seq <= seq and not is_abandoned(entry.seq, ranges)], ranges


def is_abandoned(seq: int, ranges: Ranges) -> bool:
    """Return whether a commit lies in one of these ranges."""
    return bool(ranges) and any(before < seq < after for before, after in ranges)
