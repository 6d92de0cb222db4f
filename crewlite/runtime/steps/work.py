"""The work of one attempt at a step, up to the end of the last step inside it."""

from __future__ import annotations

from typing import TypeVar

from crewlite.background import confine
from crewlite.durable import Step
from crewlite.runtime.steps.frame import Frame

T = TypeVar("T")


async def work_in_full(step: Step[T], frame: Frame) -> T:
    """Do the work of a step, and wait for the steps that it began and did not await."""
    try:
        value = await step.work()
        if frame.children.spawned:
            await frame.children.spawned.end()
    except Exception:
        if frame.children.spawned:
            await frame.children.spawned.ended()
        frame.go_on()
        raise
    except BaseException as error:  # noqa: BLE001 - what would end more than this step
        confine(error)
    frame.go_on()
    frame.complete()
    if frame.run.journal.states.shared.used and (view := frame.children.view):
        view.deliver_rest()
    return value
