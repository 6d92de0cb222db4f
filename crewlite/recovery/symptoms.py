"""Symptoms: the signs by which a failure shows its type. The table is all that `RulesClassifier` knows of errors."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from crewlite.errors import ConfigError
from crewlite.recovery.types import FailureType

BY_CLASS, BY_STATUS, BY_WORDS = 1.0, 0.95, 0.7
"""How far a sign is to be trusted: the class of the error before its HTTP status, and both before words."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """Signs of one type of failure. Any of them is enough.

    >>> Symptom("external_fault", errors=["DeskClosed"], words=r"desk (is )?closed").type
    <FailureType.EXTERNAL_FAULT: 'external_fault'>
    """

    type: FailureType
    errors: Collection[str] = ()
    """Names of classes of errors, without their modules. Errors of derived classes show it as well."""
    statuses: Collection[int] = ()
    """HTTP statuses."""
    words: str = ""
    """A regular expression that occurs in the message, whatever its case."""
    confidence: float = BY_CLASS
    """How far it is to be trusted at most, from 0 to 1."""

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
"""In the order in which they are tried: of signs that are trusted alike, the first one counts."""
