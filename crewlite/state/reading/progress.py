"""The status of a run."""

from __future__ import annotations

from typing import Literal

from crewlite.state.format.record import Record

RunStatus = Literal["finished", "failed", "unfinished", "waiting", "cancelled"]


def status_of(record: Record) -> RunStatus:
    """Return the status of a branch, as `RunHistory.status` describes it."""
    if record.finished:
        return "finished"
    if record.cancelled:
        return "cancelled"
    if record.failed:
        return "failed"
    return "waiting" if record.waiting else "unfinished"


def status_text_of(status: RunStatus, *, kicked_off: bool) -> str:
    """Return a status for people to read: that of a fork which nobody has kicked off is `not run yet`."""
    return status if kicked_off or status != "unfinished" else "not run yet"
