"""Rules that choose a remedy from a failure and the remedies applied before. Pure: no clock, no randomness."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from crewlite.errors import ConfigError, meant
from crewlite.recovery.failure import LONGEST_WAIT, Failure, FailureKind
from crewlite.recovery.remedy import Abort, Fallback, Remedy, Retry


@dataclass(frozen=True, slots=True)
class Rule:
    """Retry failures of these kinds up to `retries` times, with delays that grow from `base` to `cap` seconds."""

    kinds: frozenset[FailureKind]
    retries: int
    base: float = 1.0
    cap: float = LONGEST_WAIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", _kinds(self.kinds))
        if type(self.retries) is not int or self.retries < 0:
            raise ConfigError(f"Rule: retries is {self.retries!r}; wanted a whole number, 0 or more")
        for name, value in (("base", self.base), ("cap", self.cap)):
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise ConfigError(f"Rule: {name} is {value!r}; wanted seconds, 0 or more")

    def covers(self, failure: Failure) -> bool:
        """Return whether the rule applies to this failure."""
        return failure.kind in self.kinds

    def spent(self, past: Sequence[Remedy]) -> bool:
        """Return whether the rule has no retries left. `past`: the remedies applied since the last fallback."""
        counted = (remedy for remedy in past if isinstance(remedy, Retry))
        return sum(remedy.kind is None or remedy.kind in self.kinds for remedy in counted) >= self.retries


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """An ordered list of rules. The first one that covers the failure and has retries left decides.

    If there is none, the step tries its next fallback; without a fallback, it fails.

    >>> policy = FailurePolicy((Rule(frozenset({"unavailable"}), retries=1),))
    >>> 7 <= policy.decide(Failure("unavailable", "LLMUnavailable", "429", retry_after=7), ()).after <= 7.7
    True
    >>> policy.decide(Failure("bug", "KeyError", "x"), ())
    Abort()
    """

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple | list) or not all(isinstance(rule, Rule) for rule in self.rules):
            raise ConfigError(f"FailurePolicy: rules is {self.rules!r}; wanted a tuple of rules, such as (Rule(...),)")
        object.__setattr__(self, "rules", tuple(self.rules))

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy. Every fallback starts with all retries; a failure of kind "bug" gets no fallback."""
        since = _since_fallback(past)
        for rule in self.rules:
            if rule.covers(failure) and not rule.spent(since):
                return Retry(_delay(rule, failure, len(since)), failure.kind)
        return Fallback() if failure.fallbacks and failure.kind != "bug" else Abort()


@dataclass(frozen=True, slots=True)
class GoOn:
    """Retry up to `retries` times, except after a timeout. Steps inside that have finished are not run again."""

    retries: int

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return a Retry while retries are left and the failure is no timeout, else Abort."""
        return Abort() if failure.kind == "timeout" or len(past) >= self.retries else Retry(anew=False)


def _kinds(given: object) -> frozenset[FailureKind]:
    known = get_args(FailureKind)
    if not isinstance(given, frozenset | set | tuple | list):
        raise ConfigError(f"Rule: kinds is {given!r}; wanted a set of kinds, such as {{'timeout'}}")
    for kind in given:
        if kind not in known:
            hint = f" ({close})" if (close := meant(str(kind), known)) else ""
            raise ConfigError(f"Rule: {kind!r} is not a kind of failure{hint}; wanted some of {', '.join(known)}")
    return frozenset(given)


def _since_fallback(past: Sequence[Remedy]) -> Sequence[Remedy]:
    return past[max((n for n, remedy in enumerate(past, 1) if isinstance(remedy, Fallback)), default=0) :]


def _delay(rule: Rule, failure: Failure, tries: int) -> float:
    if failure.kind == "empty":
        return 0.0
    seed = int.from_bytes(hashlib.blake2b(f"{failure.address}/{tries}".encode(), digest_size=4).digest(), "big")
    chance = seed / 2**32  # spreads the retries of runs that failed at the same time
    if failure.retry_after is not None:
        return min(failure.retry_after * (1 + chance / 10), rule.cap)  # not sooner than the service asked, up to `cap`
    return min(rule.base * 2.0 ** min(tries, 60), rule.cap) * (1 + chance) / 2


def model_calls(retries: int) -> FailurePolicy:
    """Build the policy of a model that retries a failed call up to `retries` times, and an empty reply at most once."""
    empty = Rule(frozenset({"empty"}), retries=min(retries, 1))
    return FailurePolicy((Rule(frozenset({"unavailable", "timeout"}), retries=retries), empty))


DEFAULT = model_calls(3)
"""The default policy of model calls: four attempts if the model is unavailable or too slow, two for empty replies."""
