"""The rows of a run's page: the steps of a branch as a tree, each with its place in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from crewlite import kinds
from crewlite.state.format.addresses import in_order
from crewlite.state.format.own import CountedUsage
from crewlite.state.format.record import Record
from crewlite.state.reading.prompts import Prompt, Prompts
from crewlite.state.reading.shown import said
from crewlite.state.reading.steps import StepView, model_of, standing, steps_of

_LONG = 6_000  # characters of a text that are shown


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt."""

    number: int
    model: str
    """The model that was asked; "" for what asks none."""
    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A step of a branch."""

    address: str
    kind: str
    state: str
    """`finished`, `edited`, `reused`, `failed`, or `in doubt`."""
    inherited: bool
    """Whether the branch inherited the step from the branch it is forked from."""
    began: float
    """Seconds since the branch began, at least 0."""
    seconds: float
    tokens: int
    """The tokens of the step and all steps inside it."""
    cost: float | None
    model: str
    asked: tuple[tuple[str, str], ...]
    """The texts of the step's question, by their names."""
    prompt: Prompt | None
    """For a model call, what the model was told since the call before it; None for any other step."""
    output: str
    failures: tuple[Failure, ...]


def rows_of(record: Record) -> list[Row]:
    """Return the steps of a branch, each before the steps inside it."""
    prompts, spent, steps = Prompts(record), CountedUsage(record), {step.address: step for step in steps_of(record)}
    begun = datetime.fromisoformat(record.started_at)
    return [
        _row(record, prompts, spent, steps[address], begun) for address in in_order(_by_time(steps)) if address in steps
    ]


def cut(text: str) -> str:
    """Return a text; of one that is too long for a page, its beginning and its length."""
    return text if len(text) <= _LONG else f"{text[:_LONG]}\n... ({len(text):,} characters)"


def _by_time(steps: dict[str, StepView]) -> list[str]:
    """Return the addresses in the order in which the steps began; those for which no time is recorded come last."""
    return sorted(steps, key=lambda at: (began := steps[at].begun_at) is None or began.timestamp())


def _row(record: Record, prompts: Prompts, spent: CountedUsage, step: StepView, begun: datetime) -> Row:
    outcome, kind = standing(record, step.address), kinds.of(step.kind)
    asks = kind.asks_model and outcome is not None
    last = step.attempts[-1] if step.attempts else None
    if outcome:
        output = "" if kind is kinds.CREW else said(kind, record.value(step.address))
    else:
        output = f"{last.error_type}: {last.message}" if last else ""
    used = step.usage if asks else spent.of(step.address)
    state = "edited" if step.edited else "reused" if step.reused_from else step.status.replace("_", " ")
    state = "failed" if last and not outcome else state
    began = max((step.begun_at or begun) - begun, timedelta())
    return Row(
        step.address,
        step.kind,
        state,
        bool(outcome and outcome.seq <= record.base),
        began.total_seconds(),
        step.milliseconds / 1000,
        used.total_tokens,
        used.cost,
        model_of(outcome) or "",
        tuple((name, cut(text)) for name, text in outcome.question.items() if text) if outcome else (),
        prompts.added(step.address) if asks else None,
        cut(output),
        tuple(
            Failure(one.number, one.model or "", cut(f"{one.error_type}: {one.message}"), one.final)
            for one in step.attempts
        ),
    )


def span_of(rows: Sequence[Row]) -> float:
    """Return the seconds from the beginning of a branch to the end of its last own step."""
    return max((row.began + row.seconds for row in rows if not row.inherited), default=0.0)
