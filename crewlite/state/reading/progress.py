"""The status of a run, and its result once it has finished, from its record alone."""

from __future__ import annotations

from typing import Any, Literal

from crewlite import kinds
from crewlite.encoding.codec import decode
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
    """Return a status for people to read: `not run yet` for an unfinished fork that nobody has kicked off."""
    return status if kicked_off or status != "unfinished" else "not run yet"


def result_of(record: Record) -> Any:
    """Return what a flow returned, the result of a trial, or a crew's or agent's answer as text; None if unfinished."""
    if not record.finished:
        return None
    outcome, definition = decode(record.value("")), record.run["definition"]
    if kinds.of(definition["kind"]) in (kinds.FLOW, kinds.TRIAL):
        return outcome["result"] if kinds.has_methods(definition) else outcome
    if not isinstance(outcome, dict) or "raw" in outcome:
        return _raw(outcome)
    tasks = outcome.get("tasks")
    return _raw(decode(record.value(tasks[-1]))) if tasks else None


def _raw(output: Any) -> str | None:
    raw = output.get("raw") if isinstance(output, dict) else None
    return raw if isinstance(raw, str) else None
