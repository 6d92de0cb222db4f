"""What becomes of a step that is asked for: decided from data alone, for a run and for a preview of it.

Where the steps inside a step follow from its own question (strict replay), what is asked for has to be what was
recorded. What hangs on a failure that is tried again is let off, and so is a fork that was given something else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from crewlite import codec
from crewlite.codec import Json
from crewlite.durable import Drift
from crewlite.runtime.numbering import is_counted
from crewlite.state.format.addresses import is_right_below
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record


@dataclass(frozen=True, slots=True)
class Question:
    """A step as it is asked for now."""

    address: str
    kind: str
    asked: Json
    digest: str
    drift: Drift = "diverge"
    once: bool = False
    """A repeated call would do harm."""
    comes_late: bool = False
    """It may have had to wait in an earlier run, so it may be new although later steps are recorded."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How the steps inside one step are answered. Children inherit it."""

    on_drift: Literal["keep", "rerun", "error"] = "keep"
    strict_replay: bool = False
    """What is asked for here is what was recorded here, or an error."""
    diverged: bool = False
    """A step before this one differs from the record, so no later outcome applies."""
    superseded: bool = False
    """The recorded result does not answer what the run is asked now."""
    rerun: frozenset[str] = frozenset()
    """Failed steps to try again, and calls in doubt to make again."""
    begun: frozenset[str] = frozenset()
    """Steps that an earlier process started."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """The recorded outcome answers."""

    outcome: Outcome
    drifted: tuple[str, ...] = ()
    """Addresses whose answers are kept although they are asked something else now."""


@dataclass(frozen=True, slots=True)
class Reraise:
    """The step failed before, and the failure was handled: it is raised again."""

    failure: Attempt


@dataclass(frozen=True, slots=True)
class Run:
    """The step is done."""

    diverges: bool = False
    """The rest of the record does not apply behind it."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The step is not begun: the record and what is asked contradict each other."""

    why: Literal["drifted", "other question", "passed over"]
    """drifted: with on_drift="error". other question: the address was asked something else. passed over: recorded
    steps ought to have been asked for first."""
    addresses: tuple[str, ...]
    """The steps concerned; of an "other question" the recorded steps that were asked this one."""


Decision = Reuse | Reraise | Run | Refuse
_RUN = Run()


def decide(
    record: Record, question: Question, mode: Mode, unasked: Collection[str] = (), alike: Collection[str] = ()
) -> Decision:
    """What becomes of the question.

    `unasked`: recorded steps beside it that have not been asked for. `alike`: the steps beside it that are recorded.
    """
    recorded = record.outcomes.get(question.address)
    if recorded is not None and not mode.diverged:
        verdict = _answered(record, recorded, question, mode, alike)
        if not isinstance(verdict, Run):
            return verdict
        if verdict.diverges:
            return verdict
    if mode.strict_replay and not mode.diverged:
        failure = record.failures.get(question.address)
        if failure and question.address not in mode.rerun and failure.fingerprint == question.digest:
            return Reraise(failure)
        if passed := _passed_over(record, question, mode, unasked):
            return Refuse("passed over", passed)
    return _RUN


def _answered(
    record: Record, recorded: Outcome, question: Question, mode: Mode, alike: Collection[str]
) -> Reuse | Run | Refuse:
    """Whether the outcome still answers."""
    if not recorded.address:  # the run itself: this was decided before it was taken up
        return _RUN if mode.superseded else Reuse(recorded, recorded.drifted)
    same = recorded.fingerprint == question.digest
    if mode.strict_replay and not same:
        return _answered_strictly(record, recorded, question, mode, alike)
    if recorded.drifted and mode.on_drift != "keep" and not question.once:
        return Refuse("drifted", recorded.drifted[:1]) if mode.on_drift == "error" else _RUN
    drift = mode.on_drift if question.drift == "configured" else question.drift
    if same or drift == "keep":
        keeps_own = same or recorded.edited
        return Reuse(recorded, recorded.drifted if keeps_own else (recorded.address,))
    if drift == "error":
        return Refuse("drifted", (recorded.address,))
    return Run(diverges=drift == "diverge")


def _answered_strictly(
    record: Record, recorded: Outcome, question: Question, mode: Mode, alike: Collection[str]
) -> Reuse | Run | Refuse:
    """Whether the outcome answers another question than it was recorded for, where that should be the same."""
    if any(codec.digest([question.kind, other]) == recorded.fingerprint for other in codec.renamed(question.asked)):
        return Reuse(recorded, recorded.drifted)
    address = recorded.address
    if record.edited or record.inputs_of(address) != record.run["inputs"]:  # of a fork, which is another
        return Reuse(recorded, recorded.drifted) if address in record.edited else _RUN
    if mode.on_drift == "rerun":
        return Run(diverges=True)
    others = (at for at in sorted(alike) if at in record.outcomes)
    return Refuse("other question", tuple(at for at in others if record.outcomes[at].fingerprint == question.digest))


def _passed_over(record: Record, question: Question, mode: Mode, unasked: Collection[str]) -> tuple[str, ...]:
    """Recorded steps that ought to have been asked for before this new one."""
    address = question.address
    if not unasked or address in mode.begun or question.comes_late or not is_counted(address):
        return ()
    if record.edited or record.earlier_inputs:  # a fork that asks for something else
        return ()
    prefix = address[: address.rfind("/") + 1]
    return tuple(at for at in missed(record, mode, prefix, unasked) if is_counted(at))


def missed(record: Record, mode: Mode, prefix: str, unasked: Collection[str]) -> list[str]:
    """Recorded steps that follow from what has not changed, and have not been asked for."""
    if not unasked or not mode.strict_replay or mode.diverged or mode.on_drift == "rerun" or record.edited:
        return []
    left = [at for at in unasked if record.inputs_of(at) == record.run["inputs"]]
    tried_again = _tried_again(record, prefix) if left else 0
    return sorted(at for at in left if not tried_again or record.outcomes[at].seq < tried_again)


def _tried_again(record: Record, prefix: str) -> int:
    """The first commit that what comes behind it no longer follows from: a failure in here that is tried again."""
    failed = (
        attempt.seq
        for at, tries in record.attempts.items()
        if is_right_below(at, prefix) and at not in record.failures
        for attempt in tries
        if attempt.final
    )
    return min(failed, default=0)
