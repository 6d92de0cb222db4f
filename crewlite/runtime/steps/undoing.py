"""Undo what finished steps of a flow have done: call their compensators, newest first, each as a recorded step.

The failure that leads to this is recorded first, or happens again in the same way. So a run that is killed meanwhile
continues after the last recorded compensator, and calls none twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from crewlite import durable, kinds
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import CONTROL_FLOW, text_of
from crewlite.events.family import FamilyEvents
from crewlite.recovery import DEFAULT, Compensate, Escalate, Remedy
from crewlite.runtime.steps.callbacks import called
from crewlite.runtime.steps.frame import Frame
from crewlite.state.format.addresses import leaf, outers
from crewlite.state.format.outcome import Outcome
from crewlite.step_parts import Policies
from crewlite.texts.logs import logger

log = logger("crewlite.run")


class Undone(NamedTuple):
    """The result of undoing steps: the remedy to apply next, and the steps that were undone."""

    remedy: Remedy
    steps: list[str]
    """The addresses of the steps that were undone."""


async def undone(frame: Frame, compensate: Compensate) -> Undone:
    """Call the compensators of the finished steps that the code of `frame` requested, in the scope of the caller."""
    outcomes, done = frame.run.record.outcomes, list[str]()
    _warn_of_inner(frame, outcomes)
    finished = [outcomes[at] for at in frame.children.compensators if at in outcomes]
    for outcome in sorted(finished, key=lambda one: one.order, reverse=True):
        try:
            await durable.scope().step(_step(frame, outcome, frame.children.compensators[outcome.address]))
        except CONTROL_FLOW:
            raise
        except Exception as error:  # the border: a compensator is code of the user
            problem = f"{type(error).__qualname__}: {frame.mask(text_of(error))}"
            said = f"The compensator of {outcome.address} failed ({problem}), so that step and those before stay done"
            return Undone(Escalate(said, type=compensate.type), done)
        done.append(outcome.address)
    return Undone(compensate.then, done)


def _warn_of_inner(frame: Frame, outcomes: Collection[str]) -> None:
    """Warn of finished steps that are not undone, because code outside that of `frame` requested them.

    A step's compensator is known where the code that requests the step has run, which it has not inside a recorded
    step.
    """
    own, run = frame.children.compensators, frame.run
    inner = [at for at in run.compensable if at in outcomes and at.startswith(frame.children.prefix) and at not in own]
    finished = {at for at in own if at in outcomes}
    left = sorted(at for at in inner if finished.isdisjoint(outers(at)))
    if left:
        log.warning(
            "%s/%s: compensate undoes the finished steps that the code of %s has called, so these stay done: %s. Call "
            "them there, or give the steps and methods around them, which have to finish, a compensate=",
            run.run_id,
            run.branch,
            run.called(frame.address),
            ", ".join(left),
            extra={"run_id": run.run_id, "branch": run.branch, "address": frame.address},
        )


def _step(frame: Frame, outcome: Outcome, compensator: Callable[[Any], Any]) -> Step[None]:
    async def work() -> None:
        await called(compensator, codec.decode(frame.run.record.value(outcome.address)))

    name = leaf(outcome.address).partition(":")[2].replace("#", "-")
    asked = [outcome.address, outcome.at, outcome.digest]
    name = f"{name}-{codec.digest(asked)[:8]}"  # a step that is done again is undone again
    return Step(
        kind=kinds.COMPENSATION,
        name=name,
        work=work,
        question=asked,
        events=FamilyEvents.plain(compensator, kinds.COMPENSATION, name),
        effect="idempotent",
        policies=Policies(DEFAULT),
    )
