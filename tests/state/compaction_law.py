"""What of a run must be the same before and after its journal is compacted, fact by fact.

`hold` compacts each branch of a store in several ways, and compares what readers see of it, and what its record says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from crewlite import History
from crewlite.encoding.codec import digest
from crewlite.state.format.addresses import is_in_work_of_a_model, outers
from crewlite.state.format.earlier import definition_at, inputs_at, is_before_change
from crewlite.state.format.record import Record
from crewlite.state.format.undecided import undecided
from crewlite.state.journal.lineage import recorded
from crewlite.state.journal.upkeep import bases, compact_branch
from crewlite.state.providers import Commit
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.steps import StepView, unsettled
from crewlite.state.run_history import RunHistory
from tests.cuts import Kept

WAYS = ((0, 0), (2, 1))
"""How many checkpoints are left by compactions in a row."""


def outside(record: Record) -> list[str]:
    """The steps that are inside no finished step. The inner ones are what a compaction leaves out."""
    return [at for at in record.outcomes if not record.is_inside(at)]


def step_told(step: StepView, inner: bool) -> tuple[Any, ...]:
    """What a reader is told of a step.

    Whether the code still asks for a call inside a finished step is told by the replies of the model, which may be left
    out.
    """
    found = (
        step.kind,
        step.status,
        step.value,
        step.usage,
        step.type,
        step.reused_from,
        step.started_at,
        step.ended_at,
        step.seq,
    )
    return (*found, step.edited, step.repeatable, step.model, inner or step.unused)


def times(run: RunHistory) -> dict[str, float]:
    """How long the run worked on the steps for which that is recorded, in milliseconds.

    Else a finished step whose inner steps are left out counts as one span, so where steps ran side by side, or waited for a
    person, the time of an outer one may be another: of one that has not finished, or whose commit became no shorter.
    """
    worked = {at for at, one in run._record.outcomes.items() if one.worked is not None}
    return {step.address: step.milliseconds for step in run.steps if step.address in worked}


def told(place: Checkpoint) -> dict[str, Any]:
    """All that a checkpoint tells."""
    return place.to_dict() | {"events": place.events()}


OF_A_READER: dict[str, Callable[[RunHistory], Any]] = {
    name: lambda run, name=name: getattr(run, name)
    for name in (
        *("status", "status_text", "kicked_off", "because", "stopped_by", "result", "started_at", "base", "rewinds"),
        *("definition", "inputs", "values", "collections", "usage", "abandoned_usage", "own_usage", "tasks"),
        *("waiting", "unused_answers", "unsettled"),
    )
} | {
    "events": lambda run: run.events(),
    "order of steps": lambda run: [one.address for one in run.steps if not run._record.is_inside(one.address)],
    "usage of steps": lambda run: {
        at: run.usage_of(at)
        for one in run.steps
        if "/" not in (at := one.address)  # that of a step inside another may be a part of the other's alone
    },
    "arguments": lambda run: {at: run.arguments_of(at) for at in run.unsettled},
}
"""What is the same, as `RunHistory` shows it."""

OF_A_RESUME: dict[str, Callable[[Record], Any]] = {
    name: lambda record, name=name: getattr(record, name)
    for name in ("claim", "auto_approve", "restored", "epoch", "seq", "sum")
} | {
    "inherited": lambda record: record.checkpoints.inherited,
    "outcomes": lambda record: {
        at: (one.fingerprint, one.digest, one.attempt, one.seq, one.order)
        for at in outside(record)
        if (one := record.outcomes[at])
    },
    "failures": lambda record: {
        at: (one.number, one.fingerprint, one.seq, one.order)
        for at, one in record.failures.items()
        if not record.is_inside(at)
    },
    "undecided": lambda record: sorted(undecided(record)),
    "begun": lambda record: {at: n for at, n in record.begun_once.items() if not record.settled(at)},
    "intended": lambda record: {at: n for at, n in record.intended.items() if not record.settled(at)},
    "intents": lambda record: {at: n for at, n in record.intents.items() if not record.settled(at)},
    "led to": lambda record: {at: is_before_change(record, at) for at in (*outside(record), *unsettled(record))},
    "void": lambda record: {at: n for at, n in record.void.items() if not record.is_inside(at)},
    "asked": lambda record: {at: one for at, one in record.asked.items() if not record.settled(at)},
    "claim": lambda record: (record.claim, record.died),
    "claims": lambda record: record.events.claims,
    "answers": lambda record: {at: one for at, one in record.answers.items() if not record.settled(at)},
    "edited": lambda record: record.edited,
    "worked": lambda record: {at: one for at, one in record.worked.items() if not record.settled(at)},
    "versions": lambda record: dict(record.kept.versions),
    "own values": lambda record: dict(record.kept.own),
    "definitions": lambda record: {at: digest(definition_at(record, at)) for at in outside(record)},
    "earlier inputs": lambda record: {at: digest(inputs_at(record, at)) for at in outside(record)},
}
"""What is the same, as the record has it, from which a kickoff goes on."""

PARTLY: dict[str, Callable[[RunHistory], dict[Any, Any]]] = {
    "step": lambda run: {(one.address, ""): step_told(one, run._record.is_inside(one.address)) for one in run.steps},
    "attempt as shown": lambda run: {
        (one.address, one.ended_at): (one.error_type, one.message, one.cause, one.started_at, one.final)
        for one in run.attempts
    },
    "attempt": lambda run: {
        (at, one.ended_at): (one.number, one.final, one.void, one.message, one.order)
        for at, tries in run._record.attempts.items()
        for one in tries
    },
}
"""What is the same, unless it is in the work of a model, inside a step that has finished since. Of that, what is left is as it was.

The usage of a failed attempt counts the calls inside it that are left, so it may become less: `usage` and `usage_of` count
them all.
"""


def left_out(run: RunHistory, name: tuple[str, Any]) -> bool:
    """Whether a compaction may leave a step out, or an attempt that ended at some time."""
    address, ended = name
    if not is_in_work_of_a_model(address):
        return False
    if not ended:
        return run._record.is_inside(address)
    steps = ((step, step.get("at", one.commit["at"])) for one in run._entries for step in one.commit.get("steps", ()))
    since = {step["address"] for step, at in steps if "value" in step and at >= ended.isoformat()}
    return not since.isdisjoint(outers(address))


def facts(run: RunHistory) -> dict[str, Any]:
    """What must be the same, by name."""
    found = {name: fact(run) for name, fact in OF_A_READER.items()}
    return found | {name: fact(run._record) for name, fact in OF_A_RESUME.items()}


def unlike(whole: dict[Any, Any], then: dict[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Where two dicts differ."""
    for name in dict.fromkeys((*whole, *then)):
        one, other = whole.get(name), then.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from ((f"{name} {part}", *both) for part, *both in unlike(one, other))
        elif one != other:
            yield name, one, other


def differing(whole: RunHistory, then: RunHistory) -> list[str]:
    """What is not the same, in words."""
    broken = [f"{name}:\n  {one}\n  {other}" for name, one, other in unlike(facts(whole), facts(then))]
    before = {step.address: step.milliseconds for step in whole.steps}
    broken += [f"time of {at}: {ms}, not {before[at]}" for at, ms in times(then).items() if abs(before[at] - ms) > 0.25]
    for name, fact in PARTLY.items():
        before, after = fact(whole), fact(then)
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key) and (key in after or not left_out(whole, key)):
                broken.append(f"{name} {key}:\n  {before.get(key)}\n  {after.get(key)}")
    return broken


def hold(provider: Kept, run_id: str, branch: str) -> Iterator[tuple[str, Callable[[], tuple[Kept, Kept]]]]:
    """Compact a branch in several ways. Yields, for each, a function that makes a store with the whole journal and one with
    the compacted one.

    Raises AssertionError if anything is not the same in both.
    """
    for way in WAYS:
        for ways in (way[:number] for number in range(1, len(way) + 1)):
            broken = compared(*_both(provider, run_id, branch, ways), f"{run_id}/{branch}")
            assert not broken, "\n".join([f"{run_id}/{branch} compacted with {ways} checkpoints:", *broken])
        yield f"{run_id}/{branch} compacted with {way} checkpoints", partial(_both, provider, run_id, branch, way)


def _both(provider: Kept, run_id: str, branch: str, way: Sequence[int]) -> tuple[Kept, Kept]:
    """A store with the whole journal, and one in which it is compacted."""
    whole, then = provider.cut(len(provider.commits)), provider.cut(len(provider.commits))
    for left in way:
        _compact(whole, then, run_id, branch, left)
    return whole, then


def _compact(whole: Kept, then: Kept, run_id: str, branch: str, left: int) -> None:
    """Drop all checkpoints of a branch but the newest ones, and compact its journal in one of two stores."""
    with contextlib.closing(then.open("here")) as store, contextlib.closing(whole.open("here")) as other:
        record = recorded(store, run_id, branch)
        places = record.checkpoints.droppable(bases(store.branches(run_id), branch))
        if gone := places[: max(0, len(places) - left)]:
            commit = Commit.of(run_id, branch, record.head, {"drops": [(one["id"], one["parent"]) for one in gone]})
            store.append([commit])
            other.append([commit])
        compact_branch(store, run_id, branch)


def compared(whole: Kept, then: Kept, ref: str) -> list[str]:
    """What is not the same in the head of a branch, in what its rewinds have abandoned, and at each checkpoint left."""
    with History("here", whole) as before, History("here", then) as after:
        one, other = before.run(ref), after.run(ref)
        pairs = [("now", one, other)]
        pairs += [(old.ref, old, new) for old, new in zip(one.abandoned, other.abandoned, strict=True)]
        places, left = one.checkpoints(abandoned=True), other.checkpoints(abandoned=True)
        broken = [
            f"checkpoint {name}:\n  {old}\n  {new}"
            for a, b in zip(places, left, strict=True)
            for name, old, new in unlike(told(a), told(b))
        ]
        named = [run._record.checkpoints.highest_version for run in (one, other)]
        broken += [f"the highest version is {named[1]}, not {named[0]}"] if named[0] != named[1] else []
        pairs += [
            (place.id, before.run(f"{ref}@{place.id}", as_of=True), after.run(f"{ref}@{place.id}", as_of=True))
            for place in places
        ]
        return broken + [f"{when}: {text}" for when, old, new in pairs for text in differing(old, new)]
