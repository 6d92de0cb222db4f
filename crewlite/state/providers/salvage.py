"""The port between the doctor and a store that can be repaired: raw records, damaged or not, and ways to repair them.

The doctor decides what is damaged and whether to repair it; the store knows how its records are stored. Checkpoint
files, and rows of branches and checkpoints, are an index that can be rebuilt from the journals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from crewlite.state.format.entry import Entry
from crewlite.state.providers.base import BranchKey


class Unreadable(Exception):
    """The storage itself cannot be read. Internal: the doctor catches it and reports which runs can be exported."""


class RawCommit(NamedTuple):
    """A commit as it is stored."""

    seal: Any
    """The seal as text; something else if the record has no valid one."""
    body: Any
    seq: int | None = None
    """The number under which the record is stored; None if the store keeps no number besides that in the body."""
    line: bytes = b""
    """The complete line, in a store whose commits are lines."""


@dataclass(frozen=True, slots=True)
class RawBranch:
    """A branch as it is stored, damaged or not."""

    run_id: str
    branch: str
    where: str
    """The file, or the database with the run and branch."""
    records: Sequence[RawCommit]
    touched: float
    """The time of the last commit or sign of life, in seconds since the epoch."""
    handle: Any
    """The store's own key for the branch; the doctor only passes it back."""
    orphaned: bool = False
    """Whether the store has only commits, and cannot tell to which branch they belong."""

    @property
    def key(self) -> BranchKey:
        """The key of the branch."""
        return self.run_id, self.branch


@dataclass(frozen=True, slots=True)
class Flaw:
    """One kind of damage, and its repair: `act` describes the repair, `mend` executes it."""

    what: str
    where: str
    problem: str
    act: str
    mend: Callable[[], object] | None
    """Repairs the damage; None if it must be left untouched."""
    branch: BranchKey = ("", "")
    """The damaged run and branch, if they are known."""


class Salvage(Protocol):
    """One pass over one location. While it checks a run with `repair`, other processes cannot write to that run."""

    def runs(self) -> list[str]:
        """Return the ids of all runs that left any record here."""

    def held(self, run_id: str) -> AbstractContextManager[None]:
        """Lock a run against changes, by other processes too, so that all reads during the block fit together."""

    def branches(self, run_id: str) -> list[RawBranch]:
        """Return the branches of a run."""

    def ending(self, raw: RawBranch, sound: Sequence[Entry], problem: str | None) -> tuple[str, str] | None:
        """Return (code, sentence) if the end of a branch is damaged; None if it is intact.

        `sound`: the entries before the first fault. `problem`: a sentence about that fault, or None.
        """

    def cut(self, raw: RawBranch, sound: Sequence[Entry], why: str) -> Callable[[], object]:
        """Return a function that keeps the first records of a branch, those of the entries `sound`, and their head.

        It quarantines the others; with no entries, the complete branch. It raises FileExistsError if another process
        has written to the branch.
        """

    def quarantined(self, raw: RawBranch) -> str:
        """Return text that says where `cut` puts the records it removes, such as "set aside as <file name>"."""

    def index(self, raw: RawBranch, sound: Sequence[Entry]) -> Flaw | None:
        """Compare the index of an undamaged branch with its entries. Returns what to repair; None if all fit."""

    def strays(self) -> Generator[Flaw, None, None]:
        """Yield damage that belongs to no branch. The caller repairs each flaw before it requests the next."""


def loosely(text: object) -> Any:
    """Parse bytes as JSON without checking a seal; return None if they are not JSON."""
    try:
        return json.loads(text.decode()) if isinstance(text, bytes) else None
    except (ValueError, RecursionError):
        return None
