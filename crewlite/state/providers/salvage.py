"""What a store that can be repaired gives to the doctor: its records as they are, and ways to put them right.

The doctor decides what is wrong, and whether it may be mended; a store knows how its records are kept. What lists
branches and checkpoints (files, rows) is an index, which is made again from the journals as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from crewlite.state.format.entry import Entry
from crewlite.state.providers.base import Head


class Unreadable(Exception):
    """The storage itself is broken. Not for users: the doctor says which runs can be saved."""


class Record(NamedTuple):
    """A commit as it is stored."""

    seal: Any
    """Text; anything else if it has none."""
    body: Any
    seq: int | None = None
    """The number it is stored under; None if it has no other than it says itself."""
    line: bytes = b""
    """Where commits are lines: the whole line."""


@dataclass(frozen=True, slots=True)
class RawBranch:
    """A branch as it is stored, sound or not."""

    run_id: str
    branch: str
    where: str
    """The file, or the database with the run and branch."""
    records: Sequence[Record]
    touched: float
    """The last sign of life, in seconds since the epoch."""
    handle: Any
    """What the store knows it by."""
    homeless: bool = False
    """Nothing but its commits knows of it, and they cannot be given to the branch that they name."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is not as it was written, and what a repair does: in words, and as a call."""

    what: str
    where: str
    problem: str
    act: str
    mend: Callable[[], object] | None
    """None if it is to be left untouched."""
    branch: tuple[str, str] = ("", "")
    """The run and branch that it is of, if that is known."""


class Salvage(Protocol):
    """One look at one location. Where it repairs, each run is held against all others while it is looked at."""

    def runs(self) -> list[str]:
        """Every run of which there is a trace."""

    def held(self, run_id: str) -> AbstractContextManager[None]:
        """Keep a run as it is, so that what is read is of one moment."""

    def branches(self, run_id: str) -> list[RawBranch]:
        """The branches of a run."""

    def ending(self, raw: RawBranch, sound: Sequence[Entry], problem: str | None) -> tuple[str, str] | None:
        """A code and a sentence, if a branch with these sound commits, before a problem, ends otherwise than it did."""

    def rewrite(self, raw: RawBranch, records: Sequence[Record], head: Head | None, why: str) -> Callable[[], object]:
        """A call that has a branch hold these records and end at `head`; a copy of what they replace is quarantined.

        Without records the branch goes; without a head, what is known of its end stays.
        """

    def quarantined(self, raw: RawBranch) -> str:
        """Where `rewrite` keeps the copy: words that follow "set aside"."""

    def index(self, raw: RawBranch, sound: Sequence[Entry]) -> Flaw | None:
        """What of the index of a sound branch is not as its journal says, all of which is made again."""

    def strays(self) -> Generator[Flaw, None, None]:
        """What no branch had of all this. Each is to be mended before the next is asked for."""


class Salvageable(Protocol):
    """A store that can be repaired: it has this verb beside those of Store."""

    def salvage(self, *, repair: bool) -> AbstractContextManager[Salvage | None]:
        """A look at the location; None where there is nothing. Raises Unreadable, SchemaTooNew, StoreError."""


def loosely(text: object) -> Any:
    """What bytes say, sealed or not; None if they are not JSON."""
    try:
        return json.loads(text) if isinstance(text, bytes) else None
    except (ValueError, RecursionError):
        return None
