"""Ask the nearest failure policy about a failed attempt, record its decision, and emit events that report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any, cast

from crewlite import durable
from crewlite.durable import Said, with_more
from crewlite.errors import (
    NOT_TO_SWALLOW,
    ConfigError,
    DeadlineExceeded,
    RecoveryAborted,
    RecoveryEscalated,
    StepTimeout,
    ends_run,
)
from crewlite.events.base import BaseEvent
from crewlite.events.types.recovery_events import (
    FailureClassifiedEvent,
    RecoveryCompletedEvent,
    RecoveryFailedEvent,
    RecoveryStartedEvent,
)
from crewlite.events.types.step_events import StepFailedEvent
from crewlite.lazy import lazy
from crewlite.recovery import (
    DEFAULT,
    Abort,
    Compensate,
    Escalate,
    Failure,
    FailureType,
    Fallback,
    Policy,
    Remedy,
    Rollback,
    Suspend,
)
from crewlite.recovery.classify import classified
from crewlite.recovery.policy import remedy_for
from crewlite.recovery.remedy import GIVES_UP
from crewlite.runtime.steps import remedies
from crewlite.runtime.steps.attempts import is_for_work, tries, was_decided
from crewlite.runtime.steps.causes import causes_of, for_author, led_to, message_of, type_of
from crewlite.runtime.steps.failed_attempts import FailedAttempt, described, keep
from crewlite.runtime.steps.failures import written
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.run import Origin
from crewlite.runtime.steps.trajectory import last_good, trajectory
from crewlite.runtime.steps.undoing import undone
from crewlite.state.format.addresses import outers, prefix_beside
from crewlite.state.format.commit import CommitParts, StepRecord, invalidated
from crewlite.state.format.failed import RaisedError, RemedyRecord, SaidRecord
from crewlite.state.format.outcome import Attempt, recorded_remedy
from crewlite.state.format.record import Record
from crewlite.texts.logs import logger

log = logger("crewlite.run")
suspending = lazy("crewlite.runtime.people.suspending")  # its questions are steps, which this module helps to run


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision about a failed attempt: its remedy, or that the step fails."""

    remedy: Remedy
    error: Exception
    """The error to record: a new one if the policy itself failed."""
    kind: str = ""
    """The kind of the failure; "" if neither a policy for this step nor one inside it was asked."""
    failure: Failure | None = None
    """The failure that the policy for this step was asked about; None if it was not asked."""
    rises: bool = False
    """Whether this step fails so that an enclosing step can apply the remedy."""
    void: Sequence[tuple[str, str]] = ()
    """(address, kind) of each finished step whose outcome no longer counts."""

    @property
    def final(self) -> bool:
        """Whether the step fails instead of being tried again."""
        return self.rises or isinstance(self.remedy, GIVES_UP)

    def raised(self, frame: Frame, error: Exception) -> Exception:
        """Return the error to raise if the step fails: if its policy gave up, one that says why; otherwise `error`."""
        run, failure, remedy = frame.run, self.failure, self.remedy
        if failure is None or not isinstance(remedy, GIVES_UP) or isinstance(error, DeadlineExceeded):
            return error  # its message says how to go on after a deadline
        if isinstance(remedy, Abort) and not remedy.reason:
            return error
        cls = RecoveryEscalated if isinstance(remedy, Escalate) else RecoveryAborted
        said, location = frame.mask(remedy.said), run.journal.location
        return cls(failure, said, run_id=run.run_id, location=location, branch=run.branch, kind=run.record.kind)


async def remedied(frame: Frame, failed: FailedAttempt, attempt: int, past: list[Remedy]) -> Remedy:
    """Choose the remedy for a failed attempt, and record the failure and the remedy. Adds the remedy to `past`.

    Without a remedy the error is raised, unless the step has an outcome that reports the failure: then nothing is
    recorded or raised.
    """
    trace, context = failed.error.__traceback__, failed.error.__context__
    try:
        raise failed.error
    except Exception as error:  # an error while its remedy is chosen then has it as its context
        error.__traceback__, error.__context__ = trace, context
        decision = await _decided(frame, failed, past)
    remedy = decision.remedy
    if not (failed.has_outcome and decision.error is failed.error and remedy == Abort(type=remedy.type)):
        if decision.final:
            await _announce_end(frame, decision, past)
        past.append(remedy)
        await _recorded(frame, decision, attempt, failed)
    return remedy


async def _recorded(frame: Frame, decision: Decided, attempt: int, failed: FailedAttempt) -> None:
    """Commit a failed attempt with its remedy and emit its event. If it was the last attempt, raise the error."""
    run, address, error, outer = frame.run, frame.address, decision.error, frame.outer
    shown = run.presentable(error)
    thrown = decision.raised(frame, shown)
    attempted = _as_recorded(frame, decision, attempt, failed, thrown)
    if "fingerprint" in attempted:
        outer.children.siblings().handover.committed(address, run.journal.next_order)
    if (raised := attempted["error"].get("raised")) and address and not decision.rises and not ends_run(thrown):
        run.incomplete(address, frame.origin.name, raised)
    if not decision.final:
        _log_retry(frame, shown, attempt, decision.remedy)
    event = with_more(_event(frame, decision, attempt, failed, shown), started_event_id=frame.origin.parent)
    commit: CommitParts = {"steps": [*starmap(invalidated, decision.void), attempted]}
    await run.publish(frame.own_step.events.source, event, _origin(frame), parts=commit)
    if decision.final:
        outer.children.receive_sayings(address, failed.said)
        if thrown is error:
            raise error  # keeps its cause
        raise thrown from (None if thrown is shown else shown)


def _as_recorded(frame: Frame, decision: Decided, attempt: int, failed: FailedAttempt, thrown: Exception) -> StepRecord:
    """Build the record of a failed attempt. `thrown`: the error that is raised if it was the last attempt."""
    error, final, masked = decision.error, decision.final, frame.run.journal.secrets.mask_data
    known = failed.described if error is failed.error else None
    attempted: StepRecord = {
        "address": frame.address,
        "kind": frame.own_step.kind.name,
        "attempt": attempt,
        "ms": failed.milliseconds,
        "error": {**(known or described(frame, failed, error)), "failure": decision.kind, "final": final},
    }
    if decision.kind:
        attempted["error"]["remedy"] = cast(RemedyRecord, masked(recorded_remedy(decision.remedy)))
    if failed.said:
        attempted["error"]["said"] = failed.said
    is_asked_again = final and (frame.outer.inherited.mode.strict_replay or decision.rises)
    if is_asked_again:
        attempted["fingerprint"] = frame.fingerprint
        if provenance := frame.inherited.mode.provenance(frame.own_step):
            attempted["means"] = {**provenance}
    if is_asked_again or (final and not frame.address):  # the failure of the root reaches the caller of the kickoff
        attempted["error"]["raised"] = cast(RaisedError, masked(written(thrown)))
    return attempted


def _event(frame: Frame, decision: Decided, attempt: int, failed: FailedAttempt, shown: Exception) -> Said:
    """Return the event of a failed attempt. `shown`: its error without secrets."""
    about, took = {"error": message_of(shown), "error_type": type_of(shown)}, {"duration_ms": failed.milliseconds}
    if not decision.final:
        return RecoveryStartedEvent, {**about, **_started(frame, decision), **took}
    said = frame.own_step.events.failed(**about)
    if said and said[0] is StepFailedEvent:
        return said[0], {"attempt": attempt, **took, **said[1]}
    return said


def _log_retry(frame: Frame, shown: Exception, attempt: int, remedy: Remedy) -> None:
    run, error = frame.run, f"{type_of(shown)}: {message_of(shown)}"
    failed = f"attempt {attempt} at {run.called(frame.address)} failed ({error})"
    text = f"{failed}; {remedy.name} in {remedy.after:.3g} s"
    about = {"run_id": run.run_id, "branch": run.branch, "address": frame.address}
    log.info("%s/%s: %s", run.run_id, run.branch, frame.mask(text), extra=about)


async def _decided(frame: Frame, failed: FailedAttempt, past: Sequence[Remedy]) -> Decided:
    """Return what follows a failed attempt: a remedy that rises from an inner step, or the policy's choice."""
    error = failed.error
    if _is_for_person(frame, error):
        return Decided(Abort(), error)
    record, causes = frame.run.record, causes_of(frame, error)
    if risen := remedies.rising(record, causes):
        return await _risen(frame, risen, error)
    policy = _policy(frame, causes)
    if policy is None:
        return Decided(Abort(), error)
    failure = failed.failure or _failure(frame, error, past, failed.said)
    deciding = _deciding(frame)
    asked = deciding.children
    asked.before_first = keeping = partial(keep, frame, failed, failure)
    if (classifier := getattr(policy, "classifier", None)) is not None:
        with durable.entered(deciding):
            failure = await classified(classifier, failure, frame.mask)
        await _announce_type(frame, failure)
    try:
        remedy = remedy_for(policy, failure, remedies.counted(record, frame.address, past))
        if isinstance(remedy, Suspend):
            asked.before_first = asked.before_first and partial(keeping, again=frame.own_step.effect != "once")
            with durable.entered(deciding):
                remedy = await suspending.chosen(remedy, failure, frame.own_step.events.source)
    except ConfigError as misused:
        return Decided(Abort(), misused, failure.kind)
    if not is_for_work(remedy):
        return Decided(remedy, error, failure.kind, failure)
    prefix = frame.children.prefix
    where = remedies.applier(record, remedy, prefix, frame.address)
    if where is None:
        return Decided(Escalate(_nowhere(remedy), type=remedy.type), error, failure.kind, failure)
    if where != frame.address:
        return Decided(remedy, error, failure.kind, failure, rises=True)
    return await _applied(frame, Decided(remedy, error, failure.kind, failure))


def _is_for_person(frame: Frame, error: Exception) -> bool:
    """Return whether a person has to decide what the record means, so that no policy can choose a remedy.

    One case: nobody knows if a call with effect="once" has taken effect.
    """
    if frame.own_step.effect == "once" and isinstance(error, StepTimeout) and error.what == frame.own_step.title:
        return True
    return any(isinstance(one, NOT_TO_SWALLOW) for one, _ in led_to(frame, error))


async def _announce_end(frame: Frame, decision: Decided, past: Sequence[Remedy]) -> None:
    """Announce that no remedy is left for a step. Its failure is recorded afterwards.

    Does nothing if no remedy was ever applied and the policy does not escalate, or if an enclosing step decides.
    """
    failure = decision.failure
    if failure is None or decision.rises or not (past or isinstance(decision.remedy, Escalate)):
        return
    remedy = decision.remedy
    about = {**_about(frame, failure), "remedy": remedy.name, "reason": remedy.said}
    await _announce(frame, RecoveryFailedEvent, about)


async def announce_success(frame: Frame) -> None:
    """Announce that a step has succeeded after remedies."""
    about = _of_step(frame) | {"remedy": frame.past[-1].name}
    await _announce(frame, RecoveryCompletedEvent, about)


def _started(frame: Frame, decision: Decided) -> dict[str, Any]:
    """Return the fields of the event that a remedy is applied."""
    remedy, kind = decision.remedy, decision.remedy.type
    about = {"failure": decision.kind, "failure_type": kind.value if kind else "", "remedy": remedy.name}
    return _of_step(frame) | about | {"hint": remedy.hint, "delay": remedy.after}


async def _announce_type(frame: Frame, failure: Failure) -> None:
    about = _about(frame, failure)
    about["evidence"] = tuple({"rule": one.rule, "text": one.text} for one in failure.evidence)
    await _announce(frame, FailureClassifiedEvent, about)


async def _announce(frame: Frame, event: type[BaseEvent], about: dict[str, Any]) -> None:
    await frame.run.publish(frame.own_step.events.source, (event, about), _origin(frame))


def _origin(frame: Frame) -> Origin:
    """Return where the events about the step itself come from: the step, inside the one that encloses it."""
    return frame.origin._replace(parent=frame.outer.origin.parent)


def _about(frame: Frame, failure: Failure) -> dict[str, Any]:
    return _of_step(frame) | {
        "failure": failure.kind,
        "failure_type": failure.type.value,
        "error": failure.message,
        "error_type": failure.error_type,
    }


def _of_step(frame: Frame) -> dict[str, Any]:
    return {"kind": frame.own_step.kind.name, "name": _name(frame), "attempt": tries(frame.run.record, frame.address)}


def _name(frame: Frame) -> str:
    call = frame.own_step.model_call
    return call.asked_model() if call else frame.origin.name


async def _risen(frame: Frame, risen: Attempt, error: Exception) -> Decided:
    """Apply the remedy of an inner step if it is meant for this step; otherwise let the enclosing step decide.

    A step with effect="once" applies no remedy of an inner step and fails: only its own policy may repeat it.
    """
    record, remedy, at = frame.run.record, risen.remedy, risen.address
    assert remedy
    if frame.own_step.effect == "once":
        return Decided(Abort(), error, risen.failure)
    if remedies.applier(record, remedy, prefix_beside(at), at) != frame.address:
        return Decided(Abort(), error)
    kind, attempts = remedy.type or FailureType.UNKNOWN, len(record.attempts[at])
    failure = replace(_masked(frame, Failure.of(error, at)), type=kind, attempts=attempts)
    decision = Decided(remedy, error, risen.failure, failure)
    return await _applied(frame, decision)


async def _applied(frame: Frame, decision: Decided) -> Decided:
    """Return the decision with the finished steps that its remedy makes void. A Compensate undoes them first."""
    record, remedy, prefix = frame.run.record, decision.remedy, frame.children.prefix
    if (refuses := frame.own_step.policies.refuses) and (why := refuses(remedy)):
        return replace(decision, remedy=Escalate(why, type=remedy.type))
    if not isinstance(remedy, Compensate):
        return replace(decision, void=tuple(remedies.void_by(record, remedy, prefix)))
    with durable.entered(_deciding(frame)):
        then, steps = await undone(frame, remedy)
        if isinstance(then, Suspend) and decision.failure:
            then = await suspending.chosen(then, decision.failure, frame.own_step.events.source)
    gone = {*steps, *remedies.made_before(record, steps)}
    void = [(at, one.kind) for at, one in record.outcomes.items() if not gone.isdisjoint((at, *outers(at)))]
    return replace(decision, remedy=then, void=(*void, *remedies.void_by(record, then, prefix)))


def _deciding(frame: Frame) -> Frame:
    """Build a frame for steps about a failed attempt, such as questions. Their addresses are inside the failed step."""
    deciding = frame.outer.child(frame.own_step, frame.origin._replace(parent=None))
    deciding.children.prefix, deciding.children.unrequested = frame.children.prefix, set()
    return deciding


def _policy(frame: Frame, causes: Sequence[str]) -> Policy | None:
    """Return the nearest policy that decides on a failure; None if a policy of a child step has decided already.

    Only the step's own policy may repeat a call with effect="once".
    """
    step, policies = frame.own_step, frame.own_step.policies
    if policies.own or not policies.inherits:
        return policies.own
    if any(was_decided(frame.run.record, at) for at in causes):
        return None
    if step.effect == "once":
        return policies.inside
    return frame.inherited.policy or (DEFAULT if step.kind.asks_model else None)


def _failure(frame: Frame, error: Exception, past: Sequence[Remedy], said: SaidRecord | None) -> Failure:
    record, address = frame.run.record, frame.address
    call = frame.own_step.model_call
    left = call.fallbacks - sum(isinstance(remedy, Fallback) for remedy in past) if call else 0
    inside, beside = frame.children.prefix, frame.outer.children.prefix
    return replace(
        _masked(frame, Failure.of(for_author(frame, error) or error, address, left)),
        is_told=frame.own_step.failure is not None and not ends_run(for_author(frame, error) or error),
        attempts=tries(record, address),
        recoveries=sum(not attempt.final for made in record.attempts.values() for attempt in made),
        cause=_first(record, causes_of(frame, error)),
        last_good=last_good(record, inside),
        trajectory=trajectory(record, inside if frame.own_step.kind.worker else beside, said),
    )


def _masked(frame: Frame, failure: Failure) -> Failure:
    """Return the failure without secrets, as it is recorded, so that a policy decides the same after a kill."""
    return replace(failure, message=frame.mask(failure.message))


def _first(record: Record, causes: Sequence[str]) -> str:
    """Return the address of the step that failed first, at any depth; "" if `causes` is empty."""
    if not causes:
        return ""
    last = record.last_attempt(causes[0])
    return (_first(record, [last.cause]) if last and last.cause else "") or causes[0]


def _nowhere(remedy: Remedy) -> str:
    if isinstance(remedy, Rollback) and remedy.to:
        return f"There is no finished step {remedy.to!r} before the failure to go back to"
    if isinstance(remedy, Compensate):
        return "compensate is for a flow or a recoverable function, and nothing of this kind encloses the failed step"
    wanted = "a task, an agent, a step, a method or a flow"
    return f"{remedy.name} is for {wanted}, and nothing of this kind encloses the failed step"
