"""Interpret remedies: which step applies one, and what follows from it for the next attempt.

A remedy for work, such as Replan, applies to a unit of work: a step in which an agent or code works. Chosen at the
failure of a model or a tool, it ends that step and rises to the nearest unit around it, which applies it without asking
a policy. All of this follows from the record, so a resume does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from crewlite import codec, kinds
from crewlite.kinds import Kind
from crewlite.recovery import FailureType, RecordedStep, Remedy, Replan, Resume, Retry, Rollback
from crewlite.recovery.context import RecoveryContext
from crewlite.recovery.remedy import GIVES_UP
from crewlite.runtime.attempts import charged, following, goes_back
from crewlite.state.format.addresses import outers
from crewlite.state.format.outcome import Attempt
from crewlite.state.format.record import Record


def is_for_work(remedy: Remedy | None) -> bool:
    """Return whether a remedy applies to a unit of work, rather than to a single call."""
    if isinstance(remedy, Retry):
        return bool(remedy.hint) or remedy.tools is not None
    return isinstance(remedy, Replan | Rollback | Resume)


def ends(remedy: Remedy, kind: Kind) -> bool:
    """Return whether a step of this kind fails with this remedy, if only for the unit around it to apply it."""
    return isinstance(remedy, GIVES_UP) or (not kind.worker and is_for_work(remedy))


def unit_around(record: Record, address: str) -> str | None:
    """Return the address of the nearest unit of work around a step; None if there is none."""
    for at in outers(address):
        if kinds.at(at).worker:
            return at
    return "" if address and kinds.of(record.run["definition"]["kind"]).worker else None


def rising(record: Record, causes: Iterable[str]) -> Attempt | None:
    """Return the failed attempt whose remedy rises from one of the child steps that made a step fail."""
    for at in causes:
        last = next(iter(record.attempts.get(at, ())[-1:]), None)
        if last is not None and last.final and is_for_work(last.remedy):
            return last
        if last is not None and last.remedy is None and last.cause and (found := rising(record, [last.cause])):
            return found
    return None


def unapplied(record: Record, address: str) -> Attempt | None:
    """Return the last attempt at a step if its remedy was to rise, and the run was killed before a unit applied it.

    The step has to fail in the same way again, instead of being done again.
    """
    last = next(iter(record.attempts.get(address, ())[-1:]), None)
    if last is None or not last.final or not is_for_work(last.remedy):
        return None
    applied = record.attempts.get(unit_around(record, address) or "", ())[-1:]
    return None if any(attempt.seq > last.seq for attempt in applied) else last


def counted(record: Record, kind: Kind, address: str, past: Sequence[Remedy]) -> list[Remedy]:
    """Return the remedies that count against a budget: those of the step, and those of work that its unit has had.

    A model or a tool has another address in each attempt at its unit, so its own do not suffice.
    """
    unit = None if kind.worker else unit_around(record, address)
    if unit is None:
        return [*past]
    return [*filter(is_for_work, charged(record.attempts.get(unit, ()), record.base)), *past]


def place(attempts: Sequence[Attempt], number: int, *, once: bool) -> int:
    """Return the number in the addresses of the steps inside an attempt.

    It is that of the attempt, except for a root whose finished steps answer in every attempt (`once`): only Replan
    makes it begin anew.
    """
    return 1 + sum(isinstance(attempt.remedy, Replan) for attempt in attempts) if once else number


def opening(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the failed attempt whose remedy opened the attempt at work; None for a first one."""
    for attempt in reversed(attempts):
        if not attempt.final:
            return attempt
        if following(attempt) != attempt.number:  # the resume after it began anew
            return None
    return None


def context_of(attempts: Sequence[Attempt]) -> RecoveryContext | None:
    """Return what the attempt at work is told of the failure before it; None if nothing was to be told."""
    opened = opening(attempts)
    remedy = opened.remedy if opened else None
    if opened is None or remedy is None or not is_for_work(remedy):
        return None
    said = opened.said or {}
    return RecoveryContext(
        remedy.type or FailureType.UNKNOWN,
        len(attempts) + 1,
        getattr(remedy, "hint", ""),
        getattr(remedy, "subgoal", ""),
        getattr(remedy, "tools", None),
        tuple(RecordedStep(**codec.decode(step)) for step in said.get("steps", ())),
        codec.decode(said.get("state", {})),
    )


def goes_on(attempts: Sequence[Attempt]) -> bool:
    """Return whether the attempt at work goes on after a rollback: what it asks otherwise, it asks anew."""
    opened = opening(attempts)
    return opened is not None and goes_back(opened)


def void(record: Record, prefix: str, kept: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the finished steps, with their kinds, that count no more once a step after a rollback is asked otherwise.

    That is all below `prefix`, except the steps `kept` with what is inside them, and calls with effect="once".
    """
    known = set(kept)
    for at, outcome in record.outcomes.items():
        if at.startswith(prefix) and record.intents.get(at) != "once":
            top = prefix + at[len(prefix) :].partition("/")[0].partition("!")[0]
            if top not in known:
                yield at, outcome.kind
