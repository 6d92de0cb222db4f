"""The hint that the next attempt gets: what went wrong, what speaks for it, and what to do otherwise."""

from __future__ import annotations

from crewlite.recovery.failure import Failure
from crewlite.recovery.types import FailureType

_LONGEST = 600  # characters of a text in a hint

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

    It counts the attempts: code that goes back and passes the same hint on would get the same recorded answers.
    """
    where = f" at {at}" if (at := failure.cause or failure.address) else ""
    message = _short(failure.message)
    tries = "The last attempt" if failure.attempts == 1 else f"Attempt {failure.attempts}"
    told = [f"{tries} failed{where}: {message or failure.error_type}"]
    told += [f"Evidence: {_short(one.text)}" for one in failure.evidence if one.text not in failure.message]
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in [*told, ADVICE[failure.type]])


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
