"""What was valid when a step ended: the inputs, the definition, the outcomes before the edits of a fork."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from crewlite.encoding.codec import Json, JsonObject, digest
from crewlite.state.format.addresses import outers
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record

T = TypeVar("T")


def inputs_at(record: Record, address: str) -> Json:
    """Return the inputs that were valid when a step ended; the current ones if it has not ended."""
    return _valid_at(_ended_in(record, address), record.earlier_inputs, record.run["inputs"])


def has_other_inputs(record: Record, address: str) -> bool:
    """Return whether the inputs of the run have changed since a step ended; False if it has not ended."""
    return _inputs_changed_since(record, _ended_in(record, address))


def is_before_change(record: Record, address: str) -> bool:
    """Return whether the changes of a fork may have it run a step again.

    Other inputs may, if the step ended before they changed. An edit or a rerun may, of this step, of one around it, or
    of one that had ended before it did (before it began, if it is a call with effect="once"). Any change may, if the
    step has not ended and is no such call that has begun.
    """
    ended = record.end(address)
    begun = record.intended_in.get(address) if record.is_once(address) else None
    since = begun or (ended.seq if ended else 0)
    if not since:
        return bool(record.edited or record.earlier_inputs)
    inside, until = {address, *outers(address)}, ended.seq if ended else since
    leads = ((at in inside or edit.since <= since) and until <= edit.seq for at, edit in record.edited.items())
    return any(leads) or _inputs_changed_since(record, until)


def definition_at(record: Record, address: str) -> JsonObject:
    """Return the definition that was valid when a step ended; the current one if it has not ended."""
    return _valid_at(_ended_in(record, address), record.earlier_definitions, record.run["definition"])


def changed_at(record: Record) -> int:
    """Return the number of the last commit of a changed fork whose steps its code may not request again; 0 for none."""
    return record.base + 1 if record.base and (record.edited or record.earlier_inputs) else 0


def is_own_edit(record: Record, ended: Outcome | Attempt | None) -> bool:
    """Return whether a step ended with an edit that this fork has made, not one that it was forked from."""
    return isinstance(ended, Outcome) and ended.edited and ended.seq > record.base


def _inputs_changed_since(record: Record, seq: float) -> bool:
    """Return whether the inputs of the run have changed since commit `seq`."""
    then, now = _valid_at(seq, record.earlier_inputs, record.run["inputs"]), record.run["inputs"]
    return then is not now and digest(then) != digest(now)


def _ended_in(record: Record, address: str) -> float:
    """Return the number of the commit with which a step ended; infinity if it has not ended."""
    ended = record.end(address)
    return ended.seq if ended else math.inf


def _valid_at(seq: float, earlier: Iterable[tuple[int, T]], current: T) -> T:
    return next((value for until, value in earlier if seq < until), current)
