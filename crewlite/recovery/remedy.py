"""Remedies: the decision that follows a failed attempt, as plain data, and the port of the policy that makes it.

A step asks its policy for a remedy, applies it, and records it with the attempt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from crewlite.errors import ConfigError, text_of
from crewlite.recovery.failure import Failure


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `after` seconds. Raises ConfigError if that is not a number of seconds, 0 or more."""

    after: float = 0.0
    kind: str | None = None
    """The kind of the failure, because rules count the retries of each kind. The step sets it."""
    anew: bool = field(default=True, repr=False)
    """False goes on where a step inside failed, as a resume would; finished steps inside answer from the record."""

    def __post_init__(self) -> None:
        if type(self.after) not in (int, float) or not 0 <= self.after < math.inf:
            raise ConfigError(f"Retry: after is {self.after!r}; wanted seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class Fallback:
    """Try the next fallback of the step at once, such as another model. Without one, this is the same as `Abort`."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Give up: the step fails, and its caller gets the error."""


Remedy = Retry | Fallback | Abort


class Policy(Protocol):
    """Chooses the remedy for a failed attempt. It should be pure: equal arguments give equal remedies."""

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy for a failure.

        `past` are the remedies that the step has applied so far, before a resume too.
        """


def check_policy(policy: object, where: str = "") -> Any:
    """Return the policy, or None, unchanged. Raises ConfigError, beginning with `where`, if it has no `decide`."""
    if policy is None or (not isinstance(policy, type) and callable(getattr(policy, "decide", None))):
        return policy
    found = f"{where}: failure_policy" if where else "failure_policy"
    raise ConfigError(f"{found} is {policy!r}; wanted a FailurePolicy, or an object with decide(failure, past)")


def remedy_for(policy: Policy, failure: Failure, past: Sequence[Remedy]) -> Remedy:
    """Return the remedy that the policy chooses. Raises ConfigError if the policy raises, or returns no remedy."""
    name = type(policy).__qualname__
    try:
        remedy = policy.decide(failure, tuple(past))
    except Exception as error:  # the border: a policy may be code of the user
        raise ConfigError(f"{name}.decide raised {type(error).__qualname__}: {text_of(error)}") from error
    match remedy:
        case Retry():
            return replace(remedy, kind=failure.kind)
        case Fallback():
            return remedy if failure.fallbacks else Abort()
        case Abort():
            return remedy
    raise ConfigError(f"{name}.decide returned {remedy!r}; wanted Retry(after), Fallback() or Abort()")


def remedy_of(name: str | None, after: float, kind: str, *, anew: bool = True) -> Remedy | None:
    """Rebuild a remedy from its recorded name; return None for a name that this release does not know.

    The other arguments are the fields of a Retry: `after` seconds of delay, the `kind` of failure, and `anew`.
    """
    match name:
        case "retry":
            return Retry(after, kind, anew)
        case "fallback":
            return Fallback()
        case "abort":
            return Abort()
    return None
