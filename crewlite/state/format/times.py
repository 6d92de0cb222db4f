"""How long a run and each of its steps worked, in all attempts and kickoffs, as far as that is recorded."""

from __future__ import annotations

from datetime import datetime

from crewlite import kinds
from crewlite.state.format.addresses import around, outers
from crewlite.state.format.own import tries_of
from crewlite.state.format.record import Record
from crewlite.state.format.undecided import undecided

_WORK, _CODE, _WAIT = range(3)
"""How a span of time counts: as work; as work unless a step inside waits; as waiting."""
_Span = tuple[float, float, int]
"""(begin, end, how it counts) of an attempt; the times are in seconds since 1970."""


class Times:
    """The times of the steps of a record.

    Parallel steps count once; waiting for people and timers does not count. The own code of flows, crews, tasks and
    agents does not count either: it waits for its steps, for its pace, for the next attempt. If a budget stopped a
    step, the time until then was recorded, including that of cancelled steps inside it. So was the time of a step whose
    inner steps a compaction has left out; it is shown as one span that ends with the step.

    Args:
        record: The record.
        after: The number of a commit; only what was recorded after it counts, such as the own work of a fork.
        of_base: Whether in a fork all failed attempts of its base count, not only those of `tries_of`.
    """

    def __init__(self, record: Record, *, after: int = 0, of_base: bool = False) -> None:
        self._worked = record.worked
        self._whole = {
            at: one.worked for at, one in record.outcomes.items() if one.worked is not None and one.seq > after
        }
        self._spans: dict[str, list[_Span]] = {}
        pending = undecided(record)
        addresses = {*record.outcomes, *record.attempts, *pending}
        enclosing = around(addresses) | ({""} if len(addresses) > 1 else set())
        for at in addresses:
            if (worked := self._whole.get(at)) is not None:
                self._add(at, [_span(record.outcomes[at].at, worked, _WORK)])
                continue
            kind = record.kind_at(at)
            if at in enclosing and (kind.enters or kind.worker == "model"):
                continue
            what = _WAIT if kind.waits else _CODE if at in enclosing else _WORK
            failed = record.attempts.get(at, ()) if of_base else tries_of(record, at)
            tries = [*failed, *([pending[at]] if at in pending else [])]
            spans = [(one.started_at.timestamp(), one.ended_at.timestamp(), what) for one in tries if one.seq > after]
            if (outcome := record.outcomes.get(at)) and outcome.seq > after:
                spans.append(_span(outcome.at, outcome.milliseconds, what))
            self._add(at, spans)

    def _add(self, address: str, spans: list[_Span]) -> None:
        """Add spans to a step and to those that enclose it, up to one whose time is recorded."""
        for step in dict.fromkeys((address, *outers(address), "")):
            if step != address and step in self._whole:
                return
            self._spans.setdefault(step, []).extend(spans)

    def of(self, address: str = "") -> float:
        """Return for how many seconds all kickoffs worked on a step ("" for the run); of a wait, how long it lasted."""
        if (whole := self._whole.get(address)) is not None:
            return whole / 1000
        total, before = 0.0, 0.0
        if stopped := self._worked.get(address):
            total, before = stopped["seconds"], datetime.fromisoformat(stopped["at"]).timestamp()
        open_, waits = [0, 0, 0], kinds.at(address).waits
        ends = [(began, what, 1) for began, _, what in self._spans.get(address, ())]
        ends += [(ended, what, -1) for _, ended, what in self._spans.get(address, ())]
        for moment, what, change in sorted(ends):
            if moment > before:
                counts = open_[_WORK] or (open_[_WAIT] if waits else open_[_CODE] and not open_[_WAIT])
                total, before = total + (moment - before if counts else 0.0), moment
            open_[what] += change
        return round(total, 4)

    def milliseconds(self, address: str) -> float:
        """Return the time that `of` returns, in milliseconds."""
        return round(self.of(address) * 1000, 1)


def _span(ended: str, milliseconds: float, what: int) -> _Span:
    """Return the span of what took this long and ended at this time, in ISO 8601."""
    end = datetime.fromisoformat(ended).timestamp()
    return end - milliseconds / 1000, end, what
