"""Failed attempts whose remedy is not chosen yet: a model is asked for the type of failure, or a person what to do.

Each failure is kept by a step inside the failed one, until the attempt is recorded with its remedy.
"""

from __future__ import annotations

from typing import Any

from crewlite import kinds
from crewlite.state.format.addresses import leaf, outer
from crewlite.state.format.outcome import Attempt, Outcome, attempt_of
from crewlite.state.format.record import Record

_NAME = "failed-"


def name_of(number: int) -> str:
    """Return the name of the step that keeps the failure of the attempt with this number."""
    return f"{_NAME}{number}"


def keeps_failure(outcome: Outcome) -> bool:
    """Return whether this is the outcome of a step that only stores a failure until its remedy is chosen."""
    kind = kinds.CLASSIFICATION.name
    return outcome.kind == kind and leaf(outcome.address).startswith(f"{kind}:{_NAME}")


def undecided(record: Record) -> dict[str, Attempt]:
    """Return the failed attempts whose remedy is not chosen yet, by the addresses of the failed steps."""
    found = {}
    for at, kept in record.outcomes.items():
        if not keeps_failure(kept) or kept.seq <= record.base:
            continue
        address, number = outer(at), int(at.rpartition("-")[2])
        if address in record.outcomes or number != len(record.attempts.get(address, ())) + 1:
            continue
        data: Any = record.value(at)
        kind = record.kind_at(address).name
        step: Any = {"address": address, "kind": kind, "attempt": number, "ms": data["ms"], "error": data["error"]}
        found[address] = attempt_of(step, kept.seq, kept.at)
    return found
