"""What a step is made of besides its work: the limits and cache entry it has, the calls it leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from crewlite.usage import UsageRecord

if TYPE_CHECKING:
    from crewlite.recovery.port import Policy
    from crewlite.recovery.remedy import Remedy

Json = Any

Effect = Literal["none", "idempotent", "once"]
"""The effect of repeating a call. none: the call has no side effect. idempotent: a repetition with the same idempotency
key does no harm. once: a repetition does harm."""


Durability = Literal["sync", "async", "degraded", "off"]
"""How a run was saved. sync: every outcome was stored before the run continued. async: everything is stored now.
degraded: an outcome was not saved, or only after a retry. off: the run has no store."""
Drift = Literal["diverge", "keep", "rerun", "configured", "may_differ"]
"""What happens to a recorded step whose question has changed. diverge: from here on, no step is answered from the
record. keep: use the outcome. rerun: execute this step again, while its child steps may be answered from the record.
configured: as CheckpointConfig.on_drift says. may_differ: as diverge. Strict replay, under which a changed, new or
missing step is otherwise an error, allows all three for such a step."""


class Cached(NamedTuple):
    """The entry of the result cache that a step may take its outcome from, and stores its outcome in."""

    key: str
    """A digest of the question, and of who answers it and how. Steps with equal keys have interchangeable outcomes."""
    age: float | None
    """The seconds after which an entry is too old to reuse; None for no limit."""


class Limit(NamedTuple):
    """At most `width` steps with the same `key` run at once.

    A step counts as one together with the steps inside it, unless `counts_inside` says otherwise.
    """

    key: str
    width: int
    counts_inside: bool = False
    """Whether steps inside a step with this limit count too: one at a time shares the slot of the outer step, and each
    that runs beside that one takes a slot of its own."""


class ModelCall(Protocol):
    """What the engine asks a step that calls a model."""

    @property
    def fallbacks(self) -> int:
        """The number of fallbacks. The work uses as many of them as there are `Fallback` remedies in `Scope.past`."""

    def asked_model(self) -> str:
        """Return the model of the current attempt, which may be a fallback."""

    def usage_of_failure(self) -> UsageRecord | None:
        """Return the usage of a failed attempt, whose reply was no answer; None if no reply came."""


class Policies(NamedTuple):
    """Who decides on the failures of a step and of the steps inside it."""

    own: Policy | None = None
    """Decides on every failure of this step, also on one that a step inside it caused."""
    inherits: bool = False
    """Whether a step without a policy of its `own` is decided on by the nearest policy `inside` of this step or of one
    around it, except failures that a policy of a step inside has already decided on."""
    inside: Policy | None = None
    """The policy for this step and all steps inside it that inherit."""
    overruled: Policy | None = None
    """A policy that `inside` replaces, as a task's replaces its agent's. Its guards still apply."""
    refuses: Callable[[Remedy], str] | None = None
    """Returns why a remedy cannot be applied to this step; "" if it can."""


NO_POLICIES, INHERITED = Policies(), Policies(inherits=True)


class Intent(NamedTuple):
    """A call that a reply requests. One that is about to be made is recorded as such before it is made.

    So a resume can tell a call that may have been interrupted from a call that was never made.
    """

    address: str
    effect: Effect | None
    """None: the call is not made yet, as it is refused, answered with an earlier result, or waits for approval."""
    question: Any
    """The question of the step that makes the call."""


class Recorded(NamedTuple):
    """Where the outcome of a step stands in the record."""

    seq: int
    """The number of its commit."""
    order: tuple[int, ...]
    """Its place among all outcomes, which stays the same when commits are merged."""
    at: str = ""
    """The time of its commit, in ISO 8601; "" for one that is only foreseen."""
    edited: bool = False
    """Whether a fork has edited it: then it is reused whatever commit the step reacts to (`Step.after`)."""


class Call(NamedTuple):
    """A recorded step anywhere in the run, finished or not."""

    address: str
    outcome: Json = None
    """The outcome as recorded; None if there is none yet, or a prune has removed it."""
    fingerprint: str = ""
    """The digest of what it was asked; "" if it is not finished."""
