"""Errors with which a failure policy gives up: the failure in full, and how to go on."""

from __future__ import annotations

from typing import Any

from crewlite.errors.root import CrewliteError
from crewlite.texts.resuming import call_again, to_resume
from crewlite.texts.wording import sentence


class RecoveryEscalated(CrewliteError, RuntimeError):
    """A failure policy hands a failure to whoever kicked the run off. `__cause__` is the error itself.

    `failure` is the complete Failure: its type, address, attempts, evidence, last good step and trajectory. `said` is
    the policy's message.
    """

    code = "recovery_escalated"
    ends_run = True

    def __init__(
        self, failure: Any, said: str, *, run_id: str, location: str | None, branch: str = "main", kind: str = "crew"
    ) -> None:
        super().__init__(_message(failure, "Its policy escalates it", said, _again(run_id, location, branch, kind)))
        self.failure, self.said, self.run_id, self.location, self.branch = failure, said, run_id, location, branch


class RecoveryAborted(CrewliteError, RuntimeError):
    """A failure policy gives up, and says why in `said`. `__cause__` is the error itself, `failure` the Failure."""

    code = "recovery_aborted"
    ends_run = True

    def __init__(
        self, failure: Any, said: str, *, run_id: str, location: str | None, branch: str = "main", kind: str = "crew"
    ) -> None:
        super().__init__(_message(failure, "Its policy gives up", said, _again(run_id, location, branch, kind)))
        self.failure, self.said, self.run_id, self.location, self.branch = failure, said, run_id, location, branch


def _message(failure: Any, did: str, said: str, way_on: str) -> str:
    kind = "" if failure.type == "unknown" else f" ({failure.type})"
    tries = "" if failure.attempts == 1 else f" in try {failure.attempts}"
    what = f"{failure.address or 'The run itself'} failed{tries}{kind}: {failure.error_type}: {failure.message}"
    texts = (what, f"{did}: {said}" if said else did, way_on)
    return " ".join(sentence(text) for text in texts)


def _again(run_id: str, location: str | None, branch: str, kind: str) -> str:
    if location is None:
        return "Nothing was saved: to be able to go on, give what you kick off checkpoint=True"
    return f"Its record is kept: {call_again(kind)} with {to_resume(run_id, branch)} to go on there"
