"""The result of a finished run, read from its record alone."""

from __future__ import annotations

from typing import Any

from crewlite import kinds
from crewlite.codec import decode
from crewlite.state.format.record import Record


def result_of(record: Record) -> Any:
    """Return what a flow returned, or the answer of a crew or an agent as text; None if the run has not finished."""
    if not record.finished:
        return None
    outcome, definition = decode(record.value("")), record.run["definition"]
    if kinds.of(definition["kind"]) is kinds.FLOW:
        return outcome["result"] if kinds.has_methods(definition) else outcome
    if not isinstance(outcome, dict) or "raw" in outcome:
        return _raw(outcome)
    tasks = outcome.get("tasks")
    return _raw(decode(record.value(tasks[-1]))) if tasks else None


def _raw(output: Any) -> str | None:
    raw = output.get("raw") if isinstance(output, dict) else None
    return raw if isinstance(raw, str) else None
