"""A failure as plain data, with its kind, so that a policy can decide without inspecting exceptions.

What follows from a failure alone is here too: how long to wait before the next attempt, and the hint that it gets.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Literal

from crewlite.errors import (
    AnswerTimeout,
    ContextOverflow,
    CrewliteError,
    DeadlineExceeded,
    LLMEmptyReply,
    LLMRejected,
    LLMUnavailable,
    Redacted,
    StateConflict,
    StepCrashed,
    StepRaised,
    TooManyCalls,
    attribute_of,
    ends_run,
    text_of,
)
from crewlite.recovery.types import Evidence, FailureType, RecordedStep
from crewlite.texts.wording import sentence

FailureKind = Literal["unavailable", "later", "timeout", "empty", "refused", "bug"]
"""unavailable: may work later (rate limit, server error, lost connection). later: the same, but the service asks to
wait longer than `LONGEST_WAIT`. timeout: took too long. empty: a reply without content. refused: any other error of
crewlite, which a retry cannot fix. bug: anything else."""

LONGEST_WAIT = 60.0
"""The maximum number of seconds that a run waits before a retry."""
_LONGEST = 600  # characters of a text in a hint


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, as a policy sees it."""

    kind: FailureKind
    error_type: str
    message: str
    retry_after: float | None = None
    """The seconds that the service asked to wait; None if it did not."""
    address: str = ""
    """The address of the step that failed. It seeds the jitter, so that a resumed run computes the same delay."""
    fallbacks: int = 0
    """The number of fallbacks that are left, such as other models."""
    type: FailureType = FailureType.UNKNOWN
    """What went wrong in the work, according to the classifier or to the error's attribute `failure_type`."""
    evidence: tuple[Evidence, ...] = ()
    """The reasons for the type."""
    attempts: int = 1
    """The number of tries of the failing step so far, this one included."""
    recoveries: int = 0
    """The number of remedies that the run has applied so far, in all of its steps."""
    cause: str = ""
    """The address of the step inside that failed first; "" if the step failed by itself."""
    last_good: str | None = None
    """The address of the last step that finished before the failing one, with the same parent as it or as a step around
    it; None if there is none."""
    trajectory: tuple[RecordedStep, ...] = ()
    """The steps of the work up to the failure, oldest first."""
    is_told: bool = False
    """Whether a model is told if the policy gives up, and can then do something else, as after a failure of a tool."""
    classes: tuple[str, ...] = ()
    """The names of the error's class and of the classes it derives from."""
    status: int | None = None
    """The HTTP status that the error tells of."""
    permanent: bool = False
    """Whether no other attempt can succeed until somebody changes the program, its settings or its keys."""

    def of_type(self, known: FailureType, reason: Evidence) -> Failure:
        """Return the failure with this type, and the reason for it as its evidence."""
        return replace(self, type=known, evidence=(reason,))

    @classmethod
    def of(cls, error: BaseException, address: str = "", fallbacks: int = 0) -> Failure:
        """Build the failure of an error. The kind follows from the type of the error, never from its text."""
        kind, wait = _kind(error), _wait(error)
        if kind == "unavailable" and wait is not None and wait > LONGEST_WAIT:
            kind = "later"
        return cls(
            kind,
            type(error).__qualname__,
            text_of(error),
            wait,
            address,
            fallbacks,
            _type(error),
            classes=_classes(error),
            status=_status(error),
            permanent=_lasts(error),
        )


def _lasts(error: BaseException) -> bool:
    """Return whether no other attempt can succeed: a mistake in the program, a rejection, or a limit of the run."""
    if isinstance(error, DeadlineExceeded | AnswerTimeout | TooManyCalls):
        return True  # limits of the run count over all attempts
    return ends_run(error) or (isinstance(error, LLMRejected) and not isinstance(error, ContextOverflow))


def _wait(error: BaseException) -> float | None:
    """Return the seconds that an error asks to wait. Other libraries may store a text, a date or a negative number."""
    asked = attribute_of(error, "retry_after")
    try:
        wait = float(asked)
    except (TypeError, ValueError, OverflowError):
        return None
    return wait if 0 <= wait < math.inf else None


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, LLMUnavailable | StateConflict):
        return "unavailable"
    if isinstance(error, TimeoutError) and not isinstance(error, DeadlineExceeded):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "unavailable"
    if isinstance(error, LLMEmptyReply):
        return "empty"
    if isinstance(error, StepCrashed | StepRaised):
        return "bug"  # an error of the user's code in another process, classified as in this one
    return "refused" if isinstance(error, CrewliteError) else "bug"


def _type(error: BaseException) -> FailureType:
    """Return the type that an error itself names in an attribute `failure_type`; UNKNOWN if it names none."""
    named = attribute_of(error, "failure_type")
    return FailureType(named) if isinstance(named, str) and named in list(FailureType) else FailureType.UNKNOWN


def _classes(error: BaseException) -> tuple[str, ...]:
    """Return the names of an error's class and base classes. An error that this one replaces comes first."""
    own = [cls.__name__ for cls in type(error).__mro__ if cls not in (Exception, BaseException, object)]
    if isinstance(error, Redacted | StepRaised):
        own.insert(0, error.error_type.rpartition(".")[2])
    return tuple(own)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error or its response holds, under the names that HTTP libraries use."""
    for holder in (error, attribute_of(error, "response")):
        for name in ("status_code", "status", "code"):
            found = attribute_of(holder, name)
            if isinstance(found, int) and 400 <= found < 600:
                return int(found)
    return None


def delay(failure: Failure, tries: int, base: float, cap: float) -> float:
    """Return the seconds to wait before the next retry. `tries`: the number of earlier retries.

    The wait is between half and all of `base * 2**tries`, and at most `cap`. The address of the step decides where
    between, so that runs which fail at the same time retry at different times. If the service has said when to retry,
    the wait is that long or up to a tenth longer, and at most `cap`. After an empty reply there is no wait.
    """
    if failure.kind == "empty":
        return 0.0
    seed = int.from_bytes(hashlib.blake2b(f"{failure.address}/{tries}".encode(), digest_size=4).digest(), "big")
    chance = seed / 2**32  # spreads the retries of runs that failed at the same time
    if failure.retry_after is not None:
        return min(failure.retry_after * (1 + chance / 10), cap)  # not sooner than the service asked, up to `cap`
    return min(base * 2.0 ** min(tries, 60), cap) * (1 + chance) / 2


ADVICE = {
    FailureType.WRONG_TOOL_CALLED: "Call only the tools that are offered, by their exact names.",
    FailureType.CONSTRAINT_IGNORED: "Keep to every constraint that the task states.",
    FailureType.LOOP_DETECTED: "Do not repeat a call that has brought nothing new: take another way.",
    FailureType.HALLUCINATED_STATE: "State only what the results of tools and steps show, and check it against them.",
    FailureType.PLAN_INCOMPLETE: "Make a plan that reaches the answer, and do all of its steps.",
    FailureType.SCHEMA_MISMATCH: "Give the answer in exactly the shape that is asked for.",
    FailureType.CONTEXT_OVERFLOW: "Use less text: ask for less at a time, and sum up what is long.",
    FailureType.GOAL_DRIFT: "Do what was asked, and nothing else.",
    FailureType.EXTERNAL_FAULT: "A service outside failed: use another one if there is one.",
    FailureType.TIMEOUT: "It took too long: do less at a time.",
    FailureType.BUDGET_EXHAUSTED: "Little is left to spend: take the shortest way.",
    FailureType.UNKNOWN: "Do not make the same mistake again.",
}


def hint_of(failure: Failure) -> str:
    """Build the hint of a failure from its message, the evidence for its type, and the advice for that type.

    The hint names the number of the attempt. Otherwise code that passes the same hint on after going back would be
    answered from the record.
    """
    where = f" at {at}" if (at := failure.cause or failure.address) else ""
    message = _short(failure.message)
    tries = "The last attempt" if failure.attempts == 1 else f"Attempt {failure.attempts}"
    sentences = [f"{tries} failed{where}: {message or failure.error_type}"]
    sentences += [f"Evidence: {_short(one.text)}" for one in failure.evidence if one.text not in failure.message]
    return " ".join(sentence(text) for text in [*sentences, ADVICE[failure.type]])


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
