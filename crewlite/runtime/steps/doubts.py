"""Calls declared effect="once": recorded before they are made, and in doubt if their outcome is missing afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from crewlite import kinds
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, InDoubt, NonDeterminism
from crewlite.runtime.steps.attempts import failed_before
from crewlite.runtime.steps.mode import Mode
from crewlite.runtime.steps.replay import is_edit_to_keep
from crewlite.runtime.steps.run import Run
from crewlite.state.format.addresses import bare_name, outers
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import Record
from crewlite.state.reading.steps import unsettled, waits_for_inner_call
from crewlite.step_parts import Intent
from crewlite.tools.result import shown_arguments

T = TypeVar("T")


async def intend(run: Run, step: Step[Any], address: str, fingerprint: str, released: Sequence[str]) -> None:
    """Record that a call is about to be made, and wait until that is on disk. `released`: see Earlier.

    Nothing is recorded if the reply that planned the call recorded it already. Raises StoreError if it cannot be saved.
    """
    record, mask = run.record, run.journal.secrets.mask
    is_new = address not in record.intents or address in record.outcomes
    is_another_doubt = waits_for_inner_call(record, address) or is_made_again(run, address)  # if interrupted now
    if is_new or is_another_doubt or released:
        intent = CommitParts(intents=[(address, step.effect, fingerprint), *((at, "none") for at in released)])
        if step.kind is kinds.TOOL and (arguments := _arguments(step, mask)):  # only those of tools are recorded
            intent["arguments"] = {address: arguments}
        await run.journal.save(intent, now=True)
    await run.journal.assured(
        'a call with effect="once" is not made while nothing can be saved: make the store writable'
    )
    run.once.begun.add(address)


def planned(calls: Sequence[Intent], run: Run, mode: Mode) -> CommitParts:
    """Build the part of a commit that records that the calls which a reply asks for are about to be made.

    Left out are calls with effect="once" that were made already and asked the same; calls that the edit of a fork
    answers; calls in doubt, which keep their intent until a person has decided about them; and, until then, all other
    calls with effect="once": see `check_none_before`.
    """
    record, waits = run.record, bool(run.earlier.left_in_doubt and _undecided(run))
    intents = list[tuple[str, str] | tuple[str, str, str]]()
    for at, effect, question in calls:
        made = record.outcomes.get(at)
        in_doubt = made is None and record.is_once(at)
        if effect is None or in_doubt or (waits and effect == "once") or is_edit_to_keep(record, made, mode):
            continue
        if effect != "once" and not (made and made.edited):
            intents.append((at, effect))
            continue
        digest = codec.digest([kinds.at(at).name, question])
        if made is None or made.fingerprint != digest:
            intents.append((at, effect, digest) if effect == "once" else (at, effect))
    return {"intents": intents} if intents else {}


def may_have_taken_effect(run: Run, address: str) -> bool:
    """Return whether a call has begun or failed, in this kickoff or an earlier one, and has no outcome.

    False for a call that waits for a decision about a call inside it, because it runs again.
    """
    record = run.record
    if address not in record.intents or address in record.outcomes or waits_for_inner_call(record, address):
        return False
    failed_once = record.is_once(address) and address in record.attempts
    return address in run.earlier.doubts or address in run.once.begun or failed_once


def asks_the_same(record: Record, address: str, fingerprint: str) -> bool:
    """Return whether a call in doubt was begun with the question that has this digest, as far as the record says."""
    return record.intended.get(address, fingerprint) == fingerprint


def check_asks_the_same(run: Run, step: Step[Any], address: str, fingerprint: str, mode: Mode) -> None:
    """Check that a call in doubt is requested with the question it was begun with: a decision is about that alone.

    Raises NonDeterminism if code that must request the recorded steps requests it with other arguments. Where the
    arguments may differ, raises AnswerRefused if the kickoff was given the result of the call that was begun.
    """
    record = run.record
    if asks_the_same(record, address, fingerprint):
        return
    changed = record.edited or record.earlier_inputs  # by a fork, whose calls may have other arguments
    if mode.strict_replay and not mode.reruns(once=True) and not changed:
        found = _arguments(step, run.journal.secrets.mask) or "others"
        began = "the arguments with which that call was begun, which may have taken effect"
        raise NonDeterminism(run.run_id, address, began, found)
    if address in run.answers and is_comparable(step):
        asked = _arguments(step, run.journal.secrets.mask) or "other arguments"
        problem = f"it is the result of the call that was begun, and that one did not have {asked}, which is asked now"
        raise AnswerRefused(address, problem, other_call=True)


def check_none_left(run: Run, unrequested: Collection[str]) -> None:
    """Raise InDoubt if a step is about to end whose code has not requested a call inside it that is in doubt.

    The code has changed since it began that call. `unrequested`: the recorded steps that it has not requested.
    """
    around = run.earlier.left_in_doubt.intersection(unrequested)
    for at in _undecided(run) if around else ():
        if not around.isdisjoint((at, *outers(at))):
            raise _doubt_left(run, at)


def check_none_before(run: Run, address: str) -> None:
    """Raise InDoubt if a call is about to be made while another call of an earlier kickoff is in doubt.

    Changed code may repeat the call in doubt at another address, so it makes none until somebody has decided about that
    one.
    """
    if run.earlier.left_in_doubt and address not in run.earlier.left_in_doubt and (undecided := _undecided(run)):
        raise _doubt_left(run, undecided[0])


def _undecided(run: Run) -> list[str]:
    """Return the calls left in doubt by an earlier kickoff about which nobody has decided."""
    known = run.answers.keys() | run.once.begun
    return [at for at in unsettled(run.record) if at in run.earlier.left_in_doubt and at not in known]


def _doubt_left(run: Run, at: str) -> InDoubt:
    return run.doubt(at, f"{kinds.at(at).name} {bare_name(at)}", failed_before(run.record, at), "")


def is_made_again(run: Run, address: str) -> bool:
    """Return whether this kickoff makes a call in doubt again: its `rerun` names the attempt that is in doubt.

    So a `rerun` decides about one doubt: if the call is interrupted again, a program that is started again with the
    same `rerun` does not decide about the new doubt. In a run that has not begun the call yet, a `rerun` has no effect.
    """
    decided = address in run.rerun and run.rerun[address] == run.record.begun_once.get(address)
    return decided and may_have_taken_effect(run, address)


def given_by_person(run: Run, answer: Callable[[Any], T], address: str) -> T:
    """Return the result that a person gives for a call in doubt. Raises AnswerRefused if the call cannot give that."""
    try:
        return answer(run.answers[address])
    except AnswerRefused as refused:
        raise AnswerRefused(address, run.journal.secrets.mask(refused.problem)) from None


def is_comparable(step: Step[Any]) -> bool:
    """Return whether the arguments of a call are recorded as they are: neither live objects nor secrets."""
    return step.given is None and not codec.holds_secret(step.question)


def doubt(step: Step[Any], address: str, run: Run, arguments: str | None = None) -> InDoubt:
    """Build the error of a call that may have taken effect already. `arguments`: the call's, if not those of `step`."""
    failed = failed_before(run.record, address)
    shown = _arguments(step, run.journal.secrets.mask) if arguments is None else arguments
    return run.doubt(address, step.title, failed, shown)


def _arguments(step: Step[Any], mask: Callable[[str], str]) -> str:
    """Return the beginning of the arguments of a call, as JSON; "" if there are none."""
    given = step.question[1] if step.kind is kinds.TOOL else step.question
    return shown_arguments(given, mask) if given else ""
