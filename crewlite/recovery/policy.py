"""Rules that turn a failure and what was tried already into a remedy. Pure: no clock, no chance, no waiting."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from crewlite.errors import ConfigError, meant
from crewlite.recovery.failure import LONGEST_WAIT, Failure, FailureKind


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` seconds. `kind` is what it answers: each kind of failure has a budget of its own."""

    delay: float = 0.0
    kind: FailureKind | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """Give up: the failure travels to whoever asked."""


Remedy = Retry | Abort


@dataclass(frozen=True, slots=True)
class Rule:
    """For failures of these kinds: up to `retries` more tries, backing off from `base` to `cap` seconds."""

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
        """Whether this rule speaks of such a failure."""
        return failure.kind in self.kinds

    def spent(self, past: Sequence[Remedy]) -> bool:
        """Whether its retries are used up."""
        counted = (remedy for remedy in past if isinstance(remedy, Retry))
        return sum(remedy.kind is None or remedy.kind in self.kinds for remedy in counted) >= self.retries


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """An ordered list of rules; the first that covers the failure and is not spent decides, else it is given up.

    >>> policy = FailurePolicy((Rule(frozenset({"unavailable"}), retries=1),))
    >>> 7 <= policy.decide(Failure("unavailable", "LLMUnavailable", "429", retry_after=7), ()).delay <= 7.7
    True
    >>> policy.decide(Failure("bug", "KeyError", "x"), ())
    Abort()
    """

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple | list) or not all(isinstance(rule, Rule) for rule in self.rules):
            raise ConfigError(f"FailurePolicy: rules is {self.rules!r}; wanted a tuple of rules, such as (Rule(...),)")
        object.__setattr__(self, "rules", tuple(self.rules))

    def decide(self, failure: Failure, past: Sequence[Remedy], *, key: str = "") -> Remedy:
        """The remedy. `past` holds those already applied to this step; `key` seeds the jitter, so that it replays."""
        for rule in self.rules:
            if rule.covers(failure) and not rule.spent(past):
                return Retry(_delay(rule, failure, len(past), key), failure.kind)
        return Abort()

    def kind(self, error: BaseException) -> FailureKind:
        """What sort of failure an error is."""
        return Failure.of(error).kind

    def delay(self, error: BaseException, past: Sequence[str], key: str) -> float | None:
        """`decide`, as a step asks it: seconds to wait before the next try, or None to give up.

        `past` holds the kinds of the failures that were retried before.
        """
        remedy = self.decide(Failure.of(error), _retried(past), key=key)
        return remedy.delay if isinstance(remedy, Retry) else None

    def retries(self, kind: str, past: Sequence[str]) -> bool:
        """Whether a failure of this kind is tried again, after failures of those kinds were."""
        found = [known for known in get_args(FailureKind) if known == kind]
        return any(isinstance(self.decide(Failure(known, "", ""), _retried(past)), Retry) for known in found)


def _kinds(given: object) -> frozenset[FailureKind]:
    known = get_args(FailureKind)
    if not isinstance(given, frozenset | set | tuple | list):
        raise ConfigError(f"Rule: kinds is {given!r}; wanted a set of them, such as {{'timeout'}}")
    for kind in given:
        if kind not in known:
            hint = f" ({close})" if (close := meant(str(kind), known)) else ""
            raise ConfigError(f"Rule: {kind!r} is no kind of failure{hint}; wanted some of {', '.join(known)}")
    return frozenset(given)


def _retried(past: Sequence[str]) -> list[Remedy]:
    return [Retry(kind=kind) for kind in get_args(FailureKind) for _ in range(list(past).count(kind))]


def _delay(rule: Rule, failure: Failure, tries: int, key: str) -> float:
    if failure.kind == "empty":
        return 0.0
    seed = int.from_bytes(hashlib.blake2b(f"{key}/{tries}".encode(), digest_size=4).digest(), "big")
    chance = seed / 2**32  # runs that failed together do not come back together
    if failure.retry_after is not None:
        return min(failure.retry_after * (1 + chance / 10), rule.cap)  # never sooner than asked
    return min(rule.base * 2.0 ** min(tries, 60), rule.cap) * (1 + chance) / 2


@dataclass(frozen=True, slots=True)
class Ladder:
    """Several ways to do one thing: when the budget of one is spent, the next begins, with a budget of its own.

    Which way an attempt takes follows from the kinds of the failures before it alone, so a resume goes on where the
    attempts of its earlier life ended.

    >>> two = Ladder(2, FailurePolicy((Rule(frozenset({"unavailable"}), retries=1),)))
    >>> [two.way(["unavailable"] * n) for n in range(4)]
    [0, 0, 1, 1]
    """

    ways: int
    policy: FailurePolicy

    def way(self, past: Sequence[str]) -> int:
        """The number, from 0, of the way that the next attempt takes after these failures."""
        return self._at(past)[0]

    def kind(self, error: BaseException) -> FailureKind:
        """What sort of failure an error is."""
        return self.policy.kind(error)

    def delay(self, error: BaseException, past: Sequence[str], key: str) -> float | None:
        """Seconds to wait before the next attempt, or None to give up. A bug is not tried another way."""
        way, tried = self._at(past)
        delay = self.policy.delay(error, tried, key)
        if delay is None and way + 1 < self.ways and self.kind(error) != "bug":
            return 0.0
        return delay

    def _at(self, past: Sequence[str]) -> tuple[int, list[str]]:
        way, tried = 0, list[str]()
        for kind in past:
            if self.policy.retries(kind, tried):
                tried.append(kind)
            else:
                way, tried = way + 1, []
        return min(way, self.ways - 1), tried


DEFAULT = FailurePolicy(
    (
        Rule(frozenset({"unavailable", "timeout"}), retries=3),
        Rule(frozenset({"empty"}), retries=1),
    )
)
"""What model calls do unless told otherwise: four tries where it may work later, two for an empty reply."""
