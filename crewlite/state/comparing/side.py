"""One of two compared runs: its name, its status, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from crewlite.state.format.record import Record
from crewlite.state.format.times import Times
from crewlite.state.reading.progress import RunStatus, status_of, status_text_of
from crewlite.usage import Usage


@dataclass(frozen=True, slots=True)
class Side:
    """One of two compared runs, as it was at the compared place."""

    run_id: str
    branch: str
    at: str | None
    """The id of the checkpoint, or `abandoned:1` for what a rewind has abandoned; None for the branch as it is."""
    seq: int
    """The number of the last commit of the run at that place."""
    status: RunStatus
    kind: str
    name: str
    """The name of the definition."""
    started_at: datetime
    usage: Usage
    seconds: float
    """How long the run has worked, in all kickoffs; parallel steps count once."""
    kicked_off: bool
    """Whether the branch has run: False for a fork that nobody has kicked off yet."""

    @property
    def status_text(self) -> str:
        """The status for people to read: that of a new fork is `not run yet`."""
        return status_text_of(self.status, kicked_off=self.kicked_off)

    @property
    def ref(self) -> str:
        """The ref that names this side at its location."""
        return f"{self.run_id}/{self.branch}" + (f"@{self.at}" if self.at else "")


def side_of(record: Record, times: Times, at: str | None) -> Side:
    """Build the side of a record. `at` is the part of its ref behind the @, None if there is none."""
    run = record.run
    return Side(
        run["run_id"],
        run["branch"],
        at,
        record.seq,
        status_of(record),
        run["definition"]["kind"],
        run["definition"]["name"],
        datetime.fromisoformat(record.started_at),
        record.usage,
        times.of(),
        not record.fresh,
    )
