"""Whether what is asked for is what was recorded: where that follows from a step's own question, it has to be.

What hangs on a failure that is tried again is let off, and so is a fork that was given something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crewlite import codec
from crewlite.durable import Step
from crewlite.errors import NonDeterminism
from crewlite.runtime.numbering import is_counted
from crewlite.state.addresses import is_right_below
from crewlite.state.outcome import Outcome

if TYPE_CHECKING:
    from crewlite.runtime.frame import Frame

_SHOWN = 200  # characters of plain JSON that an error shows


def diverged(frame: Frame, step: Step[Any], recorded: Outcome, fingerprint: str) -> bool:
    """A step that is asked for otherwise than it was recorded: whether its outcome still answers.

    If not, it is done again, as it is to be expected here. Raises NonDeterminism where it is not.
    """
    run, address = frame.run, recorded.address
    record = run.record
    if any(codec.digest([step.kind.name, other]) == recorded.fingerprint for other in codec.renamed(step.question)):
        return True
    if record.edited or record.inputs_of(address) != record.run["inputs"]:  # of a fork, which is another
        return address in record.edited
    if run.on_drift != "rerun":
        inside = run.inside.get(frame.numbering.prefix, frozenset())
        alike = [at for at in sorted(inside) if record.outcomes[at].fingerprint == fingerprint]
        expected = f"what {address} was asked, which came to {_shown(frame, record.value(address))}"
        found = f"{_shown(frame, step.question)}{f', which {alike[0]} was asked' if alike else ''}"
        raise NonDeterminism(run.run_id, address, expected, found)
    frame.live = True
    return False


def kept_answers(frame: Frame, recorded: Outcome, fingerprint: str) -> Sequence[str]:
    """The addresses whose answers a reused outcome keeps although they are asked something else now; mostly none."""
    if recorded.fingerprint == fingerprint or frame.exact or recorded.edited or not recorded.address:
        return recorded.drifted
    return [recorded.address]


def check_none_missed(frame: Frame) -> None:
    """At the end of a step: raises NonDeterminism if a recorded one in it has not been asked for."""
    if missed := _missed(frame):
        asked = ", ".join(list(frame.asked)[-3:]) or "none"
        raise NonDeterminism(frame.run.run_id, frame.address, ", ".join(missed[:3]), f"{asked}, and no more")


def check_none_passed(frame: Frame, step: Step[Any], address: str) -> None:
    """Raises NonDeterminism before a new step is done where a recorded one ought to have been asked for first.

    One that an earlier life may have asked for, and not begun, as it had to wait for something, is no new one.
    """
    if not frame.unasked or address in frame.run.begun or not is_counted(address):
        return
    if step.limits or frame.around or step.cache or step.effect == "once" or step.kind.waits:
        return
    if frame.run.record.edited or frame.run.record.earlier_inputs:  # a fork that asks for something else
        return
    if passed := [at for at in _missed(frame) if is_counted(at)]:
        raise NonDeterminism(frame.run.run_id, frame.address, ", ".join(passed[:3]), f"{address}, which is new")


def _missed(frame: Frame) -> list[str]:
    """Recorded steps that follow from what has not changed, and have not been asked for."""
    record = frame.run.record
    if not frame.exact or frame.live or frame.run.on_drift == "rerun" or not frame.unasked or record.edited:
        return []
    left = [at for at in frame.unasked if record.inputs_of(at) == record.run["inputs"]]
    tried_again = _tried_again(frame) if left else 0
    return sorted(at for at in left if not tried_again or record.outcomes[at].seq < tried_again)


def _tried_again(frame: Frame) -> int:
    """The first commit that what comes behind it no longer follows from: a failure in here that is tried again."""
    prefix, record = frame.numbering.prefix, frame.run.record
    failed = (
        attempt.seq
        for at, tries in record.attempts.items()
        if is_right_below(at, prefix) and at not in record.failures
        for attempt in tries
        if attempt.final
    )
    return min(failed, default=0)


def _shown(frame: Frame, data: Any) -> str:
    text = frame.mask(codec.dumps(data).decode())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
