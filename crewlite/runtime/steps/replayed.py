"""Answer a requested step from the record: its outcome, its failure, or why the request contradicts the record."""

from __future__ import annotations

from typing import Any, TypeVar

from crewlite import events
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import (
    AnswerMisfit,
    AnswerRefused,
    ChangeUnused,
    CrewliteError,
    JournalCorrupt,
    NonDeterminism,
    TaskDrifted,
)
from crewlite.runtime.steps.failures import raised
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.mode import StepQuestion
from crewlite.runtime.steps.questions import Drifted
from crewlite.runtime.steps.replay import Refuse, Reuse
from crewlite.runtime.steps.run import Origin
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.texts import tracebacks
from crewlite.texts.resuming import nth_attempt
from crewlite.texts.wording import an, cut

T = TypeVar("T")

_SHOWN = 200  # characters of plain JSON that an error shows


def recorded_value(frame: Frame, step: Step[T], decision: Reuse) -> T:
    """Return the recorded outcome of a child step, decoded and with its usage, and note the outcome."""
    outcome, children = decision.outcome, frame.children
    address, value = outcome.address, frame.run.record.value(outcome.address)
    if (view := children.view) and outcome.changes:
        view.commit(address, [(outcome.order, outcome.changes)], recorded=True)
    commit_late(frame, address)
    frame.children.receive_sayings(address, outcome.said)
    if step.intends:
        children.recorded_calls = iter(outcome.calls)
    children.record_child(address, outcome.digest if step.kind.heard else "", value, decision.drifted)
    return frame.with_usage(step, address, _decoded(frame, step, outcome, value))


def recorded_error(frame: Frame, step: Step[Any], failure: Attempt) -> BaseException:
    """Build the error with which a child step failed before, and note it as the step's failure."""
    address = failure.address
    frame.children.receive_sayings(address, failure.said)
    error = frame.children.failed[address] = raised(frame.origin_of(step, address).name, failure)
    tracebacks.name_step(error, address)
    return error


def commit_late(frame: Frame, address: str) -> None:
    """Take over from the record the changes of the state that event handlers made after a child step had ended."""
    if (view := frame.children.view) and (late := frame.run.record.late.get(address)):
        view.commit(address, late, late=True, recorded=True)


async def announce_failed(frame: Frame, step: Step[Any], failure: Attempt) -> None:
    """Announce that a recorded failure, which did not end the earlier kickoff, is raised again."""
    last = nth_attempt(failure.address, frame.run.record.begun_once.get(failure.address, 1))
    frame.run.journal.warn(
        f"{failure.address} failed before, and the run did not end by that, so it is not tried again "
        f"(rerun={[last]!r}, or --rerun {last}, tries it): "
        f"{failure.error_type}: {failure.message}",
        failure.address,
    )
    origin = frame.origin_of(step, failure.address)
    if frame.run.hears(events.StepReplayedEvent, origin.checkpoints):
        await _announce(frame, step, origin, failed=True)


async def announce_reused(frame: Frame, step: Step[Any], decision: Reuse, fingerprint: str) -> None:
    """Announce that a recorded outcome is returned, and what has changed since it was recorded."""
    recorded, before = decision.outcome, decision.outcome.provenance
    differs = recorded.fingerprint != fingerprint and not frame.inherited.mode.strict_replay and recorded.address
    if differs:
        how = how_drifted(frame, step, recorded)
        frame.run.journal.warn(
            f"{recorded.address} is finished and kept, though it is asked something else now "
            f"(on_drift='keep'): it {how}",
            recorded.address,
        )
    origin = frame.origin_of(step, recorded.address)
    if frame.run.hears(events.StepReplayedEvent, origin.checkpoints):
        changed = [key for key, now in (step.provenance or {}).items() if before.get(key, now) != now]
        drifted = decision.drifted if recorded.address else frame.run.drifted
        if differs or drifted:
            changed.insert(0, "question")
        addresses = tuple(filter(None, drifted))
        await _announce(frame, step, origin, changed=tuple(changed), drifted=addresses)


def how_drifted(frame: Frame, step: Step[Any], recorded: Outcome) -> str:
    """Return as text how the step's question differs from the recorded one."""
    asked = {name: frame.mask(text) for name, text in (step.texts or {}).items()}
    return str(Drifted(recorded.address, recorded.question, asked))


def refusal(frame: Frame, step: Step[Any], question: StepQuestion, refused: Refuse) -> CrewliteError:
    """Build the error for a step that must not begin."""
    record, run_id = frame.run.record, frame.run.run_id

    def shown(data: Any) -> str:
        return cut(frame.mask(codec.dumps(data).decode()), _SHOWN)

    match refused.why:
        case "drifted":
            own = refused.addresses == (question.address,)
            how = how_drifted(frame, step, record.outcomes[question.address]) if own else ""
            return TaskDrifted(run_id, refused.addresses[0], how)
        case "edit lost":
            return ChangeUnused(refused.addresses, requested=True)
        case "other question":
            came_to, found = shown(record.value(question.address)), shown(question.asked)
            siblings = sorted(record.outcomes.keys() & frame.run.earlier.ended_inside.get(frame.children.prefix, ()))
            if alike := next((at for at in siblings if record.outcomes[at].fingerprint == question.digest), ""):
                found += f", which {alike} was asked"  # the step that the code may have meant
            expected = f"the question that it has answered with {came_to}"
            return NonDeterminism(run_id, question.address, expected, found)
    expected, found = ", ".join(refused.addresses[:3]), f"{question.address}, which is new"
    return NonDeterminism(run_id, frame.address, expected, found)


def _decoded(frame: Frame, step: Step[T], outcome: Outcome, value: Any) -> T:
    """Decode a recorded outcome. Raises JournalCorrupt for data that no step of this kind can have recorded."""
    address = outcome.address
    try:
        return step.decode(value)
    except AnswerRefused as refused:
        edited, problem = outcome.edited, frame.mask(refused.problem)
        raise AnswerRefused(address, problem, edit=edited, second=not edited, by_run=True) from None
    except AnswerMisfit as unfit:
        where = {"run_id": frame.run.run_id, "branch": frame.run.branch}
        raise unfit.at(address, edited=outcome.edited, **where) from None
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, CrewliteError):
            raise
        why = f"{type(error).__name__}: {error}"
        problem = f"the outcome of {address!r} is not that of {an(step.kind.title)} ({why})"
        branch = f"run {frame.run.run_id}, branch {frame.run.branch}"
        raise JournalCorrupt(branch, problem, None, frame.run.journal.location) from error


async def _announce(frame: Frame, step: Step[Any], origin: Origin, **how: Any) -> None:
    about = {"kind": step.kind.name, "name": origin.name, "step_type": step.label, **how}
    await frame.run.publish(step.events.source, (events.StepReplayedEvent, about), origin)
