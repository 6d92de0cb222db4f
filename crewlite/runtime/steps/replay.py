"""Decide what happens to a step that code requests: answer it from the record, run it, or refuse it.

A step is known by its address and by its question, whose digest is recorded with its outcome. The decision is made from
data alone, for a run and for a preview of it. Under strict replay the steps inside a step follow from its question, so
its code must request the recorded steps again. The exceptions: steps that came after a failure which is now retried,
forks with edits or other inputs, and steps that may differ, with what came after them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.runtime.steps.attempts import is_call_made_once, is_retried
from crewlite.runtime.steps.mode import DIFFERS, MAY_DIFFER, RESTS_ON, Basis, Mode, StepQuestion
from crewlite.runtime.steps.other_forms import other_forms
from crewlite.state.format.addresses import is_right_below, prefix_beside
from crewlite.state.format.commit import AskedQuestion, GivenAnswer
from crewlite.state.format.earlier import has_other_inputs, is_before_change, is_own_edit
from crewlite.state.format.numbering import is_counted
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record


@dataclass(frozen=True, slots=True)
class Reuse:
    """Return the recorded outcome."""

    outcome: Outcome
    drifted: tuple[str, ...] = ()
    """Addresses of steps whose recorded answers are kept although their questions have changed."""

    @property
    def differs(self) -> bool:
        """Whether the outcome is from code that asked other questions than were recorded: see `Mode.differs`."""
        return DIFFERS in self.outcome.provenance


@dataclass(frozen=True, slots=True)
class Reraise:
    """Raise the recorded failure again. The code that requested the step handled this failure before."""

    failure: Attempt

    @property
    def differs(self) -> bool:
        """As `Reuse.differs`."""
        return DIFFERS in self.failure.provenance


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the step."""

    diverges: bool = False
    """Whether no recorded outcome applies after this step."""
    differs: bool = False
    """Whether the code has changed, added or left out a step that may differ: see `Mode.differs`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Raise an error instead of running the step: the request contradicts the record."""

    why: Literal["drifted", "other question", "passed over", "edit lost"]
    """drifted: the question of the step has changed, with on_drift="error". other question: the same under
    strict replay. passed over: recorded steps should have been requested before this new step. edit lost: this fork
    has edited the step, and an agent asks it something else than was answered there."""
    addresses: tuple[str, ...]
    """The recorded steps concerned."""


_Ends = Mapping[str, Outcome | Attempt]
"""A part of `Record.ends`."""
Decision = Reuse | Reraise | Execute | Refuse
EXECUTE = Execute()
"""Run the step, and let later outcomes in the record apply. One case is a step of which nothing is recorded."""
NEW_COURSE = Execute(diverges=True, differs=True)
"""Run the step: it is the first that differs, in code that may do something else than before."""


def mode_after(mode: Mode, decision: Reuse | Reraise | Execute) -> Mode:
    """Return the mode for the requests that follow a step, after this decision about the step."""
    if decision.differs and not mode.differs:
        mode = replace(mode, differs=True)
    if isinstance(decision, Execute) and decision.diverges:
        mode = replace(mode, diverged=True)
    return mode


def decide(record: Record, question: StepQuestion, mode: Mode, unrequested: Collection[str] = ()) -> Decision:
    """Decide whether the requested step returns its recorded outcome, raises its recorded failure, runs or is refused.

    `unrequested`: addresses of the recorded steps with the same parent that code has not requested yet.
    """
    ended = record.end(question.address)
    decision = _decided(record, ended, question, mode, unrequested)
    lost = isinstance(decision, Execute) and is_edit_to_keep(record, ended, mode)
    return Refuse("edit lost", (question.address,)) if lost else decision


def _decided(
    record: Record, ended: Outcome | Attempt | None, question: StepQuestion, mode: Mode, unrequested: Collection[str]
) -> Decision:
    if ended is not None and not _stands(record, ended, question):
        return EXECUTE
    if mode.diverged and not _applies_on_any_course(record, ended, question, mode):
        return EXECUTE
    if ended is not None and question.is_early and _comes_earlier(record, ended, question, mode, unrequested):
        return NEW_COURSE
    same = ended is not None and ended.fingerprint == question.digest
    if isinstance(ended, Outcome):
        verdict = _answered(record, ended, question, mode, unrequested)
        if verdict != EXECUTE:
            return verdict
    elif ended and same and mode.strict_replay and not is_retried(ended.address, record, mode.rerun):
        return Reraise(ended)
    if mode.strict_replay and not mode.diverged:
        return _unanswered(record, ended, question, mode, unrequested)
    return EXECUTE


def is_edit_to_keep(record: Record, ended: Outcome | Attempt | None, mode: Mode) -> bool:
    """Return whether a step ended with an edit that holds whatever else changes: after a rollback it does not."""
    return is_own_edit(record, ended) and not mode.rolled_back


def _stands(record: Record, ended: Outcome | Attempt, question: StepQuestion) -> bool:
    """Return whether the recorded end of a step still rests on what it rested on: other steps and their questions."""
    edited = isinstance(ended, Outcome) and ended.edited
    if not edited and question.after is not None and ended.seq < question.after:
        return False
    return is_own_edit(record, ended) or question.basis.holds(ended.seq, ended.provenance.get(RESTS_ON))


def _applies_on_any_course(record: Record, ended: Outcome | Attempt | None, question: StepQuestion, mode: Mode) -> bool:
    """Return whether the recorded end of a step applies although an earlier step differs from the record.

    An edit of this fork does. So does a call with effect="once" that the code would repeat, except in a fork whose
    changes lead to the call: it makes that call again, see `allow_effects` of `fork`.
    """
    if is_edit_to_keep(record, ended, mode):
        return True
    same = isinstance(ended, Outcome) and ended.fingerprint == question.digest
    return question.once and (mode.goes_otherwise or (same and not is_before_change(record, question.address)))


def recorded_question(record: Record, address: str, digest: str, basis: Basis) -> AskedQuestion | None:
    """Return the question to a person recorded at an address, if it has this digest and this basis; else None."""
    asked = record.asked.get(address)
    if asked is None or asked.get("digest") != digest:
        return None
    return asked if basis.holds(record.asked_in[address], asked.get("rests_on")) else None


def recorded_answer(record: Record, address: str, digest: str, basis: Basis) -> GivenAnswer | None:
    """Return the answer that a person has given to this question; None if nobody has.

    An answer that was given before the question was asked counts on any basis, a later one on its question's basis.
    """
    given = record.answers.get(address)
    if given and given.get("ahead"):
        return given
    asked = recorded_question(record, address, digest, basis)
    return record.answer_to(asked) if asked else None


def _answered(
    record: Record, recorded: Outcome, question: StepQuestion, mode: Mode, unrequested: Collection[str]
) -> Reuse | Execute | Refuse:
    """Decide whether a step returns its recorded outcome, runs again or is refused."""
    if not recorded.address:  # the root step: the kickoff has decided about its outcome already
        return EXECUTE if mode.superseded else Reuse(recorded, recorded.drifted)
    same = recorded.fingerprint == question.digest
    if not same and (mode.strict_replay or (mode.differs and question.once)):
        return _answered_strictly(record, recorded, question, mode, unrequested)
    if recorded.drifted and mode.on_drift != "keep" and not question.once:
        return Refuse("drifted", recorded.drifted[:1]) if mode.on_drift == "error" else EXECUTE
    drift = question.drift if question.drift != "configured" else "rerun" if mode.reruns() else mode.on_drift
    if same or drift == "keep":
        keeps_own = same or recorded.edited
        return Reuse(recorded, recorded.drifted if keeps_own else (recorded.address,))
    if drift == "error":
        return Refuse("drifted", (recorded.address,))
    return Execute(diverges=drift in ("diverge", MAY_DIFFER), differs=drift == MAY_DIFFER)


def _answered_strictly(
    record: Record, recorded: Outcome, question: StepQuestion, mode: Mode, unrequested: Collection[str]
) -> Reuse | Execute | Refuse:
    """Decide as `_answered` does, and refuse a step whose question is not the recorded one, as strict replay does.

    It makes exceptions for a question recorded in another form, an edited branch, other inputs, `mode.reruns`, a step
    that may differ, and steps after such a step that was left out.
    """
    if any(codec.digest([question.kind, other]) == recorded.fingerprint for other in other_forms(question.asked)):
        return Reuse(recorded, recorded.drifted)
    address = recorded.address
    if is_before_change(record, address) or (record.edited and not question.once):  # it may ask other questions
        return Reuse(recorded, recorded.drifted) if recorded.edited else EXECUTE
    is_free = _free_from(record, (*unrequested, address)) <= recorded.seq
    may_differ = question.drift == MAY_DIFFER or (is_free and not question.once)
    if may_differ or mode.reruns(once=question.once):
        return NEW_COURSE
    return Refuse("other question", (address,))


def _unanswered(
    record: Record, ended: Outcome | Attempt | None, question: StepQuestion, mode: Mode, unrequested: Collection[str]
) -> Execute | Refuse:
    """Decide under strict replay whether a step that the record does not answer runs, or contradicts the record."""
    passed, may_differ = _passed_over(record, question, mode, unrequested), question.drift == MAY_DIFFER
    contradicts = bool(passed) or (isinstance(ended, Attempt) and ended.fingerprint != question.digest)
    if question.moved or (may_differ and contradicts):  # moved: another call was made where the order places this one
        return NEW_COURSE
    begun = not question.in_turn or question.address in record.events.starts
    if needed := _needed(record, mode, passed, () if begun else unrequested):
        return Refuse("passed over", needed)
    is_free = mode.differs or _free_from(record, unrequested) < math.inf
    is_new = may_differ and not is_counted(question.address)  # its address follows from its question
    return Execute(diverges=is_free and contradicts, differs=is_free or is_new)


def _passed_over(record: Record, question: StepQuestion, mode: Mode, unrequested: Collection[str]) -> _Ends:
    """Return the recorded steps that the code requested before this one, and now has not; {} if this one may be new."""
    address = question.address
    if not unrequested or question.comes_late or not is_counted(address):
        return {}
    if record.earlier_inputs or address in record.void:  # a changed fork may request other steps; void: it is not new
        return {}
    if question.drift != MAY_DIFFER:  # while the code waits for such a step, nothing else ends beside it
        beside = record.events.beside(address)
        unrequested = [at for at in unrequested if not ((ended := record.end(at)) and beside(ended.seq))]
    left = _must_be_requested(record, mode, prefix_beside(address), unrequested)
    return {at: one for at, one in left.items() if is_counted(at)}


def missed(record: Record, mode: Mode, prefix: str, unrequested: Collection[str]) -> tuple[str, ...]:
    """Return the steps of `unrequested` that the code should have requested: nothing they depend on has changed."""
    return _needed(record, mode, _must_be_requested(record, mode, prefix, unrequested), unrequested)


def _needed(record: Record, mode: Mode, left_out: _Ends, open_ones: Collection[str]) -> tuple[str, ...]:
    """Return the recorded steps without which unchanged code does not come so far.

    Of the ended steps `left_out`, these are those before the first one that the code may leave out; of `open_ones`, if
    it may leave out none, those that are, or hold, a call in doubt.
    """
    if not mode.binds or mode.differs:
        return ()
    free = _free_from(record, left_out)
    needed = [at for at, ended in left_out.items() if ended.seq < free]
    cut = () if _free_from(record, open_ones) < math.inf else mode.left.intersection(open_ones)
    return (*needed, *sorted(at for at in cut if not record.end(at)))


def _comes_earlier(
    record: Record, ended: Outcome | Attempt, question: StepQuestion, mode: Mode, unrequested: Collection[str]
) -> bool:
    """Return whether a step is requested before steps that had ended before it, so that it is another step than then.

    Calls with effect="once" are not counted: they keep their places when the steps around them become void.
    """
    passed = _passed_over(record, question, mode, unrequested)
    return any(one.order < ended.order and not is_call_made_once(record, one) for one in passed.values())


def _must_be_requested(record: Record, mode: Mode, prefix: str, unrequested: Collection[str]) -> _Ends:
    """Return the ends of the `unrequested` steps that unchanged code must request; {} if the code may do otherwise."""
    if not mode.binds or record.edited or not unrequested:
        return {}
    tried_again = _tried_again(record, prefix)

    def may_be(at: str, seq: int) -> bool:
        retried = any(first <= seq < end for first, end in tried_again)
        return retried or kinds.at(at).is_about_failure or has_other_inputs(record, at)

    ended = {at: record.ends[at] for at in sorted(unrequested) if at in record.ends}
    return {at: one for at, one in ended.items() if not may_be(at, one.seq)}


def _free_from(record: Record, addresses: Iterable[str]) -> float:
    """Return the seq of the first of these steps that may differ, or that code recorded which differed; inf for none.

    Steps committed from there on need not be requested again: the code may have left out the first one.
    """
    known = (ended for at in addresses if (ended := record.end(at)))
    free = (one.seq for one in known if MAY_DIFFER in one.provenance or DIFFERS in one.provenance)
    return min(free, default=math.inf)


def _tried_again(record: Record, prefix: str) -> list[tuple[int, float]]:
    """Return (first, end) of the ranges of commits after failures below `prefix` whose steps were then tried again.

    Steps committed in such a range need not be requested again. A range ends where the step has ended otherwise.
    """
    ranges = list[tuple[int, float]]()
    for at, tries in record.attempts.items():
        if is_right_below(at, prefix):
            end = record.ends[at].seq if at in record.ends else math.inf
            ranges += [
                (attempt.seq, end) for attempt in tries if attempt.final and not attempt.void and attempt.seq < end
            ]
    return ranges
