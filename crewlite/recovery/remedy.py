"""Remedies: what follows a failed attempt, as plain data; and the port that chooses one.

A step asks its policy, applies the remedy, and records it with the attempt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from crewlite.errors import ConfigError, text_of
from crewlite.recovery.failure import Failure


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again `after` so many seconds. Raises ConfigError for a number that is no time to wait."""

    after: float = 0.0
    kind: str | None = None
    """The kind of failure that it answers, as each has a budget of its own. The step fills it in."""

    def __post_init__(self) -> None:
        if type(self.after) not in (int, float) or not 0 <= self.after < math.inf:
            raise ConfigError(f"Retry: after is {self.after!r}; wanted seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class Fallback:
    """Go on at once with the next way of doing it: a model's next fallback. Where there is none, it is `Abort`."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Give up: whoever asked for the step gets the error."""


Remedy = Retry | Fallback | Abort


class Policy(Protocol):
    """Chooses the remedy for a failed attempt. It should be pure: the same failure and past, the same remedy."""

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """`past` holds the remedies that this step has applied so far, in this run and in those it resumes."""


def check_policy(policy: object, where: str = "") -> Any:
    """The policy, or None. Raises ConfigError, which begins with `where`, for an object that cannot decide."""
    if policy is None or (not isinstance(policy, type) and callable(getattr(policy, "decide", None))):
        return policy
    found = f"{where}: failure_policy" if where else "failure_policy"
    raise ConfigError(f"{found} is {policy!r}; wanted a FailurePolicy, or an object with decide(failure, past)")


def remedy_for(policy: Policy, failure: Failure, past: Sequence[Remedy]) -> Remedy:
    """The remedy that the policy chooses. Raises ConfigError if it raises, or returns anything else."""
    name = type(policy).__qualname__
    try:
        remedy = policy.decide(failure, tuple(past))
    except Exception as error:  # the border: a policy may be the user's own
        raise ConfigError(f"{name}.decide raised {type(error).__qualname__}: {text_of(error)}") from error
    match remedy:
        case Retry():
            return replace(remedy, kind=failure.kind)
        case Fallback():
            return remedy if failure.fallbacks else Abort()
        case Abort():
            return remedy
    raise ConfigError(f"{name}.decide returned {remedy!r}; wanted Retry(after), Fallback() or Abort()")


def remedy_of(name: str | None, after: float, kind: str) -> Remedy | None:
    """A remedy as it was recorded, for a failure of this kind. None for a name that this release does not know."""
    match name:
        case "retry":
            return Retry(after, kind)
        case "fallback":
            return Fallback()
        case "abort":
            return Abort()
    return None
