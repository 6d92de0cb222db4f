"""The work of a unit up to a failure, as plain data for classifiers: recorded steps, and what the code reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.recovery import RecordedStep
from crewlite.state.format.addresses import is_right_below, leaf, prefix_around
from crewlite.state.format.failed import SaidRecord
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record

_MOST = 50  # steps, the newest ones
_LONGEST = 2_000  # characters of a text


def trajectory(record: Record, prefix: str, said: SaidRecord | None = None) -> tuple[RecordedStep, ...]:
    """Return the finished steps directly below `prefix`, oldest first, then what the code has reported (`said`)."""
    asked: dict[str, list[Any]] = {}
    steps = [step for one in _finished(record, prefix) for step in _steps(record, one, asked)]
    steps += [RecordedStep(**codec.decode(step)) for step in (said or {}).get("steps", ())]
    return tuple(steps[-_MOST:])


def last_good(record: Record, prefix: str) -> str | None:
    """Return the address of the last finished step directly below `prefix`, or else below the nearest enclosing one."""
    while not (done := _finished(record, prefix)):
        if not prefix:
            return None
        prefix = prefix_around(prefix)
    return done[-1].address


def _finished(record: Record, prefix: str) -> list[Outcome]:
    below = (
        outcome
        for at, outcome in record.outcomes.items()
        if is_right_below(at, prefix) and not kinds.at(at).is_about_failure
    )
    return sorted(below, key=lambda outcome: outcome.order)


def _steps(record: Record, outcome: Outcome, asked: dict[str, list[Any]]) -> Iterator[RecordedStep]:
    """Yield a finished step as plain data. `asked`: by tool, the arguments of the calls that models requested."""
    at, kind = outcome.address, kinds.of(outcome.kind)
    value = record.value(at)
    shown = value if isinstance(value, dict) else {}
    if kind.asks_model:
        for name, arguments, *_ in shown.get("tool_calls", ()):
            asked.setdefault(name, []).append(arguments)
        yield RecordedStep(leaf(at), said=_short(shown.get("text")), address=at)
    elif kind.is_call:
        name = leaf(at).partition(":")[2].partition("#")[0]
        given, failed = asked.get(name), bool(shown.get("error"))
        text = _short(shown.get("text"))
        yield RecordedStep(
            leaf(at),
            tool=name,
            input=given.pop(0) if given else None,
            output=None if failed else text,
            error=text if failed else "",
            address=at,
        )
    else:
        yield RecordedStep(leaf(at), output=_short(kind.given(value)), address=at)


def _short(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else value
