"""Advice at the end of a run: arguments without effect, and how to run a recorded step again."""

from __future__ import annotations

from collections.abc import Sequence

from crewlite import kinds
from crewlite.errors import CrewliteError, Redacted, StepRaised
from crewlite.runtime.human import warn_unasked
from crewlite.runtime.run import Run
from crewlite.state.format.addresses import is_right_below

_NAMED = 3  # steps that a note names


def warn_unused(run: Run) -> None:
    """Warn about answers and reruns for addresses that the run never requested: an address may be misspelt."""
    warn_unasked(run)
    record = run.record
    begun = {event.address for event in record.events if event.type.endswith("_started")} if run.rerun else ()
    if left := sorted(run.rerun - record.outcomes.keys() - set(begun)):
        steps = ", ".join(sorted(filter(None, begun))[:10]) or "none"
        run.journal.warn(f"rerun: the run has not requested {', '.join(left)}; the steps so far are {steps}")


def answered_before(kind: str, run: Run) -> tuple[str, ...]:
    """Return the addresses of the last steps whose outcomes this kickoff reuses. `kind`: that of the run."""
    outcomes = run.record.outcomes
    before = (
        [at for at in run.begun if at in outcomes and is_right_below(at, "")] if not kinds.of(kind).begins_anew else []
    )
    return tuple(sorted(before, key=lambda at: outcomes[at].seq)[-_NAMED:])


def note_answered(error: Exception, kind: str, run: Run, answered: Sequence[str]) -> None:
    """Add a note to an error of the user's code: how to run the reused steps again, as changing their code does not."""
    if not answered or (isinstance(error, CrewliteError) and not isinstance(error, StepRaised | Redacted)):
        return
    ref = run.run_id if run.branch == "main" else f"{run.run_id}/{run.branch}"
    again = f"{kind}.fork({ref!r}, rerun={[answered[-1]]!r}).kickoff()"
    if kinds.of(kind) is kinds.TRIAL:
        again = "begin another trial, with another run_id"
    note = (
        f"{', '.join(answered)} answered from the record of run {ref!r}: changing the code of a step does not change "
        f"its recorded outcome. To run a step again: {again}"
    )
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
