"""The place that a ref names, as it was found in a store."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import BaseProvider, Store, opened


@dataclass(frozen=True, slots=True)
class Located:
    """The place that a ref names. `checkpoint` is the id of a checkpoint, or None for the head of the branch.

    `abandoned` is the number of a rewind of the branch, from 1, if the ref names the end of what that rewind abandoned.
    `copied` is the checksum of the branch's last commit where it was copied from, if this place is in a copy.
    """

    provider: BaseProvider
    location: str
    run_id: str
    branch: str
    checkpoint: str | None = None
    abandoned: int | None = None
    copied: str | None = None

    @property
    def ref(self) -> str:
        """The ref that names this place within its location."""
        name = f"{self.run_id}/{self.branch}"
        at = f"abandoned:{self.abandoned}" if self.abandoned is not None else self.checkpoint
        return f"{name}@{at}" if at else name

    def opened(self) -> contextlib.closing[Store]:
        """Open the store that holds the run; a `with` closes it."""
        return opened(self.provider, self.location)

    def record(self) -> Record:
        """Read the record of the branch; an empty one if there is no such branch. Raises JournalCorrupt."""
        with self.opened() as store:
            return find_lineage(store, self.run_id, self.branch).record()

    @property
    def event_fields(self) -> dict[str, Any]:
        """The fields that name the branch in an event."""
        where = {"location": self.location, "provider": self.provider.name}
        return {**where, "run_id": self.run_id, "branch": self.branch}
