"""The work of one attempt at a step, up to the end of the last step inside it, and what is recorded of its success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from crewlite import codec, durable
from crewlite.background import confine
from crewlite.codec import Json
from crewlite.durable import Step
from crewlite.runtime.steps.frame import Frame
from crewlite.runtime.steps.replay import DIFFERS, MAY_DIFFER
from crewlite.state.format.commit import StepRecord
from crewlite.state.format.operations import Operation
from crewlite.state.format.references import by_reference

T = TypeVar("T")


async def work_in_full(step: Step[T], frame: Frame) -> T:
    """Do the work of a step inside its frame, and wait for the steps that it began and did not await."""
    token = durable.enter(frame)
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
    finally:
        durable.reattach(token)
    frame.go_on()
    frame.complete()
    if frame.run.journal.states.shared.used and (view := frame.children.view):
        view.deliver_rest()
    return value


class Ended(NamedTuple):
    """The facts about an outcome that its commit needs. The defaults are those of an outcome that took no work."""

    changes: Sequence[Operation] = ()
    """The attempt's changes of the state."""
    conflicts: Sequence[str] = ()
    """The names in the state that concurrent steps changed as well."""
    frame: Frame | None = None
    attempt: int = 1
    milliseconds: float = 0.0
    reused: str | None = None
    """The step of another run from whose cached result the outcome comes: its usage is not counted here."""

    def outcome(self, step: Step[Any], address: str, fingerprint: str, data: Json) -> StepRecord:
        """Build the record of the outcome with this value, as far as it follows from these facts."""
        frame = self.frame
        record: StepRecord = {
            "address": address,
            "kind": step.kind.name,
            "fingerprint": fingerprint,
            "value": by_reference(data, frame.children.texts) if frame else data,
            "digest": codec.digest(data),
            "ms": self.milliseconds,
        }
        if self.attempt > 1:
            record["attempt"] = self.attempt
        if self.reused:
            record["reused"] = self.reused
        if frame and frame.children.drifted:
            record["drifted"] = [*frame.children.drifted]
        if frame and (unused := frame.unused()):
            record["unused"] = unused
        means = dict(step.provenance or {})
        if step.drift == MAY_DIFFER:
            means[MAY_DIFFER] = "yes"
        if frame and frame.inherited.mode.differs:
            means[DIFFERS] = "yes"
        if means:
            record["means"] = means
        if step.label:
            record["label"] = step.label
        return record
