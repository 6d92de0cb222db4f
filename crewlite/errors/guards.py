"""Errors with which a guard refuses a call before anything has happened."""

from __future__ import annotations

from crewlite.errors.root import CrewliteError
from crewlite.texts.wording import number_of


class CallVetoed(CrewliteError, RuntimeError):
    """A guard has refused a call of a tool or a model, which was not made. `failure_type` says what it was to prevent.

    The model that asked for a tool hears of it; a failure policy may decide otherwise.
    """

    code = "call_vetoed"

    def __init__(self, guard: str, what: str, reason: str, failure_type: str = "constraint_ignored") -> None:
        super().__init__(f"{guard} refused the call of {what}, which was not made: {reason}")
        self.guard, self.what, self.reason, self.failure_type = guard, what, reason, failure_type


class CircuitOpen(CallVetoed, ConnectionError):
    """A tool or model has failed too often of late. It is called again after `retry_after` seconds."""

    code = "circuit_open"

    def __init__(self, what: str, failures: int, retry_after: float) -> None:
        often = number_of(failures, "time")
        reason = f"it has failed {often} of late. Try it again in {retry_after:.3g} s, or go on without it."
        super().__init__("CircuitBreaker", what, reason, "external_fault")
        self.failures, self.retry_after = failures, retry_after
