"""Where a journal ends: what a store must know of one that it writes, so that the next append need not read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crewlite.state.format.entry import Entry
from crewlite.state.providers.base import Commit
from crewlite.state.providers.reading import ends_claim

_SEALED = 40  # bytes of a line that hold its seal


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a journal, and what its checkpoint files need."""

    seq: int
    sum: str
    offset: int
    mark: tuple[int, bytes]
    """The last seal and where it stands: a journal that was compacted meanwhile may be as long by chance."""
    run: Mapping[str, Any]
    """What its checkpoint files say of the run."""
    begun: str
    """The sum of its first entry."""
    files: Mapping[str, Path] | None
    """Of its checkpoints, by id; None until one of them is dropped."""

    @classmethod
    def of(cls, entries: Sequence[Entry], offset: int) -> Tail:
        """The tail of a journal that was read."""
        first, last = entries[0], entries[-1]
        told = {key: first.commit["run"][key] for key in ("run_id", "branch")}
        definition = {key: first.commit["run"]["definition"][key] for key in ("kind", "name")}
        return cls(last.seq, last.sum, offset, _mark(last, offset), {**told, "definition": definition}, first.sum, None)

    def after(self, entries: Sequence[Entry]) -> Tail:
        """The tail once these have been written."""
        offset, last = self.offset + len(lines(entries)), entries[-1]
        return replace(self, seq=last.seq, sum=last.sum, offset=offset, mark=_mark(last, offset))


def _mark(last: Entry, end: int) -> tuple[int, bytes]:
    """Where the last line of a journal begins that is `end` bytes long, and the beginning of that line."""
    return end - len(last.line) - 1, last.line[:_SEALED]


def stays_claimed(commit: Commit, claimed: bool) -> bool:
    """Whether somebody writes a branch from this commit on, `store_claim` being whether somebody did before it."""
    for entry in commit.entries:
        claimed = (claimed or "claim" in entry.commit) and not ends_claim(entry.commit)
    return claimed


def lines(entries: Sequence[Entry]) -> bytes:
    """Entries as they stand in a journal."""
    return b"".join(entry.line + b"\n" for entry in entries)
