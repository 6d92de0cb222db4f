"""A rule: how often failures of some kinds are retried, and with what delays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from crewlite.errors import ConfigError, meant
from crewlite.recovery.checks import seconds, whole
from crewlite.recovery.failure import LONGEST_WAIT, Failure, FailureKind
from crewlite.recovery.remedy import Remedy, Retry


@dataclass(frozen=True, slots=True)
class Rule:
    """Retry failures of these kinds up to `retries` times, with delays that grow from `base` to `cap` seconds."""

    kinds: frozenset[FailureKind]
    retries: int
    base: float = 1.0
    cap: float = LONGEST_WAIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", _kinds(self.kinds))
        whole("Rule", 0, retries=self.retries)
        seconds("Rule", base=self.base, cap=self.cap)

    def covers(self, failure: Failure) -> bool:
        """Return whether the rule applies to this failure."""
        return failure.kind in self.kinds

    def spent(self, past: Sequence[Remedy]) -> bool:
        """Return whether the rule has no retries left. `past`: the remedies applied since the last fallback."""
        counted = (remedy for remedy in past if isinstance(remedy, Retry))
        return sum(remedy.kind is None or remedy.kind in self.kinds for remedy in counted) >= self.retries


def _kinds(given: object) -> frozenset[FailureKind]:
    known = get_args(FailureKind)
    if not isinstance(given, frozenset | set | tuple | list):
        raise ConfigError(f"Rule: kinds is {given!r}; wanted a set of kinds of failure, such as {{'timeout'}}")
    for kind in given:
        if kind not in known:
            hint = f" ({close})" if (close := meant(str(kind), known)) else ""
            raise ConfigError(f"Rule: {kind!r} is not a kind of failure{hint}; wanted some of {', '.join(known)}")
    return frozenset(given)
