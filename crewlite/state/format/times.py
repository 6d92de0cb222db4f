"""What counts for a step: attempts, calls in doubt, usage, and how long it worked in all attempts and kickoffs.

For a fork, that is what the branch itself has done, and what its base did in finished steps. What a base spent on
failed attempts, and on steps that the fork runs again, is part of the usage of the run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from crewlite import kinds
from crewlite.state.format.addresses import around, outers
from crewlite.state.format.outcome import Attempt
from crewlite.state.format.record import Record
from crewlite.state.format.undecided import undecided
from crewlite.usage import NO_USAGE, Usage

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
        """Add spans to a step and to its enclosing steps, up to the first whose time is recorded."""
        for step in dict.fromkeys((address, *outers(address), "")):
            if step != address and step in self._whole:
                return
            self._spans.setdefault(step, []).extend(spans)

    def of(self, address: str = "") -> float:
        """Return for how many seconds all kickoffs worked on a step ("" for the run); of a wait, how long it lasted."""
        if (whole := self._whole.get(address)) is not None:
            return round(whole / 1000, 4)
        total, before, spans = 0.0, 0.0, self._spans.get(address, ())
        if stopped := self._worked.get(address):
            total, before = stopped["seconds"], datetime.fromisoformat(stopped["at"]).timestamp()
        elif len(spans) == 1 and spans[0][2] == _WORK and 0 < spans[0][0] <= spans[0][1]:  # mostly
            return round(spans[0][1] - spans[0][0], 4)
        open_, waits = [0, 0, 0], kinds.at(address).waits
        ends = [(began, what, 1) for began, _, what in spans]
        ends += [(ended, what, -1) for _, ended, what in spans]
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
    """Return a span from its end, in ISO 8601, and its length."""
    end = datetime.fromisoformat(ended).timestamp()
    return end - milliseconds / 1000, end, what


def tries_of(record: Record, address: str) -> Sequence[Attempt]:
    """Return the failed attempts that count for a step: those in a fork's base only if the step ended there."""
    tries = record.attempts.get(address)
    return tries[tries_of_base(record, address) :] if tries else ()


def tries_of_base(record: Record, address: str) -> int:
    """Return how many of a step's first failed attempts do not count for a fork, because they were made in its base."""
    tries, ended = record.attempts.get(address, ()), record.end(address)
    before = sum(one.seq <= record.base for one in tries)
    ended_there = ended is not None and ended.seq <= record.base and before == len(tries)
    return 0 if ended_there else before


def calls_in_doubt(record: Record) -> dict[str, str]:
    """Return the calls that have neither an outcome nor a failure that counts: by address, their effects.

    Includes calls with effect="once" that failed before the fork, because they may have taken effect.
    """
    return {
        at: effect
        for at, effect in record.intents.items()
        if at not in record.outcomes
        and (effect == "once" or at not in record.intended)  # else a person has decided that it took no effect
        and not tries_of(record, at)
        and (effect == "once" or at not in record.attempts)
    }


class CountedUsage:
    """The usage of the steps of a record, each with all steps inside it, without what rewinds have abandoned."""

    def __init__(self, record: Record) -> None:
        self._paid, self._of_base = record.paid.without_abandoned, dict[str, Usage]()
        self._inherited = {at for at, one in record.outcomes.items() if one.seq <= record.base}
        for at in self._inherited:
            if self._inherited.isdisjoint(around := outers(at)):
                for address in around:
                    self._of_base[address] = self._of_base.get(address, NO_USAGE) + self._paid.inside(at)

    def of(self, address: str) -> Usage:
        """Return the usage of a step in all attempts that count; for "" the sum of all steps."""
        if not address or not self._inherited.isdisjoint((address, *outers(address))):
            return self._paid.inside(address)
        return self._of_base.get(address, NO_USAGE) + self._paid.own_inside(address)
