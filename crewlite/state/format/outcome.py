"""The records of a step: its outcome, a failed attempt, an event.

A text that an outcome shares with an earlier outcome is stored once, and referred to by that step's address.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from crewlite.encoding.codec import Json
from crewlite.errors.stops import NOT_TO_SWALLOW
from crewlite.recovery.remedy import Remedy, as_data, remedy_of
from crewlite.state.format.commit import Claim, StepRecord
from crewlite.state.format.failed import RaisedError, RemedyRecord, SaidRecord
from crewlite.state.format.fields import Event
from crewlite.state.format.kept import Order
from crewlite.state.format.operations import Operation
from crewlite.usage import NO_USAGE, Usage, UsageRecord


class Outcome(NamedTuple):
    """The outcome of a finished step. `value` may refer to texts of earlier outcomes; `digest` includes these texts."""

    address: str
    kind: str
    attempt: int
    fingerprint: str
    value: Json
    digest: str
    usage: UsageRecord | None
    provenance: Mapping[str, str]
    milliseconds: float
    seq: int
    """The number of the commit that recorded it, also after a compaction has merged that commit with others."""
    at: str
    """The time at which the outcome was recorded."""
    label: str | None = None
    reused: str | None = None
    """The step from which the outcome was copied, as `run/branch@address`; None if this run produced it."""
    edited: bool = False
    question: Mapping[str, str] = MappingProxyType({})
    """The texts of the step's question, such as the description of a task; empty in records of early releases."""
    drifted: tuple[str, ...] = ()
    """The addresses of steps inside this one whose outcomes were kept although their questions had changed."""
    changes: Sequence[Operation] = ()
    """The changes that the step made to the state of the enclosing step."""
    order: Order = ()
    """The position of the step among all steps that the record holds; an edit takes that of the outcome before it."""
    said: SaidRecord | None = None
    """What the code of the step has reported about its work, with `record_step` and `update_state`."""
    worked: float | None = None
    """For how many milliseconds all attempts worked, if a compaction has left out the steps inside; else None."""
    unused: tuple[str, ...] = ()
    """The addresses of steps inside this one that a fork has inherited and this step's code has not requested there."""
    calls: tuple[str, ...] = ()
    """The addresses of the calls that a reply requests, if they do not follow from the order of the calls."""

    @property
    def reused_at(self) -> str:
        """The address of the step from which the outcome was copied; "" if this run produced it."""
        return self.reused.partition("@")[2] if self.reused else ""


_RECORDED = itemgetter(
    *("address", "kind", "attempt", "fingerprint", "value", "digest", "usage", "means", "ms", "seq", "at", "label"),
    *("reused", "edited", "question", "drifted", "state", "order", "said", "worked", "unused", "calls"),
)
"""What a step is recorded with, in the order of the fields of `Outcome`."""
_LEFT_OUT: dict[str, Any] = {
    **dict.fromkeys(("usage", "label", "reused", "said", "worked")),
    "attempt": 1,
    "edited": False,
    "means": {},
    "question": {},
    **dict.fromkeys(("drifted", "state", "unused", "calls"), ()),
}
"""What a step without these fields is recorded with."""
_LISTS = {"drifted", "order", "unused", "calls"}
"""What is recorded as a list, and is a tuple in an `Outcome`."""
_STOPPING = {cls.__qualname__ for cls in NOT_TO_SWALLOW}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt. `cause` is the address of the child step that made it fail; `final`: there was no retry."""

    address: str
    kind: str
    number: int
    error_type: str
    message: str
    traceback: str
    milliseconds: float
    cause: str | None
    failure: str
    """The kind of the failure, as a policy sees it; "" for a step without a policy."""
    final: bool
    seq: int
    started_at: datetime
    ended_at: datetime
    """The time at which the attempt was recorded, in UTC."""
    fingerprint: str | None = None
    """The digest of the step's question; recorded for a final attempt only."""
    raised: RaisedError | None = None
    """The data from which the error of the attempt is rebuilt, to be raised again."""
    for_author: bool = False
    """Whether the program's author has to fix the cause. A resume then continues this attempt under its number."""
    remedy: Remedy | None = None
    """The remedy that followed; None for a step without a policy, and in records of early releases."""
    said: SaidRecord | None = None
    """What the code of the step has reported about its work, with `record_step` and `update_state`."""
    usage: Usage = NO_USAGE
    """Of a model call: the usage of its reply, which was no answer. In History, also that of the steps inside it."""
    order: Order = ()
    """The position of the attempt among all steps that the record holds."""
    model: str | None = None
    """Of a model call: the model that was asked, which may be a fallback. None in records of early releases."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """As `Outcome.provenance`; recorded for a final attempt only."""
    holds: int = 0
    """The number of the first commit of a fork that has edited a step inside this attempt, or set one to run again that
    has not run yet; else 0. The next attempt continues this one under its number, as the changed step's address is
    inside it, and what is recorded up to that commit stays valid."""
    void: bool = False
    """Whether the code had handled this failure, and has gone another way since."""

    @property
    def undecided(self) -> bool:
        """Whether the remedy is not chosen yet: a person or a model is being asked."""
        return not (self.final or self.failure)

    @property
    def stops_run(self) -> bool:
        """Whether the failure stopped the run, so that no code can have handled it: see NOT_TO_SWALLOW."""
        return self.for_author and self.error_type in _STOPPING


class LightEvent(NamedTuple):
    """An event as it is recorded, without its details. A tuple, as a record has thousands."""

    type: str
    event_id: str
    timestamp: str
    address: str
    seq: int


class Events:
    """The events of a record, in order. Each is built when it is read, as few readers of a record want them."""

    def __init__(self) -> None:
        self._of_commits = list[tuple[Sequence[int], Sequence[Event]]]()
        self._count = self._indexed = 0
        self._started_in = defaultdict[str, list[int]](list)
        self.claims = list[int]()
        """The numbers of the commits with which claims began or ended."""
        self._claim: Claim | None = None
        self.starts: dict[str, str] = {}
        """The time of the first start of each step, by address."""

    def add(self, events: Sequence[Event], seq: int, merged: Sequence[int] | None = None) -> None:
        """Add the events of a commit. `merged`: the number of the commit of each, if the commit replaces several."""
        self._of_commits.append((merged or (seq,) * len(events), events))
        self._count += len(events)
        for kind, _, time, address in events:
            if kind.endswith("_started"):
                self.starts.setdefault(address, time)

    def claim(self, claim: Claim | None, seq: int, merged: Sequence[int] | None = None) -> None:
        """Note that the process with this claim writes from commit `seq` on; None: that no process does.

        `merged`: the numbers of the commits with which claims began or ended, if that commit replaces several.
        """
        if merged is not None:
            self.claims += merged
        elif claim != self._claim:
            self.claims.append(seq)
        self._claim = claim

    def beside(self, address: str) -> Callable[[int], bool]:
        """Return a function that tells whether the kickoff that made a commit had started this step by then."""
        for numbers, events in islice(self._of_commits, self._indexed, None):  # few runs ask, so add() does not do it
            for seq, (kind, _, _, at) in zip(numbers, events, strict=True):
                if kind.endswith("_started"):
                    self._started_in[at].append(seq)
        self._indexed = len(self._of_commits)
        ends = (*self.claims, math.inf)  # the first commit of the next kickoff, as a merged one may be of both
        ranges = [(seq, ends[bisect_right(self.claims, seq)]) for seq in self._started_in.get(address, ())]
        return lambda seq: any(first <= seq <= last for first, last in ranges)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LightEvent]:
        of_commits = (zip(events, numbers, strict=True) for numbers, events in self._of_commits)
        return (LightEvent(*event, seq) for commit in of_commits for event, seq in commit)


def attempt_of(step: StepRecord, seq: int, at: str, place: int = 0) -> Attempt:
    """Build a failed attempt from its record in an entry with this number and time. `place`: its index there."""
    error, ended, order = step["error"], datetime.fromisoformat(at), step.get("recorded", (seq, place))
    return Attempt(
        address=step["address"],
        kind=step["kind"],
        number=step.get("attempt", 1),
        error_type=error["type"],
        message=error["message"],
        traceback=error["traceback"],
        milliseconds=step["ms"],
        cause=error.get("cause"),
        failure=error["failure"],
        final=error["final"],
        seq=order[0],
        started_at=ended - timedelta(milliseconds=step["ms"]),
        ended_at=ended,
        fingerprint=step.get("fingerprint"),
        raised=error.get("raised"),
        for_author=error.get("for_author", False),
        remedy=remedy_of(error["remedy"], error["failure"]) if "remedy" in error else None,
        said=error.get("said"),
        order=tuple(order),
        model=error.get("model"),
        usage=Usage.of(error["usage"]) if "usage" in error else NO_USAGE,
        provenance=step.get("means", {}),
        holds=error.get("holds", 0),
    )


def recorded_remedy(remedy: Remedy) -> RemedyRecord:
    """Build the record of a remedy."""
    return cast(RemedyRecord, as_data(remedy))


def outcome_of(step: StepRecord, seq: int, at: str, place: int = 0) -> Outcome:
    """Build an outcome from its record in an entry with this number and time. `place`: its index in that entry."""
    order = step.get("recorded", (seq, place))
    recorded = {**_LEFT_OUT, "order": tuple(order), **step, "seq": order[0], "at": at}
    for name in _LISTS:
        if name in step:
            recorded[name] = tuple(recorded[name])
    return Outcome._make(_RECORDED(recorded))


def by_reference(value: Json, references: Mapping[str, str]) -> Json:
    """Return `value`, each text that is a key of `references` replaced by a reference to the step that recorded it."""
    if isinstance(value, str):
        return {"$": "of", "v": references[value]} if value in references else value
    if isinstance(value, dict):
        return {key: by_reference(item, references) for key, item in value.items()}
    if isinstance(value, list):
        return [by_reference(item, references) for item in value]
    return value


def causes_of(step: StepRecord) -> Sequence[str | None]:
    """Return the addresses of the failures that made a step fail; () if it has not failed."""
    error = step.get("error")
    return error.get("causes", (error.get("cause"),)) if error else ()


def resolved(value: Json, text_at: Callable[[str], Json], only: Container[str] | None = None) -> Json:
    """Return `value` with its references replaced by texts; with `only`, just the references to these addresses."""
    if isinstance(value, dict):
        if value.get("$") == "of" and (only is None or value["v"] in only):
            return text_at(value["v"])
        return {key: resolved(item, text_at, only) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, text_at, only) for item in value]
    return value
