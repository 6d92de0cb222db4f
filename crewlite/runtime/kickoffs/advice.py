"""Advice at the end of a run: arguments without effect, and how to run a recorded step again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from crewlite import kinds
from crewlite.errors import AnswerTimeout, CrewliteError, Redacted, StepRaised, add_note, ends_run, notes_of
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.steps.run import Run
from crewlite.state.format.addresses import is_question, outer
from crewlite.state.format.record import Record
from crewlite.state.journal.effects import may_make_again
from crewlite.state.providers.base import declares
from crewlite.texts.resuming import branch_ref
from crewlite.texts.tracebacks import INTERRUPTED, RECORDED
from crewlite.texts.wording import number_of

_NAMED = 3  # steps that a note names


def warn_unused(run: Run) -> None:
    """Warn about answers and reruns for addresses that the run never requested: an address may be misspelt."""
    record = run.record
    begun = record.events.starts.keys()
    if left := sorted(run.rerun.keys() - record.outcomes.keys() - begun - run.earlier.doubts):
        steps = ", ".join(sorted(filter(None, begun))[:10]) or "none"
        run.journal.warn(f"rerun: the run has not requested {', '.join(left)}; the steps so far are {steps}")
    given = [at for at in {**record.answers, **run.answers} if is_question(at) and not record.settled(at)]
    if not given:
        return
    known = record.asked.keys() | {step.address for step in record.outcomes.values() if kinds.of(step.kind).asks_person}
    if left := [at for at in given if at not in known]:
        run.journal.warn(
            f"an answer was given ahead to {', '.join(left)}, but the run has not asked this; the questions so far "
            f"are {', '.join(sorted(known)) or 'none'}"
        )


def _answered_before(kind: str, run: Run) -> tuple[str, ...]:
    """Return the addresses of the last few steps that a flow's own code requested and the record answered.

    `kind`: the kind of the run. Timers are left out, as no code makes their outcomes.
    """
    outcomes = run.record.outcomes
    if kinds.of(kind).worker == "model":
        return ()
    ended = [at for at in run.earlier.begun if at in outcomes and not kinds.of(outcomes[at].kind).needs_no_work]
    before = [at for at in ended if _is_in_flow(outer(at), run.record)]
    return tuple(sorted(before, key=lambda at: outcomes[at].seq)[-_NAMED:])


def _unanswered(record: Record) -> tuple[str, ...]:
    """Return the address of the last question of a flow's own code that nobody answered in time.

    A question inside a step is none of these: another attempt at the step asks it anew.
    """
    asked = [one for one in record.outcomes.values() if kinds.of(one.kind).asks_person]
    late = [one for one in asked if "late" in record.value(one.address) and _is_in_flow(outer(one.address), record)]
    return tuple(one.address for one in sorted(late, key=attrgetter("seq"))[-1:])


def _is_in_flow(around: str, record: Record) -> bool:
    """Return whether the step at `around` is the root, or an unfinished flow or method."""
    return not around or (around not in record.outcomes and kinds.at(around).is_flow)


def to_run_again(kind: str, ref: str, record: Record, steps: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return how to rerun finished steps on a fork: the call in Python, and what follows `checkpoint fork REF`."""
    allow = may_make_again(record, steps)
    call = f"{kind}.fork({ref!r}, rerun={list(steps)!r}{', allow_effects=True' if allow else ''}).kickoff()"
    words = tuple(word for at in steps for word in ("--rerun", at))
    return call, (*words, "--allow-effects") if allow else words


def note_way_on(error: BaseException, kind: str, request: Request) -> None:
    """Add a note to an error that ends the outermost kickoff of a run: what is recorded, and how to resume.

    `kind`: the kind of the run. Adds none if no store outlives the process, or if the error says this itself. An
    `error` that is no Exception has interrupted the run: the cancellation by `asyncio.run` after Ctrl-C, or Ctrl-C
    itself.
    """
    if not isinstance(error, Exception):
        add_note(error, f"{INTERRUPTED}{request.how_to_go_on(kind)}", in_place_of=INTERRUPTED)
        return
    progress = request.progress
    if ends_run(error) and not isinstance(error, Redacted):
        return
    kept = progress.target and not declares(progress.target.provider, "in_memory")
    if not kept or progress.run_id is None or progress.how_to_go_on:
        return
    done = progress.finished_steps
    steps = f"{number_of(done, 'finished step')} of " if done else ""
    again = {None: "", 0: " The next kickoff begins anew.", 1: " It is not run again."}
    then = again.get(done, " They are not run again.")
    aim = "To try again" if done == 0 else "To go on"
    caught = " once the flow catches this" if progress.asks_again else ""
    way = request.how_to_go_on(kind, aim + caught)
    note = f"{RECORDED}{steps}run {progress.run_id!r} in {progress.location}.{then}\n{way}"
    add_note(error, note, in_place_of=RECORDED)


def note_answered(error: Exception, kind: str, run: Run, progress: Progress) -> None:
    """Add a note to an error of the user's code: how to rerun a step that keeps its outcome though its code changed."""
    late = isinstance(error, AnswerTimeout)
    answered = _unanswered(run.record) if late else _answered_before(kind, run)
    if not answered or (isinstance(error, CrewliteError) and not (late or isinstance(error, StepRaised | Redacted))):
        return
    ref = branch_ref(run.run_id, run.branch)
    progress.asks_again, (again, progress.again) = late, to_run_again(kind, ref, run.record, answered[-1:])
    if kinds.of(kind) is kinds.TRIAL:
        again = "begin another trial, with another run_id"
    note = (
        f"{', '.join(answered)} answered from the record of run {ref!r}: changing the code of a step does not change "
        f"its recorded outcome. To run a step again: {again}"
    )
    if late:
        answering = f"To answer it, write edits={{{answered[-1]!r}: ...}} in place of rerun"
        note = f"To ask {answered[-1]} again: {again}. {answering}"
    if note not in notes_of(error):
        add_note(error, note)
