"""Classifiers say what went wrong, before a policy says what to do: the port, classification by rules, and by a model.

Rules need no model, and always give a failure the same type. They look at the error itself first, then at the steps
before it. An earlier error from which the work has recovered decides nothing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from crewlite.concurrency import background
from crewlite.definitions.keywords import constructor_with_known_keywords
from crewlite.errors import CONTROL_FLOW, ConfigError, text_of
from crewlite.lazy import lazy
from crewlite.recovery.checks import having, whole
from crewlite.recovery.failure import Failure
from crewlite.recovery.types import Evidence, FailureType, RecordedStep
from crewlite.texts.logs import logger

BY_CLASS, BY_STATUS, BY_WORDS = 1.0, 0.95, 0.7
"""How far a sign is to be trusted: the class of the error before its HTTP status, and both before words."""


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True)
class Symptom:
    """Signs of one type of failure. Any of them is enough.

    >>> Symptom("external_fault", errors=["DeskClosed"], words=r"desk (is )?closed").type
    <FailureType.EXTERNAL_FAULT: 'external_fault'>
    """

    type: FailureType | str
    """Held as a FailureType."""
    errors: Collection[str] = ()
    """Names of classes of errors, without their modules. Derived classes count too."""
    statuses: Collection[int] = ()
    """HTTP statuses."""
    words: str = ""
    """A regular expression that occurs in the message, whatever its case."""
    confidence: float = BY_CLASS
    """How far these signs are to be trusted at most, from 0 to 1."""

    def __post_init__(self) -> None:
        if self.type not in list(FailureType):
            raise ConfigError(f"Symptom: {self.type!r} is no type of failure; wanted one of {', '.join(FailureType)}")
        for name, kind in (("errors", str), ("statuses", int)):
            given = getattr(self, name)
            if isinstance(given, str) or not all(isinstance(one, kind) for one in given):
                raise ConfigError(f"Symptom: {name} is {given!r}; wanted a list of {kind.__name__}")
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "type", FailureType(self.type))
        try:
            re.compile(self.words)
        except re.error as error:
            raise ConfigError(f"Symptom: words is {self.words!r}, which is no regular expression: {error}") from None


_T = FailureType
_OUTSIDE = (
    *("LLMUnavailable", "LLMEmptyReply", "StateConflict", "ConnectionError", "ConnectError", "TransportError"),
    *("RateLimitError", "APIConnectionError", "InternalServerError", "ServiceUnavailableError", "gaierror"),
)

SYMPTOMS = (
    Symptom(
        _T.TIMEOUT,
        ("TimeoutError", "TimeoutException", "Timeout", "APITimeoutError"),
        (408, 504),
        r"\btime[d]?[ -]?out\b|deadline exceeded|time limit|took too long",
    ),
    Symptom(
        _T.CONTEXT_OVERFLOW,
        ("ContextOverflow", "ContextWindowExceededError"),
        (413,),
        r"context[ _](length|window|size)|maximum context|too many tokens|prompt is too long",
    ),
    Symptom(
        _T.BUDGET_EXHAUSTED,
        ("BudgetExceeded",),
        (402,),
        r"insufficient[_ ](quota|funds|credits?)|out of credits?|budget (is |was )?(exceeded|exhausted|used up)",
    ),
    Symptom(
        _T.SCHEMA_MISMATCH,
        ("OutputInvalid", "ValidationError", "JSONDecodeError", "SchemaError"),
        (422,),
        r"validation error|invalid json|not valid json|jsondecodeerror|unexpected token|expecting value"
        r"|(does not|doesn't) (fit|match) the (output )?schema|schema mismatch",
    ),
    Symptom(
        _T.WRONG_TOOL_CALLED,
        ("ToolNotFound", "ToolNotFoundError", "UnknownTool"),
        words=r"(unknown|no such|invalid) (tool|function)\b|\bno (tool|function) (named|called|'|\")"
        r"|(tool|function)[ _]['\"]?[\w.-]*['\"]? ?(was |is )?(not[ _]found|unknown|not available|does not exist)",
    ),
    Symptom(_T.LOOP_DETECTED, ("TooManyCalls",), words=r"(infinite|endless) loop|stuck in a loop|loop detected"),
    Symptom(
        _T.CONSTRAINT_IGNORED,
        ("GuardrailFailed",),
        words=r"(constraint|guardrail|rule)\w* (\S+ )?(was |were )?(violated|ignored|broken)|violates? (the|a|our) ",
    ),
    Symptom(
        _T.HALLUCINATED_STATE,
        words=r"hallucinat|fabricated|made[- ]up|\bclaim(s|ed)\b.+\bbut\b",
    ),
    Symptom(_T.GOAL_DRIFT, words=r"(goal|task|topic) drift|off[- ]topic|not what was asked|drifted (away )?from"),
    Symptom(
        _T.EXTERNAL_FAULT,
        _OUTSIDE,
        (425, 429, 500, 502, 503, 529),
        r"rate.?limit|too many requests|service (is )?(temporarily )?unavailable|temporarily unavailable|bad gateway"
        r"|internal server error|overloaded|quota exceeded|\b(status|code|http|error)\W{0,3}(429|50[0-3])\b"
        r"|connection (was |is )?(refused|reset|aborted|closed|lost)",
    ),
    Symptom(
        _T.PLAN_INCOMPLETE,
        ("MaxIterations",),
        words=r"plan (is |was )?incomplete|(step|part)s? (of the plan )?(is|are|was|were) (missing|skipped|not done)",
        confidence=0.5,
    ),
)
"""All symptoms, in the order in which they are tried: of equally trusted signs, the first one counts."""


log = logger("crewlite.recovery")
by_model = lazy("crewlite.agent.classifier")  # on a higher floor, as it asks a model in a recorded step
_FROM_TRAJECTORY = 0.6
"""How far signs in the recorded steps are trusted: less than those in the error itself, unless these are weak."""


class Classifier(Protocol):
    """Names the type of a failure. It may be async."""

    def classify(self, failure: Failure) -> FailureType | str | Failure | Awaitable[FailureType | str | Failure]:
        """Return the type; or its name, in upper or lower case; or the failure with type and evidence."""


def check_classifier(classifier: object, where: str = "FailurePolicy") -> Any:
    """Return the classifier, or None, unchanged. Raises ConfigError, beginning with `where`, if it cannot classify."""
    wanted = "a RulesClassifier(), or an object with classify(failure)"
    return None if classifier is None else having("classify", f"{where}: classifier", classifier, wanted)


async def classified(
    classifier: Classifier, failure: Failure, mask: Callable[[str], str] = lambda text: text
) -> Failure:
    """Return the failure with the type and the evidence that a classifier gives it.

    If the classifier raises, or returns no type, the type is UNKNOWN, with the reason as evidence and in a warning,
    where `mask` hides secrets: a failure of the classifier must not hide the failure of the work. Errors that stop the
    run are raised.
    """
    name = type(classifier).__qualname__
    try:
        answer = await background.guarded(_asked(classifier, failure))
        if found := _typed(failure, answer, name):
            return found
        reason = f"{name} returned {answer!r}, which is no type of failure"
    except CONTROL_FLOW:
        raise
    except Exception as error:  # the border: a classifier may be code of the user
        reason = f"{name} raised {type(error).__qualname__}: {text_of(error)}"
    wanted = f"wanted one of {', '.join(FailureType)}, or the failure with `type` and `evidence`"
    log.warning("%s; %s. The failure counts as unknown.", mask(reason), wanted)
    return failure.of_type(FailureType.UNKNOWN, Evidence(name, reason))


async def _asked(classifier: Classifier, failure: Failure) -> object:
    answer = classifier.classify(failure)
    return await answer if inspect.isawaitable(answer) else answer


def _typed(failure: Failure, answer: object, name: str) -> Failure | None:
    """Return the failure with the type that a classifier returned (`answer`); None if that is no type."""
    if isinstance(answer, Failure) and answer.type in list(FailureType):
        return replace(failure, type=FailureType(answer.type), evidence=tuple(answer.evidence))
    known = answer.lower() if isinstance(answer, str) else None
    return failure.of_type(FailureType(known), Evidence(name, "")) if known in list(FailureType) else None


@constructor_with_known_keywords
@dataclass(frozen=True, slots=True)
class RulesClassifier:
    """Names the type of a failure by `SYMPTOMS`, the recorded steps, and symptoms of your own, which come first.

    `constraints`: texts that no answer may hold, whatever their case. `loop_window`: the number of equal calls in a row
    that make a loop.

    >>> from crewlite.recovery import Failure, Symptom
    >>> mine = RulesClassifier([Symptom("goal_drift", words="poem")])
    >>> mine.classify(Failure.of(ValueError("wrote a poem"))).type
    <FailureType.GOAL_DRIFT: 'goal_drift'>
    """

    symptoms: Sequence[Symptom] = ()
    constraints: Sequence[str] = ()
    loop_window: int = 3

    def __post_init__(self) -> None:
        for name, kind, example in (("symptoms", Symptom, "Symptom(...)"), ("constraints", str, "'a text'")):
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not all(isinstance(one, kind) for one in given):
                raise ConfigError(f"RulesClassifier: {name} is {given!r}; wanted a list, such as [{example}]")
            object.__setattr__(self, name, tuple(given))
        whole("RulesClassifier", 2, loop_window=self.loop_window)

    def classify(self, failure: Failure) -> Failure:
        """Return the failure with its type, and with the evidence for that type, the strongest first."""
        found = sorted(self._signs(failure), key=lambda sign: -sign[1].confidence)
        chosen = found[0][0] if found else FailureType.UNKNOWN
        return replace(failure, type=chosen, evidence=tuple(one for of, one in found if of == chosen))

    def _signs(self, failure: Failure) -> Iterator[tuple[FailureType, Evidence]]:
        symptoms = (*self.symptoms, *SYMPTOMS)
        if failure.type is not FailureType.UNKNOWN:
            yield failure.type, Evidence("the error itself", failure.error_type)
        for symptom in symptoms:
            yield from ((FailureType(symptom.type), one) for one in _evidence_in_error(symptom, failure))
        tail = failure.trajectory[-self.loop_window :]
        if len(tail) == self.loop_window and tail[0].tool and all(_call(one) == _call(tail[0]) for one in tail):
            yield FailureType.LOOP_DETECTED, _seen("equal calls", f"{tail[0].tool} was called {len(tail)} times alike")
        if not failure.trajectory:
            return
        last = failure.trajectory[-1]
        for text in self.constraints:
            if text.casefold() in last.said.casefold():
                yield FailureType.CONSTRAINT_IGNORED, _seen("constraint", f"the answer holds {text!r}")
        for symptom in symptoms:
            if symptom.words and re.search(symptom.words, last.error, re.IGNORECASE):
                yield FailureType(symptom.type), _seen("words of the last step", last.error)


def _evidence_in_error(symptom: Symptom, failure: Failure) -> Iterator[Evidence]:
    """Yield the evidence for a symptom that the error itself gives: by its class, its status and its words."""
    most, classes = symptom.confidence, failure.classes or (failure.error_type,)
    if name := next((name for name in classes if name in symptom.errors), None):
        yield Evidence("class of the error", name, most)
    if failure.status in symptom.statuses:
        yield Evidence("status", f"status {failure.status}", min(BY_STATUS, most))
    if symptom.words and re.search(symptom.words, failure.message, re.IGNORECASE):
        yield Evidence("words", failure.message, min(BY_WORDS, most))


def _call(step: RecordedStep) -> tuple[object, ...]:
    return step.tool, step.input, step.output


def _seen(rule: str, text: str) -> Evidence:
    return Evidence(rule, text, _FROM_TRAJECTORY)


@constructor_with_known_keywords
class LLMClassifier:
    """Asks a model for the type of a failure. It never raises: where the model fails, the type is UNKNOWN.

    `llm`: a model or its name. A model that is given by name answers in at most `max_tokens` tokens. `max_steps`: the
    number of recorded steps before the failure that the model is shown, 1 or more.
    """

    def __init__(self, llm: Any, *, max_tokens: int = 100, max_steps: int = 10) -> None:
        whole("LLMClassifier", 1, max_tokens=max_tokens, max_steps=max_steps)
        self.llm, self.max_steps = by_model.model_of(llm, max_tokens), max_steps

    async def classify(self, failure: Failure) -> Failure:
        """Return the failure with the type that the model names, and its reason as evidence."""
        found: Failure = await by_model.classified_by_model(self.llm, failure, self.max_steps)
        return found


@constructor_with_known_keywords
class HybridClassifier:
    """Classifies by rules, and asks a model only about failures that they leave UNKNOWN.

    `llm`: a model, its name, or an LLMClassifier. `rules`: a RulesClassifier of your own.
    """

    def __init__(self, llm: Any, rules: RulesClassifier | None = None) -> None:
        self.rules: RulesClassifier = check_classifier(rules, "HybridClassifier") or RulesClassifier()
        self.model = llm if isinstance(llm, LLMClassifier) else LLMClassifier(llm)

    async def classify(self, failure: Failure) -> Failure:
        """Return the failure with its type and the evidence for it."""
        by_rules = self.rules.classify(failure)
        return by_rules if by_rules.type is not FailureType.UNKNOWN else await self.model.classify(failure)
