"""Strategies: what to do about failures of one type. Rules: the same for kinds. Each strategy is a pure policy.

A strategy counts the remedies that answered failures of the same type, so no type uses up the budget of another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

from crewlite.definitions.keywords import constructor_with_known_keywords, known_keywords
from crewlite.errors import ConfigError, meant
from crewlite.recovery.checks import having, seconds, whole
from crewlite.recovery.failure import LONGEST_WAIT, Failure, FailureKind, delay, hint_of
from crewlite.recovery.port import Policy
from crewlite.recovery.remedy import (
    GIVES_UP,
    USUAL,
    Abort,
    Compensate,
    Escalate,
    Remedy,
    Replan,
    Resume,
    Retry,
    Rollback,
    Suspend,
    is_attempt,
    spent,
    typed,
)
from crewlite.texts.wording import number_of


@known_keywords("retry")
def retry(max_attempts: int = 3) -> Strategy:
    """Try again at once. `max_attempts`: the number of further tries, not counting the first."""
    return Strategy(Retry(), _times("retry", max_attempts=max_attempts))


@known_keywords("backoff_and_retry")
def backoff_and_retry(max_attempts: int = 5, base: float = 1.0, cap: float = LONGEST_WAIT) -> Strategy:
    """Try again after delays that grow from `base` to `cap` seconds.

    `max_attempts`: the number of further tries, not counting the first.
    A service that asks for a wait gets it; one that asks for more than `cap` is not waited for.
    """
    seconds("backoff_and_retry", base=base, cap=cap)
    return Strategy(Retry(), _times("backoff_and_retry", max_attempts=max_attempts), (base, cap))


@known_keywords("retry_with_tool_manifest")
def retry_with_tool_manifest(tools: Sequence[str] | None = None, max_attempts: int = 3) -> Strategy:
    """Try again with a hint. `tools`: the names of the tools that may be called then; None for all.

    `max_attempts`: the number of further tries, not counting the first.
    """
    if isinstance(tools, str):
        raise ConfigError(f"retry_with_tool_manifest: tools is {tools!r}; wanted a list of names, such as [{tools!r}]")
    offered = None if tools is None else tuple(tools)
    return Strategy(Retry(tools=offered), _times("retry_with_tool_manifest", max_attempts=max_attempts), hinted=True)


@known_keywords("replan")
def replan(hint: str | None = None, max_replans: int = 3) -> Strategy:
    """Do the work again from its beginning with a hint. None: the hint is made from the evidence."""
    return Strategy(Replan(hint or ""), _times("replan", max_replans=max_replans), hinted=True)


@known_keywords("rollback_to_checkpoint")
def rollback_to_checkpoint(place: str | None = None, max_rollbacks: int = 3) -> Strategy:
    """Go back to the last good step before the failure, or to the step `place`, such as "task:research"."""
    most = _times("rollback_to_checkpoint", max_rollbacks=max_rollbacks)
    return Strategy(Rollback(place), most, hinted=True)


@known_keywords("resume_from_subgoal")
def resume_from_subgoal(name: str | None = None, max_attempts: int = 3) -> Strategy:
    """Go on at the subgoal `name`; None: at the step that failed.

    `max_attempts`: the number of further tries, not counting the first.
    """
    return Strategy(Resume(name or ""), _times("resume_from_subgoal", max_attempts=max_attempts), hinted=True)


@known_keywords("suspend")
def suspend(question: str | None = None) -> Strategy:
    """Ask a person which remedy to apply. None: the question is made from the failure."""
    return Strategy(Suspend(question or ""))


@known_keywords("escalate")
def escalate(message: str = "") -> Strategy:
    """Give up, and hand the failure to whoever kicked the run off."""
    return Strategy(Escalate(message))


@known_keywords("abort")
def abort(reason: str = "") -> Strategy:
    """Give up: the step fails with its error."""
    return Strategy(Abort(reason))


@known_keywords("compensate")
def compensate(then: Policy | None = None) -> Compensation:
    """Undo the failed work's finished steps, newest first; then do what the strategy `then` decides, or escalate."""
    return Compensation(check_strategy("compensate: then", then or escalate()))


@known_keywords("sequence")
def sequence(*strategies: Policy) -> Sequential:
    """Ask the first strategy about the first failure of a type, the second about the second, ...; then escalate."""
    if not strategies:
        raise ConfigError("sequence() has no strategies; wanted one or more, such as sequence(retry(), escalate())")
    return Sequential(tuple(check_strategy("sequence", one) for one in strategies))


@known_keywords("chain")
def chain(first: Policy, then: Policy) -> Chain:
    """Ask `first` until it would escalate or abort; from there on, ask `then`."""
    return Chain(check_strategy("chain: first", first), check_strategy("chain: then", then))


@dataclass(frozen=True, slots=True)
class Strategy:
    """Apply one remedy up to `most` times to failures of a type, then escalate. Without `most`, there is no limit."""

    remedy: Remedy
    most: int | None = None
    backoff: tuple[float, float] | None = None
    """The shortest and the longest delay in seconds; None for no delay."""
    hinted: bool = False
    """Whether the remedy gets a hint, made from the evidence, if it has none."""

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy, or Escalate when the budget of this type of failure is spent."""
        done = len(_same_type(failure, past))
        if self.most is not None and done >= self.most:
            return spent(failure, _used_up(failure, self.most))
        more: dict[str, Any] = {"type": failure.type}
        if self.backoff:
            base, cap = self.backoff
            if (failure.retry_after or 0) > cap:
                asked = f"{failure.retry_after:,.10g} s, longer than the {cap:g} s that backoff_and_retry allows (cap)"
                return spent(failure, f"The service asks to wait {asked}")
            more["after"] = delay(failure, max(done, failure.attempts - 1), base, cap)
        if self.hinted and not self.remedy.hint:
            tools = self.remedy.tools
            more["hint"] = hint_of(failure) + (f" The tools are: {', '.join(tools)}." if tools else "")
        if isinstance(self.remedy, Resume) and not self.remedy.subgoal:
            more["subgoal"] = failure.cause or failure.address
        return replace(self.remedy, **more)

    def __repr__(self) -> str:
        shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self)[1:] if getattr(self, one.name)]
        return f"Strategy({', '.join([repr(self.remedy), *shown])})"


@dataclass(frozen=True, slots=True)
class Compensation:
    """Undo finished work, then do as another strategy says."""

    then: Policy

    @property
    def most(self) -> int:
        """The largest number of remedies that this strategy may choose."""
        return most_of(self.then)

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return a Compensate with what the other strategy chooses now; of another Compensate, with what follows it."""
        chosen = typed(self.then.decide(failure, past), failure)
        return Compensate(chosen.then if isinstance(chosen, Compensate) else chosen, type=failure.type)


@dataclass(frozen=True, slots=True)
class Sequential:
    """The n-th failure of a type gets the n-th strategy."""

    strategies: tuple[Policy, ...]

    @property
    def most(self) -> int:
        """The largest number of remedies that this strategy may choose."""
        return len(self.strategies)

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy that the strategy for this failure chooses; Escalate after the last strategy."""
        turn = len(_same_type(failure, past))
        if turn >= len(self.strategies):
            return spent(failure, _used_up(failure, turn))
        return typed(self.strategies[turn].decide(failure, ()), failure)


@dataclass(frozen=True, slots=True)
class Chain:
    """One strategy until it would give up, then another one, which counts only the remedies after that."""

    first: Policy
    then: Policy

    @property
    def most(self) -> int:
        """The largest number of remedies that this strategy may choose."""
        return most_of(self.first) + most_of(self.then)

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy that the first strategy chooses or, where it would give up, that of the second."""
        same = _same_type(failure, past)
        for done in range(len(same) + 1):
            if isinstance(remedy := self.first.decide(failure, same[:done]), GIVES_UP):
                return typed(self.then.decide(failure, same[done:]), failure)
        return typed(remedy, failure)


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True)
class Rule:
    """Retry failures of these kinds up to `retries` times, with delays that grow from `base` to `cap` seconds."""

    kinds: Collection[FailureKind]
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


def check_strategy(where: str, given: object) -> Any:
    """Return a strategy unchanged. Raises ConfigError, beginning with `where`, if it has no `decide`."""
    return having("decide", where, given, "a strategy, such as escalate()")


def most_of(policy: Policy) -> int:
    """Return the number of attempts that a strategy may make: the usual one if it does not say; 0 if it makes none."""
    most = getattr(policy, "most", None)
    if isinstance(most, int):
        return most
    remedy = getattr(policy, "remedy", None)
    return 0 if isinstance(remedy, get_args(Remedy)) and not is_attempt(remedy) else USUAL


def _same_type(failure: Failure, past: Sequence[Remedy]) -> list[Remedy]:
    return [remedy for remedy in past if remedy.type == failure.type]


def _used_up(failure: Failure, most: int) -> str:
    return f"The budget of {number_of(most, 'remedy', 'remedies')} for failures of type {failure.type} is used up"


def _times(name: str, **given: int) -> int:
    whole(name, 0, **given)
    (value,) = given.values()
    return value
