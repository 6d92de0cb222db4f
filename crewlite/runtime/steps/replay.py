"""Decide what happens to a step that code requests: answer it from the record, run it, or refuse it.

A step is known by its address and by its question, whose digest is recorded with its outcome. `decide` goes through
these rules in order, and the first one that fits decides. It looks at data alone, for a run and for a preview of it.

1. What the recorded end of the step rested on has changed: it runs. 2. The code has diverged from the record before: it
runs. Edits, and calls with effect="once", still answer. 3. It may differ, and is requested before steps that had ended
before it: it runs, and the code is on a new course. 4. It ended with the same question: its outcome answers. A failure
that the code handled is raised again. 5. It ended with another question, and is free to: what `Step.drift` says. 6. It
ended with another question, and must have the recorded one (under strict replay, or as a call with effect="once" in
code that differs): an edit answers; otherwise it runs if something explains the change, and else it is refused. 7. It
has no end that answers, under strict replay: it runs unless recorded steps were passed over (required.py). 8. Otherwise
it runs.

Last of all, a step never runs over an edit of this fork: that is refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from crewlite.encoding import codec
from crewlite.runtime.steps.attempts import is_retried
from crewlite.runtime.steps.mode import DIFFERS, MAY_DIFFER, RESTS_ON, Mode, StepQuestion
from crewlite.runtime.steps.other_forms import other_forms
from crewlite.runtime.steps.required import comes_earlier, free_from, needed, passed_over
from crewlite.state.format.earlier import is_before_change, is_own_edit
from crewlite.state.format.numbering import is_counted
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record


@dataclass(frozen=True, slots=True)
class Reuse:
    """The decision to return the recorded outcome."""

    outcome: Outcome
    drifted: tuple[str, ...] = ()
    """Addresses of steps whose recorded answers are kept although their questions have changed."""

    @property
    def differs(self) -> bool:
        """Whether the code that recorded the outcome had `Mode.differs`."""
        return DIFFERS in self.outcome.provenance


@dataclass(frozen=True, slots=True)
class Reraise:
    """The decision to raise the recorded failure again, which the code that requested the step handled before."""

    failure: Attempt

    @property
    def differs(self) -> bool:
        """As `Reuse.differs`."""
        return DIFFERS in self.failure.provenance


@dataclass(frozen=True, slots=True)
class Execute:
    """The decision to run the step."""

    diverges: bool = False
    """Whether no recorded outcome applies after this step."""
    differs: bool = False
    """Whether the code has changed, added or left out a step that may differ: see `Mode.differs`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The decision to raise an error instead of running the step: the request contradicts the record."""

    why: Literal["drifted", "other question", "passed over", "edit lost"]
    """drifted: the question of the step has changed, with on_drift="error". other question: the same under
    strict replay. passed over: recorded steps should have been requested before this new step. edit lost: this fork
    has edited the step, and an agent asks it something else than was answered there."""
    addresses: tuple[str, ...]
    """The recorded steps concerned."""


Decision = Reuse | Reraise | Execute | Refuse
EXECUTE = Execute()
"""Run the step, and let the outcomes of later steps apply. So runs, for example, a step of which nothing is
recorded."""
NEW_COURSE = Execute(diverges=True, differs=True)
"""Run the step. It is the first one to differ, and no outcome of a later step applies."""


def mode_after(mode: Mode, decision: Reuse | Reraise | Execute) -> Mode:
    """Return the mode for the requests that follow a step, after this decision about the step."""
    if decision.differs and not mode.differs:
        mode = replace(mode, differs=True)
    if isinstance(decision, Execute) and decision.diverges:
        mode = replace(mode, diverged=True)
    return mode


class _Case(NamedTuple):
    """A requested step, and what `decide` considers about it."""

    record: Record
    question: StepQuestion
    mode: Mode
    unrequested: Collection[str]
    ended: Outcome | Attempt | None
    """The outcome or final failure of the step, if that is recorded."""

    @property
    def is_same(self) -> bool:
        """Whether the step ended with the question that it is asked now."""
        return self.ended is not None and self.ended.fingerprint == self.question.digest

    @property
    def may_differ(self) -> bool:
        """Whether strict replay, too, allows the step's question to change."""
        return self.question.drift == MAY_DIFFER


def decide(record: Record, question: StepQuestion, mode: Mode, unrequested: Collection[str] = ()) -> Decision:
    """Decide whether the requested step returns its recorded outcome, raises its recorded failure, runs or is refused.

    `unrequested`: addresses of the recorded steps with the same parent that code has not requested yet.
    """
    case = _Case(record, question, mode, unrequested, record.end(question.address))
    decision = _decided(case)
    if isinstance(decision, Execute) and is_edit_to_keep(record, case.ended, mode):
        return Refuse("edit lost", (question.address,))
    return decision


def is_edit_to_keep(record: Record, ended: Outcome | Attempt | None, mode: Mode) -> bool:
    """Return whether a step ended with an edit by this fork that answers whatever else changes, except a rollback."""
    return is_own_edit(record, ended) and not mode.rolled_back


def _decided(case: _Case) -> Decision:
    record, question, mode, unrequested, ended = case
    if ended and not _stands(record, ended, question):
        return EXECUTE
    if mode.diverged and not _applies_on_any_course(case):
        return EXECUTE
    if ended and question.is_early and comes_earlier(record, ended, question, mode, unrequested):
        return NEW_COURSE
    if answer := _answer(case):
        return answer
    return _without_answer(case) if mode.strict_replay and not mode.diverged else EXECUTE


def _stands(record: Record, ended: Outcome | Attempt, question: StepQuestion) -> bool:
    """Return whether the recorded end of a step is not outdated, and its basis is the same."""
    edited = isinstance(ended, Outcome) and ended.edited
    if not edited and question.after is not None and ended.seq < question.after:
        return False
    return is_own_edit(record, ended) or question.basis.holds(ended.seq, ended.provenance.get(RESTS_ON))


def _applies_on_any_course(case: _Case) -> bool:
    """Return whether the recorded end of a step applies although an earlier step differs from the record.

    An edit of this fork does. So does a call with effect="once" that the code would repeat, except in a fork whose
    changes lead to the call: it makes that call again, see `allow_effects` of `fork`.
    """
    record, question, mode, _, ended = case
    if is_edit_to_keep(record, ended, mode):
        return True
    repeats = isinstance(ended, Outcome) and case.is_same and not is_before_change(record, question.address)
    return question.once and (mode.goes_otherwise or repeats)


def _answer(case: _Case) -> Decision | None:
    """Decide about a step by its recorded end; None if that does not decide."""
    _, question, mode, _, ended = case
    if not isinstance(ended, Outcome):
        if ended and case.is_same and mode.strict_replay and not is_retried(ended.address, case.record, mode.rerun):
            return Reraise(ended)
        return None
    if not ended.address:  # the root step, about whose outcome the kickoff has decided already
        return None if mode.superseded else Reuse(ended, ended.drifted)
    if not case.is_same and (mode.strict_replay or (mode.differs and question.once)):
        return _answer_to_another(case, ended)
    if ended.drifted and mode.on_drift != "keep" and not question.once:
        return Refuse("drifted", ended.drifted[:1]) if mode.on_drift == "error" else None
    return Reuse(ended, ended.drifted) if case.is_same else _as_drift_says(case, ended)


def _as_drift_says(case: _Case, recorded: Outcome) -> Reuse | Execute | Refuse:
    """Decide about a step whose question has changed, and may change."""
    asked, mode = case.question.drift, case.mode
    drift = asked if asked != "configured" else "rerun" if mode.reruns() else mode.on_drift
    if drift == "keep":
        return Reuse(recorded, recorded.drifted if recorded.edited else (recorded.address,))
    if drift == "error":
        return Refuse("drifted", (recorded.address,))
    return Execute(diverges=drift != "rerun", differs=drift == MAY_DIFFER)


def _answer_to_another(case: _Case, recorded: Outcome) -> Reuse | Execute | Refuse | None:
    """Decide about a step whose question is not the recorded one, and should be; None if a change explains that.

    Such a change is one of a fork, one of a step that may differ or was left out and may differ, or `mode.reruns`.
    """
    record, question, mode, unrequested, _ = case
    if any(codec.digest([question.kind, other]) == recorded.fingerprint for other in other_forms(question.asked)):
        return Reuse(recorded, recorded.drifted)
    address = recorded.address
    if is_before_change(record, address) or (record.edited and not question.once):
        return Reuse(recorded, recorded.drifted) if recorded.edited else None
    is_free = free_from(record, (*unrequested, address)) <= recorded.seq
    if case.may_differ or (is_free and not question.once) or mode.reruns(once=question.once):
        return NEW_COURSE
    return Refuse("other question", (address,))


def _without_answer(case: _Case) -> Execute | Refuse:
    """Decide under strict replay whether a step that the record does not answer runs, or contradicts the record."""
    record, question, mode, unrequested, ended = case
    passed = passed_over(record, question, mode, unrequested)
    contradicts = bool(passed) or (isinstance(ended, Attempt) and not case.is_same)
    if question.moved or (case.may_differ and contradicts):  # moved: its usual address belongs to another call
        return NEW_COURSE
    begun = not question.caller_waits or question.address in record.events.starts
    if left_out := needed(record, mode, passed, () if begun else unrequested):
        return Refuse("passed over", left_out)
    is_free = mode.differs or free_from(record, unrequested) < math.inf
    is_new = case.may_differ and not is_counted(question.address)  # its address comes from its question
    return Execute(diverges=is_free and contradicts, differs=is_free or is_new)
