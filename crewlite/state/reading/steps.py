"""The steps of a run and their tries, as history shows them: all of it follows from the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from crewlite.codec import decode
from crewlite.state.format.addresses import leaf, outer, try_of
from crewlite.state.format.outcome import Attempt
from crewlite.state.format.record import Record
from crewlite.usage import Usage

StepStatus = Literal["finished", "failed", "in_doubt"]


@dataclass(frozen=True, slots=True)
class StepView:
    """A step that has an outcome, failed, or was cut in the middle of a call (in doubt)."""

    address: str
    kind: str
    status: StepStatus
    value: Any
    """The recorded outcome, decoded; None without one."""
    usage: Usage
    milliseconds: float
    attempts: tuple[Attempt, ...]
    """The tries that failed."""
    type: str | None = None
    """What sort of work it is, in its author's words: `@step(type="llm_call")`."""
    reused_from: str | None = None
    """Where the outcome was taken from, as `run/branch@address`, if this run did not come to it itself."""
    started_at: datetime | None = None
    """When the try that succeeded began, in UTC; None without an outcome."""
    ended_at: datetime | None = None
    """When its outcome was recorded."""
    edited: bool = False
    """Whether a fork was given this outcome, and no step came to it."""
    repeatable: bool = False
    """Of a call in doubt: a run that goes on makes it again without asking, as that does no harm."""


def steps_of(record: Record) -> list[StepView]:
    """Finished steps in the order of their commits, then those that failed or are in doubt."""
    tries = _tries(record)
    views = []
    for outcome in sorted(record.outcomes.values(), key=lambda outcome: outcome.seq):
        ended = datetime.fromisoformat(outcome.at)
        views.append(
            StepView(
                outcome.address,
                outcome.kind,
                "finished",
                decode(record.value(outcome.address)),
                Usage(**(outcome.usage or {})),
                outcome.milliseconds,
                tries.get(outcome.address, ()),
                outcome.label,
                outcome.reused,
                ended - timedelta(milliseconds=outcome.milliseconds),
                ended,
                outcome.edited,
            )
        )
    for address, attempts in tries.items():
        if address not in record.outcomes:
            spent = sum(attempt.milliseconds for attempt in attempts)
            views.append(StepView(address, attempts[-1].kind, "failed", None, Usage(), spent, attempts))
    views += [
        StepView(
            address, leaf(address).partition(":")[0], "in_doubt", None, Usage(), 0.0, (), repeatable=effect != "once"
        )
        for address, effect in record.intents.items()
        if address not in record.outcomes and address not in record.attempts
    ]
    return views


def attempts_of(record: Record) -> list[Attempt]:
    """Every try that failed, in order."""
    return sorted((attempt for tries in _tries(record).values() for attempt in tries), key=lambda attempt: attempt.seq)


def _tries(record: Record) -> dict[str, tuple[Attempt, ...]]:
    """The tries that failed, by address, each with the usage of the steps that finished inside it."""
    spent = _spent_inside(record)
    return {address: tuple(_numbered_on(_with_usage(attempts, spent))) for address, attempts in record.attempts.items()}


def _numbered_on(attempts: list[Attempt]) -> Iterator[Attempt]:
    """Each under a number of its own: those of a later life of the run count on."""
    number = 0
    for attempt in attempts:
        number = max(number + 1, attempt.number)
        yield replace(attempt, number=number)


def _with_usage(attempts: list[Attempt], spent: dict[tuple[str, int], list[tuple[int, Usage]]]) -> list[Attempt]:
    """What a later try under the same number goes on with was paid in the try before it."""
    found, before = [], 0
    for attempt in attempts:
        number = attempt.number if attempt.address else 1  # the tries of the whole run share their steps
        inside = (usage for seq, usage in spent.get((attempt.address, number), ()) if before < seq <= attempt.seq)
        found.append(replace(attempt, usage=sum(inside, Usage())))
        before = attempt.seq
    return found


def _spent_inside(record: Record) -> dict[tuple[str, int], list[tuple[int, Usage]]]:
    """What finished steps paid, with the commit that says so, by the step around them and the number of its try."""
    spent: dict[tuple[str, int], list[tuple[int, Usage]]] = {}
    for outcome in record.outcomes.values():
        paid = Usage(**(outcome.usage or {}))
        inside = outcome.address if outcome.usage else ""
        while inside:
            within = outer(inside), try_of(inside)
            spent.setdefault(within, []).append((outcome.seq, paid))
            inside = within[0]
    return spent
