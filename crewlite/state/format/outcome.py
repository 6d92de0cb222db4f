"""What a commit says about a step: its outcome, a failed attempt, an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from crewlite.codec import Json
from crewlite.recovery.remedy import Remedy, remedy_of
from crewlite.state.format.commit import ErrorRecord, RaisedError, StepRecord
from crewlite.state.format.kept import Order
from crewlite.state.format.operations import Operation
from crewlite.usage import Usage, UsageRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished step. `digest` is over the whole value, also where the value is stored as a reference."""

    address: str
    kind: str
    attempt: int
    fingerprint: str
    value: Json
    digest: str
    usage: UsageRecord | None
    provenance: dict[str, str]
    milliseconds: float
    seq: int
    at: str
    """When it was recorded."""
    label: str | None = None
    reused: str | None = None
    """Where it was taken from, as `run/branch@address`, if the run did not come to it itself."""
    edited: bool = False
    question: Mapping[str, str] = field(default_factory=dict)
    """Texts of what it answers, such as the description of a task; none in what earlier releases recorded."""
    drifted: tuple[str, ...] = ()
    """Steps inside it whose answers were kept, though they had been asked something else."""
    changes: Sequence[Operation] = ()
    """What it changed of the state around it."""
    order: Order = ()
    """Where that stands among the changes of other steps."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A try that failed. `cause` is the child step it failed on; `final` says that it was not tried again."""

    address: str
    kind: str
    number: int
    error_type: str
    message: str
    traceback: str
    milliseconds: float
    cause: str | None
    failure: str
    """Its kind, as a FailurePolicy sees it; "" for steps that have none."""
    final: bool
    seq: int
    started_at: datetime
    ended_at: datetime
    """When it was recorded, in UTC."""
    fingerprint: str | None = None
    """What was asked; told of a final one only."""
    raised: RaisedError | None = None
    """What it takes to raise its error again."""
    for_author: bool = False
    """Its error is for the author of the program, or came of one that is: the next try goes on inside this one."""
    remedy: Remedy | None = None
    """What followed it; None for a step that no policy decides on, and in what earlier releases recorded."""
    usage: Usage = field(default_factory=Usage)
    """In a history: what the steps paid that finished inside it."""


@dataclass(frozen=True, slots=True)
class LightEvent:
    """An event as history keeps it."""

    type: str
    event_id: str
    timestamp: str
    address: str
    seq: int


def attempt_of(step: StepRecord, seq: int, at: str) -> Attempt:
    """A try that failed, as an entry of this number and time tells it."""
    error, ended = step["error"], datetime.fromisoformat(at)
    return Attempt(
        step["address"],
        step["kind"],
        step.get("attempt", 1),
        error["type"],
        error["message"],
        error["traceback"],
        step["ms"],
        error.get("cause"),
        error["failure"],
        error["final"],
        seq,
        ended - timedelta(milliseconds=step["ms"]),
        ended,
        step.get("fingerprint"),
        error.get("raised"),
        error.get("for_author", False),
        _remedy_of(error),
    )


def _remedy_of(error: ErrorRecord) -> Remedy | None:
    recorded = error.get("remedy")
    return remedy_of(recorded["do"], recorded.get("after", 0.0), error["failure"]) if recorded else None


def outcome_of(step: StepRecord, seq: int, at: str, place: int = 0) -> Outcome:
    """An outcome, as an entry of this number and time tells it, at this place among its steps."""
    return Outcome(
        step["address"],
        step["kind"],
        step.get("attempt", 1),
        step["fingerprint"],
        step["value"],
        step["digest"],
        step.get("usage"),
        step.get("means", {}),
        step["ms"],
        seq,
        at,
        step.get("label"),
        step.get("reused"),
        step.get("edited", False),
        step.get("question", {}),
        tuple(step.get("drifted", ())),
        step.get("state", ()),
        tuple(step.get("order", (seq, place))),
    )
