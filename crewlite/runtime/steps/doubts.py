"""Calls declared effect="once": recorded before they are made, and in doubt if their outcome is missing afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crewlite import codec, kinds
from crewlite.durable import Step
from crewlite.errors import InDoubt
from crewlite.events.base import ErrorFields
from crewlite.runtime.steps.attempts import failed_before
from crewlite.runtime.steps.run import Run
from crewlite.state.format.addresses import bare_name, prefix_beside, without_tries
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.outcome import Outcome
from crewlite.tools.result import shown_arguments


def kind_and_name(step: Step[Any]) -> str:
    """Return the name of a step for error messages, such as "tool search"."""
    return f"{step.kind} {step.name or ''}".strip()


def intended(step: Step[Any], address: str, mask: Callable[[str], str]) -> CommitParts:
    """Build the part of a commit that records that a call is about to be made."""
    arguments, intent = _arguments(step, mask), CommitParts(intents=[(address, step.effect)])
    return {**intent, "arguments": {address: arguments}} if arguments else intent


def may_have_been_made(run: Run, address: str) -> bool:
    """Return whether an earlier kickoff has begun this call, or it has failed, so that it may have taken effect."""
    record = run.record
    return address in run.doubts or (record.intents.get(address) == "once" and address in record.attempts)


def is_made_again(run: Run, address: str) -> bool:
    """Return whether this kickoff makes a call in doubt again: its `rerun` names the attempt that is in doubt.

    So a `rerun` decides about one doubt: if the call is cut again, a program that is started again with the same
    `rerun` does not decide about the new doubt. Given to a run that has yet to begin the call, it decides about none.
    """
    decided = address in run.rerun and run.rerun[address] == run.record.begun_once.get(address)
    return decided and may_have_been_made(run, address)


def made_before(run: Run, step: Step[Any], address: str, fingerprint: str) -> Outcome | None:
    """Return the call that an earlier attempt at an enclosing step made with success, asked the same; else None.

    It answers the call at `address`, which would else be made twice because something else failed. Each such call
    answers one call of an attempt. Calls of which the record cannot tell whether they ask the same answer none, nor do
    any where the kickoff or its fork has `address` run again.
    """
    here, is_to_run = prefix_beside(address), address in run.rerun or address in run.record.edited
    if "!" not in here or is_to_run or step.given is not None or codec.holds_secret(step.question):
        return None
    place, name, made, taken = without_tries(here), bare_name(address), list[Outcome](), set[str]()
    for at, ended in run.record.outcomes.items():
        prefix = prefix_beside(at)
        if ended.fingerprint != fingerprint or bare_name(at) != name or without_tries(prefix) != place:
            continue
        if prefix == here:
            taken.add((ended.reused or "").rpartition("@")[2])
        elif run.record.intents.get(at) == "once" and not ended.reused and not _has_failed(run, step, at):
            made.append(ended)
    free = (one for one in made if one.address not in taken and (here, one.address) not in run.answered_again)
    if found := next(free, None):
        run.answered_again.add((here, found.address))
    return found


def _has_failed(run: Run, step: Step[Any], address: str) -> bool:
    """Return whether the outcome of a call is a failure, which a model was told."""
    said = step.voice.completed(step.decode(run.record.value(address)))
    return said is not None and issubclass(said[0], ErrorFields)


def doubt(step: Step[Any], address: str, run: Run) -> InDoubt:
    """Build the error of a call that may have taken effect already."""
    failed, arguments = failed_before(run.record, address), _arguments(step, run.journal.secrets.mask)
    return run.doubt(address, kind_and_name(step), failed, arguments)


def _arguments(step: Step[Any], mask: Callable[[str], str]) -> str:
    """Return the beginning of the arguments of a tool call, as JSON; "" for another step."""
    return shown_arguments(step.question[1], mask) if step.kind is kinds.TOOL else ""
