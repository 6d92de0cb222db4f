"""What can go wrong in the work of a crew: types of failures, evidence for one, and what the next attempt is told.

A type says what went wrong in the work. The kind of a failure says how a call failed, by the class of its error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FailureType(StrEnum):
    """What went wrong. A classifier names it; a policy chooses a strategy by it."""

    WRONG_TOOL_CALLED = "wrong_tool_called"
    CONSTRAINT_IGNORED = "constraint_ignored"
    LOOP_DETECTED = "loop_detected"
    HALLUCINATED_STATE = "hallucinated_state"
    PLAN_INCOMPLETE = "plan_incomplete"
    SCHEMA_MISMATCH = "schema_mismatch"
    CONTEXT_OVERFLOW = "context_overflow"
    GOAL_DRIFT = "goal_drift"
    EXTERNAL_FAULT = "external_fault"
    TIMEOUT = "timeout"
    BUDGET_EXHAUSTED = "budget_exhausted"
    UNKNOWN = "unknown"


MEANINGS = {
    FailureType.WRONG_TOOL_CALLED: "A tool was called that does not exist, or is not the one for the purpose.",
    FailureType.CONSTRAINT_IGNORED: "A rule of the task was broken, or a guardrail or guard refused.",
    FailureType.LOOP_DETECTED: "The same thing was done again and again, with the same result.",
    FailureType.HALLUCINATED_STATE: "The work relies on facts that no result shows.",
    FailureType.PLAN_INCOMPLETE: "The work ended, or ran out of turns, before all of it was done.",
    FailureType.SCHEMA_MISMATCH: "An answer or an argument does not have the wanted shape.",
    FailureType.CONTEXT_OVERFLOW: "The conversation is longer than the model can take.",
    FailureType.GOAL_DRIFT: "The work is about something else than was asked.",
    FailureType.EXTERNAL_FAULT: "A service outside failed, such as a rate limit, a server error or a lost connection.",
    FailureType.TIMEOUT: "It took too long.",
    FailureType.BUDGET_EXHAUSTED: "Money, quota or another budget is used up.",
    FailureType.UNKNOWN: "None of these can be told.",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """A reason for the type of a failure."""

    rule: str
    """The name of what found the reason, such as a rule or a model."""
    text: str
    """The text in which the reason was found."""
    confidence: float = 1.0
    """How far the reason is to be trusted, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step of the failed work before its failure, as a policy, or the agent in its next attempt, is shown it."""

    action: str
    tool: str = ""
    input: Any = None
    output: Any = None
    error: str = ""
    said: str = ""
    """The text that a model gave."""
    address: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """What an attempt is told about the failure before it. The next attempt is told something else."""

    failure_type: FailureType = FailureType.UNKNOWN
    """What went wrong, as the classifier of the policy said."""
    attempt: int = 2
    """The number of this try over all kickoffs of the run. A kickoff that resumes after a final failure does not raise
    it."""
    hint: str = ""
    """What to do differently."""
    subgoal: str = ""
    """Where to go on, if the remedy names a subgoal."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that may be called; None for all."""
    trajectory: tuple[RecordedStep, ...] = ()
    """What the failed attempt has recorded with `record_step`."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the failed attempt has set with `update_state`."""

    @property
    def lists_tools(self) -> bool:
        """Whether an agent is also told the names of its tools."""
        return self.tools is not None or self.failure_type is FailureType.WRONG_TOOL_CALLED
