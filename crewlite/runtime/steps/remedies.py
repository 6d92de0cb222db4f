"""Interpret remedies: which step applies one, and what follows from it for the next attempt.

A remedy for work, such as Replan, applies to a unit of work: a step in which an agent or code works. If it was chosen
for the failure of a model call or a tool call, that call fails, and the remedy rises: the nearest enclosing unit
applies it without asking a policy. All of this follows from the record, so a resume does the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.recovery import Compensate, FailureType, RecordedStep, Remedy, Replan, Rollback
from crewlite.recovery.types import RecoveryContext
from crewlite.runtime.steps.attempts import (
    following,
    goes_back,
    is_call_made_once,
    is_for_work,
    keeps_steps,
    since_given_up,
)
from crewlite.state.format.addresses import (
    child_around,
    is_right_below,
    outer,
    outers,
    prefix_around,
    prefix_beside,
    without_tries,
)
from crewlite.state.format.outcome import Attempt
from crewlite.state.format.record import Record


def is_unit(record: Record, address: str) -> bool:
    """Return whether the step at this address is a unit of work: an agent or code works in it."""
    return bool(record.kind_at(address).worker)


def _unit_around(record: Record, address: str) -> str | None:
    """Return the address of the nearest unit of work that encloses a step; None if there is none."""
    around = (*outers(address), *([""] if address else []))
    return next((at for at in around if is_unit(record, at)), None)


def _holder(record: Record, prefix: str, place: str) -> str | None:
    """Return the prefix of the attempt in which the step `place` has finished: `prefix`, or the nearest enclosing one.

    Returns None if there is none. Skips the work of agents: a conversation cannot go back to its middle.
    """
    while True:
        if record.kind_at(outer(prefix)).worker != "model" and f"{prefix}{place}" in record.outcomes:
            return prefix
        if not prefix:
            return None
        prefix = prefix_around(prefix)


def applier(record: Record, remedy: Remedy, prefix: str, address: str) -> str | None:
    """Return the address of the step that applies a remedy for work; None if no step can.

    The remedy was chosen for the failure of the step at `address`. `prefix` begins the addresses of the steps inside
    that step: a rollback looks for its named step there first.
    """
    if isinstance(remedy, Rollback) and remedy.to:
        found = _holder(record, prefix, remedy.to)
        return None if found is None else outer(found)
    if isinstance(remedy, Compensate):
        around = (address, *outers(address), "")
        return next((at for at in around if record.kind_at(at) is kinds.FLOW), None)
    return address if is_unit(record, address) else _unit_around(record, address)


def rising(record: Record, causes: Iterable[str]) -> Attempt | None:
    """Return the failed attempt of a child step that left its remedy to an enclosing step; None if there is none.

    `causes`: the addresses of the child steps that made a step fail. The causes of these failures are searched, too.
    """
    for at in causes:
        last = record.last_attempt(at)
        if last is not None and last.final and is_for_work(last.remedy):
            return last
        if last is not None and last.remedy is None and last.cause and (found := rising(record, [last.cause])):
            return found
    return None


def unapplied(record: Record, address: str) -> Attempt | None:
    """Return the last attempt at a step if its remedy was to rise, and the run was killed before a unit applied it.

    Returns None otherwise. Such a step has to fail in the same way again, instead of running again.
    """
    last = record.last_attempt(address)
    if last is None or not last.final or not is_for_work(last.remedy):
        return None
    assert last.remedy
    where = applier(record, last.remedy, prefix_beside(address), address)
    applied = record.last_attempt(where or "")
    return None if applied and applied.order > last.order else last


def counted(record: Record, address: str, past: Sequence[Remedy]) -> list[Remedy]:
    """Return the remedies that a step's budget counts: its own (`past`), and those that enclosing steps applied for it.

    A call of a model or a tool gets a new address in each attempt at its task, and an enclosing step may have gone back
    to a named step: then the earlier failures of the same work are recorded at other addresses.
    """
    unit = None if is_unit(record, address) else _unit_around(record, address)
    mine, around = {without_tries(at) for at in (address, *outers(address))}, list[Remedy]()
    for at in (*outers(address), *([""] if address else [])):
        for attempt in since_given_up(record.attempts.get(at, ()), record.base):
            remedy = attempt.remedy
            chosen_here = at == unit or without_tries(attempt.cause or "") in mine
            if remedy is not None and chosen_here and (is_for_work(remedy) or (at != unit and remedy.type is not None)):
                around.append(remedy)
    return [*around, *past]


def number_inside(attempts: Sequence[Attempt], number: int) -> int:
    """Return the number that the addresses of the steps inside an attempt have, after these failed attempts.

    That is the number of the attempt. In a root that keeps its steps, it grows only with a Replan, which makes the root
    begin anew.
    """
    if not keeps_steps(attempts[-1]):
        return number
    return 1 + sum(isinstance(attempt.remedy, Replan) for attempt in attempts)


def _opening(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the failed attempt whose remedy led to the current attempt; None if the current one is a first attempt.

    A kickoff after a final failure continues the attempt that failed, unless it begins anew. A root that keeps its
    steps never begins anew, so that the questions of its steps stay the same.
    """
    for attempt in reversed(attempts):
        if not attempt.final:
            return attempt
        if following(attempt) != attempt.number and not keeps_steps(attempt):
            return None
    return None


def context_of(attempts: Sequence[Attempt]) -> RecoveryContext | None:
    """Return what the current attempt is told about the failed attempt before it; None if it is told nothing."""
    opened = _opening(attempts)
    remedy = opened.remedy if opened else None
    if opened is None or remedy is None or not is_for_work(remedy):
        return None
    said = opened.said or {}
    return RecoveryContext(
        remedy.type or FailureType.UNKNOWN,
        next(number for number, attempt in enumerate(attempts, 2) if attempt is opened),
        remedy.hint,
        remedy.subgoal,
        remedy.tools,
        tuple(RecordedStep(**codec.decode(step)) for step in said.get("steps", ())),
        codec.decode(said.get("state", {})),
    )


def is_behind(record: Record, attempts: Sequence[Attempt], address: str) -> bool:
    """Return whether a step is in a later task than the one whose failure made the crew go back.

    Nothing in such a task has failed or runs again because of that failure, so the task is told nothing about it.
    """
    opened = _opening(attempts)
    if opened is None or not isinstance(opened.remedy, Rollback) or not opened.cause:
        return False
    places = {task["address"]: n for n, task in enumerate(record.run["definition"].get("tasks", ()))}
    here, failed = (
        next((places[part] for part in without_tries(at).split("/") if part in places), None)
        for at in (address, opened.cause)
    )
    return here is not None and failed is not None and here > failed


def goes_on(attempts: Sequence[Attempt]) -> bool:
    """Return whether the current attempt continues after a rollback, so that its steps may be asked something else."""
    opened = _opening(attempts)
    return opened is not None and goes_back(opened)


def made_before(record: Record, steps: Collection[str]) -> set[str]:
    """Return the calls with effect="once" of earlier attempts whose results these steps, or steps inside them, have."""
    return {
        one.reused_at
        for at, one in record.outcomes.items()
        if one.reused and is_call_made_once(record, one) and not {at, *outers(at)}.isdisjoint(steps)
    }


def void_by(record: Record, remedy: Remedy, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (address, kind) of the ended steps that run again after `remedy`, if it rolls back to a step it names.

    Both that step and those that run again are below `prefix`.
    """
    if not isinstance(remedy, Rollback) or not remedy.to:
        return
    order = record.outcomes[f"{prefix}{remedy.to}"].order
    below = (ended for ended in record.ends.values() if is_right_below(ended.address, prefix))
    yield from void(record, prefix, [ended.address for ended in below if ended.order <= order])


def void(record: Record, prefix: str, kept: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (address, kind) of the ended steps that become void if a step has another question than before.

    These are all steps below `prefix`, except `kept`, the steps inside those, and calls with effect="once".
    """
    known = set(kept)
    for at, ended in record.ends.items():
        is_below = at.startswith(prefix) and child_around(at, prefix) not in known
        if is_below and not is_call_made_once(record, ended):
            yield at, ended.kind
