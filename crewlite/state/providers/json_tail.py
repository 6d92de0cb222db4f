"""The end of a journal, as a store remembers it, so that the store can append without reading the journal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from crewlite.state.format.entry import Entry
from crewlite.state.format.rewinds import Rewound, rewinds_of
from crewlite.state.providers.base import Commit
from crewlite.state.providers.reading import ends_claim

_SEALED = 40  # bytes of a line that hold its seal


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a journal, and the facts that its checkpoint files repeat."""

    path: Path
    """The path of the journal."""
    seq: int
    sum: str
    offset: int
    mark: tuple[int, bytes]
    """(offset, bytes) of the last seal, to detect a compaction that left a journal of the same length."""
    run: Mapping[str, Any]
    """The part of the run's first entry that checkpoint files repeat."""
    begun: str
    """The checksum of the journal's first entry."""
    rewinds: tuple[Rewound, ...]
    """The rewinds of the branch."""
    files: Mapping[str, Path] | None = None
    """The checkpoint files of the branch by id; None until a checkpoint is dropped."""

    @classmethod
    def of(cls, path: Path, entries: Sequence[Entry], offset: int) -> Tail:
        """Build the tail of the journal at `path`, with these entries and this length in bytes."""
        first, last = entries[0], entries[-1]
        told = {key: first.commit["run"][key] for key in ("run_id", "branch")}
        definition = {key: first.commit["run"]["definition"][key] for key in ("kind", "name")}
        run, rewinds = {**told, "definition": definition}, tuple(rewinds_of(entries))
        return cls(path, last.seq, last.sum, offset, _mark(last, offset), run, first.sum, rewinds)

    def after(self, entries: Sequence[Entry], size: int) -> Tail:
        """Return the tail after these entries, which take `size` bytes, are appended."""
        offset, last = self.offset + size, entries[-1]
        rewinds = (*self.rewinds, *rewinds_of(entries))
        return replace(self, seq=last.seq, sum=last.sum, offset=offset, mark=_mark(last, offset), rewinds=rewinds)

    def ends(self, journal: IO[bytes]) -> bool:
        """Return whether an open journal ends with this tail."""
        start, seal = self.mark
        journal.seek(start)
        return journal.read(len(seal)) == seal and journal.seek(0, os.SEEK_END) == self.offset


def _mark(last: Entry, end: int) -> tuple[int, bytes]:
    """Return (offset, first bytes) of the last line of a journal of `end` bytes."""
    line = last.line
    return end - len(line) - 1, line[:_SEALED]


def stays_claimed(commit: Commit, claimed: bool) -> bool:
    """Return whether the branch is claimed after this commit, given whether it was `claimed` before."""
    for entry in commit.entries:
        claimed = (claimed or "claim" in entry.commit) and not ends_claim(entry.commit)
    return claimed


def lines(entries: Sequence[Entry]) -> bytes:
    """Return entries as the lines of a journal."""
    return b"".join(entry.line + b"\n" for entry in entries)
