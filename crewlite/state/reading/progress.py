"""How far a run has come: its status, and for how long it was at work."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from crewlite import kinds
from crewlite.state.format.addresses import around, outers
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


def recorded_seconds(record: Record, address: str = "", *, after: int = 0) -> float:
    """Return for how many seconds the kickoffs of a run worked on a step, or on the run, as far as that is recorded.

    Steps that ran side by side count once; waiting for people and timers does not count. If a budget stopped the run,
    the time until then was recorded, including that of cancelled steps.

    `after`: the number of a commit; only what was recorded behind it counts, such as the own work of a fork.
    """
    stopped = record.worked.get(address)
    until = datetime.fromisoformat(stopped["at"]) if stopped else None
    inside = {at for at in (*record.outcomes, *record.attempts) if at and (not address or address in outers(at))}
    spans: list[tuple[datetime, datetime]] = []
    for at in inside - around(inside):
        if kinds.at(at).waits:
            continue
        spans += [(one.started_at, one.ended_at) for one in record.attempts.get(at, ()) if one.seq > after]
        if (outcome := record.outcomes.get(at)) and outcome.seq > after:
            ended = datetime.fromisoformat(outcome.at)
            spans.append((ended - timedelta(milliseconds=outcome.milliseconds), ended))
    total = timedelta(seconds=stopped["seconds"] if stopped else 0.0)
    for began, ended in sorted(spans):
        total += max(timedelta(), ended - (began if until is None else max(began, until)))
        until = ended if until is None else max(until, ended)
    return total.total_seconds()
