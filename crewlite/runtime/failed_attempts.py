"""A failed attempt, as it is recorded: with its remedy, or before, where choosing the remedy takes recorded steps.

Such a step is the question of a classifier to a model. The failure is recorded first then, as a step beside it, with
all that is needed to choose: a run that is killed meanwhile goes on with that, and does not make the failed call again.
Steps whose code does nothing between the steps inside it are left out: done again, it fails in the same way.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

from crewlite import codec, durable, kinds
from crewlite.durable import Step
from crewlite.errors import CrewliteError, NotCodable, text_of
from crewlite.recovery import Evidence, Failure, FailureType, RecordedStep
from crewlite.runtime.causes import causes_of, for_author, traceback_of, type_of
from crewlite.runtime.failures import Told, raised, written
from crewlite.runtime.frame import Frame
from crewlite.runtime.plain_voice import Silent
from crewlite.state.format.failed import ErrorRecord, SaidRecord
from crewlite.state.reading.undecided import name_of

for _cls in (Failure, Evidence, RecordedStep, FailureType):  # what is kept of a failure, and in errors that give up
    codec.register(_cls)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What is known of a failed attempt when its remedy is chosen."""

    error: Exception
    milliseconds: float
    said: SaidRecord | None = None
    told: bool = False
    """Whether the step has an outcome, which tells of the failure."""
    outcome: Any = None
    described: ErrorRecord | None = None
    """The description of the error, if the attempt was made by an earlier kickoff."""
    failure: Failure | None = None
    """What the policy is asked about, if an earlier kickoff was asking it."""

    def again(self) -> tuple[Any, FailedAttempt]:
        """Return the outcome that tells of the failure, with this; raise the error if there is no outcome."""
        if not self.told:
            raise self.error
        return self.outcome, self


def described(frame: Frame, error: Exception) -> ErrorRecord:
    """Describe the error of an attempt for the record, without what follows from it."""
    causes, shown = causes_of(frame, error), frame.run.presentable(error)
    description: ErrorRecord = {
        "type": type_of(shown),
        "message": text_of(shown),
        "traceback": "" if causes else frame.mask(traceback_of(error)),
        "cause": causes[0] if causes else None,
        "causes": [*causes, *frame.children.unobserved()],
        "failure": "",
        "final": False,
    }
    if for_author(frame, error):
        description["for_author"] = True
    return description


async def keep(
    step: Step[Any], frame: Frame, failed: FailedAttempt, failure: Failure, beside: Frame, *, again: bool = False
) -> None:
    """Record a failed attempt before its remedy is chosen, in the scope `beside`.

    With `again`, the next kickoff makes the attempt again unless a person has said by then what follows this one. An
    attempt that cannot be recorded completely is left out: after a kill it is made again.
    """
    error = failed.error
    if step.kind.enters or failed.described or for_author(frame, error) or frame.children.unobserved():
        return
    try:
        kept = {
            "error": described(frame, error),
            "raised": written(frame.run.presentable(error)),
            "ms": failed.milliseconds,
            "said": failed.said,
            "failure": codec.encode(failure),
            **({"outcome": step.encode(failed.outcome)} if failed.told else {}),
            **({"again": True} if again else {}),
        }
    except NotCodable:
        return
    data = frame.run.journal.secrets.mask_data(kept)

    async def work() -> Any:
        return data

    with durable.entered(beside):
        await durable.scope().step(
            Step(
                kind=kinds.CLASSIFICATION,
                name=_name(frame),
                work=work,
                question=frame.fingerprint,
                voice=Silent(step.voice.source),
                address=_address(frame),
                after=frame.run.record.seq + 1 if again else None,  # in place of a failure that nobody has decided on
            )
        )


def kept(step: Step[Any], frame: Frame) -> FailedAttempt | None:
    """Return the attempt of an earlier kickoff whose remedy is still to be chosen; None if there is none.

    The frame is then as that attempt left it.
    """
    if frame.inherited.mode.diverged or frame.address in frame.run.rerun:
        return None
    record, at = frame.run.record, _address(frame)
    outcome, asked = record.outcomes.get(at), codec.digest([kinds.CLASSIFICATION.name, frame.fingerprint])
    if outcome is None or outcome.fingerprint != asked or outcome.seq <= record.base:
        return None
    data: Any = record.value(at)
    if data.get("again") and not _is_answered(frame):
        return None
    with contextlib.suppress(CrewliteError, LookupError, TypeError):  # of a later release; the attempt is made again
        description, failure = cast(ErrorRecord, data["error"]), codec.decode(data["failure"])
        told = Told(description["type"], description["message"], description["traceback"], data["raised"])
        error = raised(step.title, told)
        outcome = step.decode(data["outcome"]) if "outcome" in data else None
        frame.children.failed = dict.fromkeys(description["causes"], error)
        if frame.sayings is not None and data["said"]:
            frame.sayings.say(data["said"])
        return FailedAttempt(error, data["ms"], data["said"], "outcome" in data, outcome, description, failure)
    return None


def _is_answered(frame: Frame) -> bool:
    """Return whether a person was asked what follows the attempt, and has answered."""
    record, decision = frame.run.record, f"{frame.children.numbering.prefix}{kinds.DECISION.name}:{_number(frame)}-"
    open_ones = (asked["address"] for asked in record.waiting)
    return any(at.startswith(decision) for at in record.asked) and not any(at.startswith(decision) for at in open_ones)


def _address(frame: Frame) -> str:
    return f"{frame.children.numbering.prefix}{kinds.CLASSIFICATION.name}:{_name(frame)}"


def _name(frame: Frame) -> str:
    """Return the name of the step that keeps a failure. Attempts that go on have the same prefix, so it is numbered."""
    return name_of(_number(frame))


def _number(frame: Frame) -> int:
    return len(frame.run.record.attempts.get(frame.address, ())) + 1
