"""Choose a remedy from a failure and the remedies applied before: by rules, then by the strategy for its type.

Pure: no clock, no randomness.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

from crewlite.definitions.keywords import known_keywords
from crewlite.errors import ConfigError, meant, text_of
from crewlite.lazy import lazy
from crewlite.recovery.checks import whole
from crewlite.recovery.classify import Classifier, RulesClassifier, check_classifier
from crewlite.recovery.failure import Failure, FailureKind, delay
from crewlite.recovery.guards import Guard, check_guards
from crewlite.recovery.port import Policy
from crewlite.recovery.remedy import (
    GIVES_UP,
    USUAL,
    Abort,
    Escalate,
    Fallback,
    Remedy,
    Replan,
    Resume,
    Retry,
    Rollback,
    hinted,
    is_attempt,
    spent,
    typed,
)
from crewlite.recovery.strategies import (
    Rule,
    abort,
    backoff_and_retry,
    check_strategy,
    most_of,
    replan,
    rollback_to_checkpoint,
)
from crewlite.recovery.types import FailureType

if TYPE_CHECKING:
    from crewlite.recovery import reading
else:
    reading = lazy("crewlite.recovery.reading")  # only policies from files and mappings need it


class Strategies(TypedDict, total=False):
    """The strategies of a FailurePolicy, by the types of failures that they answer."""

    WRONG_TOOL_CALLED: Policy
    CONSTRAINT_IGNORED: Policy
    LOOP_DETECTED: Policy
    HALLUCINATED_STATE: Policy
    PLAN_INCOMPLETE: Policy
    SCHEMA_MISMATCH: Policy
    CONTEXT_OVERFLOW: Policy
    GOAL_DRIFT: Policy
    EXTERNAL_FAULT: Policy
    TIMEOUT: Policy
    BUDGET_EXHAUSTED: Policy
    UNKNOWN: Policy


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FailurePolicy:
    """An ordered list of rules, and a strategy for each type of failure.

    The first rule that covers the failure and has retries left decides. If there is none, the strategy for the type of
    the failure decides, or `default`. If there is none either, or it gives up, the step tries its next fallback;
    without a fallback, it fails.

    >>> policy = FailurePolicy((Rule(frozenset({"unavailable"}), retries=1),))
    >>> 7 <= policy.decide(Failure("unavailable", "LLMUnavailable", "429", retry_after=7), ()).after <= 7.7
    True
    >>> policy.decide(Failure("bug", "KeyError", "x"), ())
    Abort()
    """

    rules: tuple[Rule, ...]
    default: Policy | None
    """The strategy for types of failures that have none."""
    classifier: Classifier | None
    """Names the type of each failure; None if the policy has no strategies."""
    max_recovery_attempts: int
    """The most remedies for one step, of all types together. After these, a person can still be asked."""
    max_recovery_attempts_per_run: int | None
    strategies: tuple[tuple[FailureType, Policy], ...]
    guards: tuple[Guard, ...]
    """They may refuse calls of tools and models before anything happens. No policy inside switches them off."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        default: Policy | None = None,
        classifier: Classifier | None = None,
        max_recovery_attempts: int | None = None,
        max_recovery_attempts_per_run: int | None = None,
        guards: Sequence[Guard] = (),
        **strategies: Unpack[Strategies],
    ) -> None:
        """Without `max_recovery_attempts` it is 3, or the highest number that a strategy allows if that is more.

        `classifier` defaults to `RulesClassifier()` if there are strategies. Raises ConfigError.
        """
        if not isinstance(rules, tuple | list) or not all(isinstance(rule, Rule) for rule in rules):
            raise ConfigError(f"FailurePolicy: rules is {rules!r}; wanted a tuple of rules, such as (Rule(...),)")
        by_type = _by_type(strategies)
        known = [check_strategy("FailurePolicy: default", default)] if default is not None else []
        known += by_type.values()
        limits = {
            "max_recovery_attempts": max_recovery_attempts,
            "max_recovery_attempts_per_run": max_recovery_attempts_per_run,
        }
        whole("FailurePolicy", 0, **{name: limit for name, limit in limits.items() if limit is not None})
        if max_recovery_attempts is None:
            max_recovery_attempts = _patience(known)
        if check_classifier(classifier) is None and known:
            classifier = RulesClassifier()
        for name, value in (
            ("rules", tuple(rules)),
            ("default", default),
            ("classifier", classifier),
            ("max_recovery_attempts", max_recovery_attempts),
            ("max_recovery_attempts_per_run", max_recovery_attempts_per_run),
            ("strategies", tuple(sorted(by_type.items()))),
            ("guards", check_guards(guards)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FailurePolicy:
        """Build a policy from plain data, such as `{"TIMEOUT": {"retry": {"max_attempts": 2}}, "default": "abort"}`.

        A strategy is its name, or its name with its arguments. Raises ConfigError, which lists all mistakes.
        """
        return cls(**reading.arguments(data))

    @classmethod
    def from_yaml(cls, source: str | os.PathLike[str]) -> FailurePolicy:
        """Build a policy from a YAML file, or from a text that is YAML itself. Raises ConfigError."""
        return cls.from_dict(reading.loaded(source))

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy.

        Each fallback has all retries of the rules again. A failure of kind "bug" gets no fallback.
        """
        since = _since_fallback(past)
        for rule in self.rules:
            if rule.covers(failure) and not rule.spent(since):
                return Retry(delay(failure, len(since), rule.base, rule.cap), failure.kind)
        remedy = self._strategic(failure, past)
        return Fallback() if isinstance(remedy, GIVES_UP) and failure.fallbacks and failure.kind != "bug" else remedy

    def _strategic(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return what the strategy for the type of a failure chooses, within the budgets of the policy."""
        own = dict(self.strategies).get(failure.type)
        strategy = own or self.default
        if strategy is None:
            return Abort()
        remedy = typed(strategy.decide(failure, past), failure)
        if isinstance(remedy, GIVES_UP):
            return Abort() if failure.is_told and own is None else remedy
        if not is_attempt(remedy):
            return remedy  # so no budget of attempts forbids it
        if failure.permanent and isinstance(remedy, Retry | Replan | Rollback | Resume):
            return Escalate("No other attempt can succeed until the cause is removed", type=failure.type)
        of_step = sum(one.type is not None for one in past)
        for done, most, where in (
            (of_step, self.max_recovery_attempts, "step (max_recovery_attempts)"),
            (failure.recoveries, self.max_recovery_attempts_per_run, "run (max_recovery_attempts_per_run)"),
        ):
            if most is not None and done >= most:
                then = _without_attempts(strategy, failure, [*past, remedy])
                return then or spent(failure, f"The budget of {most} remedies of this {where} is used up")
        return remedy

    def __repr__(self) -> str:
        given = [f"rules={self.rules!r}", *(f"{name.name}={strategy!r}" for name, strategy in self.strategies)]
        known = [strategy for strategy in (self.default, *(one for _, one in self.strategies)) if strategy is not None]
        usual = {
            "default": None,
            "classifier": RulesClassifier() if known else None,
            "max_recovery_attempts": _patience(known),
            "max_recovery_attempts_per_run": None,
            "guards": (),
        }
        given += [f"{name}={value!r}" for name, one in usual.items() if (value := getattr(self, name)) != one]
        return f"FailurePolicy({', '.join(given)})"


@dataclass(frozen=True, slots=True)
class GoOn:
    """Retry up to `retries` times, except after a timeout. Steps inside that have finished are not run again."""

    retries: int

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return a Retry while retries are left and the failure is no timeout, else Abort."""
        return Abort() if failure.kind == "timeout" or len(past) >= self.retries else Retry(anew=False)


def _since_fallback(past: Sequence[Remedy]) -> Sequence[Remedy]:
    return past[max((n for n, one in enumerate(past, 1) if isinstance(one, Fallback)), default=0) :]


def remedy_for(policy: Policy, failure: Failure, past: Sequence[Remedy]) -> Remedy:
    """Return the remedy that the policy chooses. Raises ConfigError if the policy raises, or returns no remedy."""
    if isinstance(policy, MaxRetries):
        return policy.decide(failure, past)  # MaxRetries calls this function for the enclosing policy
    name = type(policy).__qualname__
    try:
        remedy = policy.decide(failure, tuple(past))
    except BaseException as error:  # the border: a policy of the user may raise SystemExit, which would end the loop
        raise ConfigError(f"{name}.decide raised {type(error).__qualname__}: {text_of(error)}") from error
    match remedy:
        case Retry():
            return replace(remedy, kind=failure.kind)
        case Fallback():
            return remedy if failure.fallbacks else Abort()
        case _ if isinstance(remedy, get_args(Remedy)):
            return hinted(remedy, failure)
    raise ConfigError(
        f"{name}.decide returned {remedy!r}; wanted Retry(after), Fallback() or Abort(), or another remedy of "
        f"crewlite.recovery"
    )


def _without_attempts(strategy: Policy, failure: Failure, past: list[Remedy]) -> Remedy | None:
    """Return the remedy that the strategy would choose after all its attempts had failed; None if it would give up.

    A budget that is used up forbids more attempts, but not a question to a person after them.
    """
    for _ in range(most_of(strategy) + 1):
        remedy = typed(strategy.decide(failure, past), failure)
        if isinstance(remedy, GIVES_UP):
            return None
        if not is_attempt(remedy):
            return remedy
        past = [*past, remedy]
    return None


def _patience(strategies: Sequence[Policy]) -> int:
    """Return the default number of remedies for one step: the usual one, or more if a strategy allows more."""
    return max([USUAL, *map(most_of, strategies)])


def _by_type(strategies: Mapping[str, Any]) -> dict[FailureType, Policy]:
    known, problems = FailureType.__members__, []
    for name in strategies:
        if name not in known:
            hint = f" ({close})" if (close := meant(name.upper(), known)) else ""
            problems.append(f"{name!r} is no type of failure{hint}")
    if problems:
        raise ConfigError(f"FailurePolicy: {'; '.join(problems)}; wanted some of {', '.join(known)}")
    return {known[name]: check_strategy(f"FailurePolicy: {name}", strategy) for name, strategy in strategies.items()}


def model_calls(retries: int) -> FailurePolicy:
    """Build the policy of a model that retries a failed call up to `retries` times, and an empty reply at most once."""
    empty = Rule(frozenset({"empty"}), retries=min(retries, 1))
    return FailurePolicy((Rule(frozenset({"unavailable", "timeout"}), retries=retries), empty))


DEFAULT = model_calls(3)
"""The default policy of model calls: four attempts if the model is unavailable or too slow, two for empty replies."""


@dataclass(frozen=True, slots=True)
class MaxRetries:
    """Limits the retries of calls whose failures may be over soon. The nearest enclosing policy decides all else.

    That policy also decides how often an empty reply is asked for again, up to this limit.
    """

    retries: int
    others: Policy = DEFAULT

    @property
    def classifier(self) -> Classifier | None:
        """The classifier of the enclosing policy."""
        return getattr(self.others, "classifier", None)

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return what the enclosing policy chooses, but a Retry while retries are left, and no Retry afterwards."""
        remedy = remedy_for(self.others, failure, past)
        limit = next((Rule(kinds, self.retries) for kinds in _FOR_NOW if failure.kind in kinds), None)
        if limit is None:
            return remedy
        since = _since_fallback(past)
        if limit.spent(since):
            return self._without_retries(remedy, failure, past)
        if isinstance(remedy, Retry) or failure.kind == "empty":
            return remedy
        wait = next((rule for rule in getattr(self.others, "rules", ()) if rule.covers(failure)), limit)
        return Retry(delay(failure, len(since), wait.base, wait.cap), failure.kind)

    def _without_retries(self, remedy: Remedy, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return what the enclosing policy would choose after all its retries had failed."""
        for _ in range(_MOST_RETRIES):
            if not isinstance(remedy, Retry):
                return remedy
            past = [*past, remedy]
            remedy = remedy_for(self.others, failure, past)
        return Fallback() if failure.fallbacks else Abort()


_FOR_NOW = frozenset[FailureKind]({"unavailable", "timeout"}), frozenset[FailureKind]({"empty"})
"""The kinds of failures that may be over soon, in groups that share a number of retries."""
_MOST_RETRIES = 1000  # of a policy that would never stop


def nearest(own: Policy, outer: Policy | None) -> Policy:
    """Return the policy for the steps of a definition: `own`. If that only limits retries, `outer` decides the rest."""
    return own if outer is None or not isinstance(own, MaxRetries) else replace(own, others=outer)


@dataclass(frozen=True, slots=True)
class ByListener:
    """One strategy for failures that a model is told of, such as those of its tools, and one for all other failures.

    A model that is told of a failure may call the same tool again, and each call has a budget of its own.
    """

    heard_by_model: Policy
    others: Policy

    @property
    def most(self) -> int:
        """The largest number of remedies that this strategy may choose."""
        return max(most_of(self.heard_by_model), most_of(self.others))

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy that the strategy for this failure chooses."""
        return (self.heard_by_model if failure.is_told else self.others).decide(failure, past)


@known_keywords("usual_policy")
def usual_policy(base: float = 1.0) -> FailurePolicy:
    """Build a policy for crews and flows. `base`: about the seconds before the first retry; the delays grow from there.

    Services that fail are called again. Work that went wrong is done again, told what was wrong. If the type is
    unknown, or a budget is used up, nothing is tried: the step fails, or the model is told that its tool failed.
    """
    return FailurePolicy(
        EXTERNAL_FAULT=ByListener(backoff_and_retry(2, base), backoff_and_retry(5, base)),
        TIMEOUT=ByListener(backoff_and_retry(1, base), backoff_and_retry(2, base)),
        WRONG_TOOL_CALLED=_AGAIN,
        CONSTRAINT_IGNORED=_AGAIN,
        LOOP_DETECTED=_AGAIN,
        PLAN_INCOMPLETE=_AGAIN,
        SCHEMA_MISMATCH=_AGAIN,
        CONTEXT_OVERFLOW=_AGAIN,
        GOAL_DRIFT=_AGAIN,
        HALLUCINATED_STATE=rollback_to_checkpoint(max_rollbacks=2),
        BUDGET_EXHAUSTED=abort(),
        UNKNOWN=abort(),
    )


_AGAIN = replan(max_replans=2)
