"""The steps of a run along the time in which it was at work; the time between kickoffs is left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from crewlite.cli.checkpoint.words import first_line, root_name, status_of
from crewlite.state.format.addresses import in_order, leaf
from crewlite.state.reading.steps import StepView
from crewlite.state.run_history import RunHistory

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Row:
    """One step. `begins` and `ends` are fractions of the time that the run was at work."""

    address: str
    name: str
    depth: int
    status: str
    milliseconds: float
    tokens: int
    cost: float | None
    begins: float
    ends: float
    later: bool
    """Whether it finished after the place that is shown."""
    line: str
    """The beginning of its outcome."""


def timeline(run: RunHistory, steps: Sequence[StepView], at: int | None = None) -> list[Row]:
    """Return the steps of a run, each before those inside it. `at` is the commit that is shown; None for the head."""
    time = _WorkingTime([(one.started_at, one.ended_at) for one in steps if one.started_at and one.ended_at])
    views, rows = {one.address: one for one in steps}, []
    for address in in_order(views):
        step = views.get(address)
        depth = address.count("/") + 1 if address else 0
        name = leaf(address) or root_name(run)
        if step is None:
            rows.append(Row(address, name, depth, "unfinished", 0.0, 0, None, 0.0, 0.0, at is not None, ""))
            continue
        begins, ends = (time.at(step.started_at), time.at(step.ended_at)) if step.ended_at else (0.0, 0.0)
        later = at is not None and (step.seq is None or step.seq > at)
        used = step.usage
        numbers = step.milliseconds, used.total_tokens, used.cost, begins, ends
        rows.append(Row(address, name, depth, status_of(step), *numbers, later, first_line(step)))
    return rows


def bar(row: Row, width: int) -> tuple[str, str, str]:
    """Return the bar of a step in so many characters: the space before it, the bar, and the space after it."""
    if row.ends <= 0.0:
        return " " * width, "", ""
    first = min(width - 1, int(row.begins * width))
    length = max(1, min(width - first, round((row.ends - row.begins) * width)))
    return " " * first, "━" * length, " " * (width - first - length)


class _WorkingTime:
    """The time covered by some spans, as fractions from 0 to 1."""

    def __init__(self, spans: Sequence[Span]) -> None:
        joined: list[list[datetime]] = []
        for began, ended in sorted(spans):
            if joined and began <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], ended)
            else:
                joined.append([began, ended])
        self._begins = [began for began, _ in joined]
        lengths = [(ended - began).total_seconds() for began, ended in joined]
        self._before = [0.0, *accumulate(lengths)]
        self._lengths = lengths

    def at(self, moment: datetime | None) -> float:
        number = bisect_right(self._begins, moment) - 1 if moment else -1
        if moment is None or number < 0 or not self._before[-1]:
            return 0.0 if moment is None or number < 0 else 1.0
        inside = min((moment - self._begins[number]).total_seconds(), self._lengths[number])
        return (self._before[number] + inside) / self._before[-1]
