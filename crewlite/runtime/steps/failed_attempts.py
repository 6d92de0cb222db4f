"""Record a failed attempt: with its remedy or, if a step must run to choose the remedy, before that.

A classifier that asks a model is such a step. A step inside the failed one then records the failure first, with all
that the choice needs: a run that is killed meanwhile continues to choose, and does not make the failed call again. The
failure of a step whose code only runs other steps is not recorded first: when it runs again, it fails in the same way.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

from crewlite import durable, kinds
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import CrewliteError, InDoubt, NotCodable
from crewlite.events.family import FamilyEvents
from crewlite.recovery import Evidence, Failure, FailureType, RecordedStep
from crewlite.runtime.steps.attempts import is_retried, tries
from crewlite.runtime.steps.causes import causes_of, for_author, message_of, traceback_of, type_of
from crewlite.runtime.steps.failures import ReportedFailure, raised, written
from crewlite.runtime.steps.frame import Frame
from crewlite.state.format.failed import ErrorRecord, SaidRecord
from crewlite.state.format.undecided import name_of
from crewlite.usage import UsageRecord

for _cls in (Failure, Evidence, RecordedStep, FailureType):  # the classes of a recorded failure
    codec.register(_cls)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What is known about a failed attempt when its remedy is chosen."""

    error: Exception
    milliseconds: float
    said: SaidRecord | None = None
    has_outcome: bool = False
    """Whether the step has an outcome, which reports the failure."""
    outcome: Any = None
    described: ErrorRecord | None = None
    """The description of the error, if the attempt was made by an earlier kickoff."""
    failure: Failure | None = None
    """The failure that the policy is asked about, if an earlier kickoff has described it."""
    usage: UsageRecord | None = None
    """Of a model call: the usage of its unusable reply; None if no reply came."""

    def reported(self) -> Any:
        """Return the outcome that reports the failure. Raises the error if there is no such outcome."""
        if not self.has_outcome:
            raise self.error
        return self.outcome


def described(frame: Frame, failed: FailedAttempt, error: Exception) -> ErrorRecord:
    """Describe a failed attempt for the record, without the decision. `error`: the attempt's own, or a later one."""
    causes, shown = causes_of(frame, error), frame.run.presentable(_original(frame, error))
    description: ErrorRecord = {
        "type": type_of(shown),
        "message": message_of(shown),
        "traceback": "" if causes else traceback_of(error, frame.mask),
        "cause": causes[0] if causes else None,
        "causes": [*causes, *frame.children.unobserved()],
        "failure": "",
        "final": False,
    }
    if for_author(frame, error):
        description["for_author"] = True
    if frame.is_changed_inside():
        description["holds"] = frame.run.record.base + 1
    if call := frame.own_step.model_call:
        description["model"] = call.asked_model()
    if failed.usage:
        description["usage"] = failed.usage
    return description


def _original(frame: Frame, error: Exception) -> Exception:
    """Return the error that put this call in doubt, which the next InDoubt can show; without one, `error` itself."""
    before = error.__cause__ if isinstance(error, InDoubt) and error.address == frame.address else None
    return before if isinstance(before, Exception) else error


async def keep(frame: Frame, failed: FailedAttempt, failure: Failure, *, again: bool = False) -> None:
    """Record a failed attempt before its remedy is chosen, as a step in the scope of the caller.

    With `again`, the next kickoff makes the attempt again unless a person has decided by then what follows this one. An
    attempt that cannot be recorded completely is not recorded: after a kill it is made again.
    """
    error = failed.error
    if frame.own_step.kind.enters or failed.described or for_author(frame, error) or frame.children.unobserved():
        return
    try:
        kept = {
            "error": described(frame, failed, error),
            "raised": written(frame.run.presentable(error)),
            "ms": failed.milliseconds,
            "said": failed.said,
            "failure": codec.encode(failure),
            **({"outcome": frame.own_step.encode(failed.outcome)} if failed.has_outcome else {}),
            **({"again": True} if again else {}),
        }
    except NotCodable:
        return
    data = frame.run.journal.secrets.mask_data(kept)

    async def work() -> Any:
        return data

    await durable.scope().step(
        Step(
            kind=kinds.CLASSIFICATION,
            name=_name(frame),
            work=work,
            question=frame.fingerprint,
            events=FamilyEvents.silent(frame.own_step.events.source),
            address=_address(frame),
            after=frame.run.record.seq + 1 if again else None,  # an undecided failure kept before is outdated
        )
    )


def kept(frame: Frame) -> FailedAttempt | None:
    """Return the attempt of an earlier kickoff whose remedy is not chosen yet; None if there is none.

    Sets the frame's failed child steps and sayings to those of that attempt.
    """
    run = frame.run
    record, address, at = run.record, frame.address, _address(frame)
    if address not in run.earlier.undecided or frame.inherited.mode.diverged or is_retried(address, record, run.rerun):
        return None
    outcome = record.outcomes.get(at)
    if outcome is None or outcome.fingerprint != codec.digest([kinds.CLASSIFICATION.name, frame.fingerprint]):
        return None
    data: Any = record.value(at)
    if data.get("again") and not _is_answered(frame):
        return None
    with contextlib.suppress(CrewliteError, LookupError, TypeError):  # by a later release: the attempt is made again
        description, failure = cast(ErrorRecord, data["error"]), codec.decode(data["failure"])
        reported = ReportedFailure(
            description["type"], description["message"], description["traceback"], data["raised"]
        )
        error = raised(frame.origin.name, reported)
        outcome = frame.own_step.decode(data["outcome"]) if "outcome" in data else None
        frame.children.failed = dict.fromkeys(description["causes"], error)
        if frame.children.sayings is not None and data["said"]:
            frame.children.sayings.say(data["said"])
        return FailedAttempt(
            error,
            data["ms"],
            data["said"],
            has_outcome="outcome" in data,
            outcome=outcome,
            described=description,
            failure=failure,
            usage=description.get("usage"),
        )
    return None


def _is_answered(frame: Frame) -> bool:
    """Return whether a person was asked what follows the attempt, and has answered every such question."""
    record, number = frame.run.record, tries(frame.run.record, frame.address)
    decision = f"{frame.children.prefix}{kinds.DECISION.name}:{number}-"
    open_ones = (asked["address"] for asked in record.waiting)
    return any(at.startswith(decision) for at in record.asked) and not any(at.startswith(decision) for at in open_ones)


def _address(frame: Frame) -> str:
    return f"{frame.children.prefix}{kinds.CLASSIFICATION.name}:{_name(frame)}"


def _name(frame: Frame) -> str:
    """Return the name of the step that keeps a failure: numbered, as attempts may share one prefix of addresses."""
    return name_of(tries(frame.run.record, frame.address))
