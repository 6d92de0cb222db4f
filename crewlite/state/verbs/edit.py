"""Changing what a branch builds on: an outcome put in another's place, or taken back so that its step runs again.

Nothing is changed where it was recorded. The fork begins with the new outcome, and what was made from the old one does
not answer there: a step that asks something else because of it runs, and all others answer as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import BaseModel

from crewlite import codec, kinds
from crewlite.errors import AnswerRefused, ConfigError, RefError, an
from crewlite.kinds import Kind
from crewlite.llm.base import LLMReply, ToolCall, whole_reply
from crewlite.llm.call import recorded
from crewlite.secrets import Secrets
from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import AskedQuestion, StepRecord, invalidated
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.verbs.answer import Typed, check, typed
from crewlite.state.verbs.coerce_edit import coerce, read
from crewlite.tools.base import as_text


def changed_steps(
    record: Record, edits: Mapping[str, Any], rerun: Collection[str], secrets: Secrets
) -> list[StepRecord]:
    """The steps that the first commit of a fork of this record puts in the place of others, or takes back.

    Raises RefError for a step that has not finished there, AnswerRefused for an answer that does not fit its question,
    ConfigError.
    """
    steps, both = [], edits.keys() & set(rerun)
    if both:
        raise ConfigError(f"{min(both)} is to be edited and to be run again; wanted one of the two")
    changed = edits.keys() | set(rerun)
    for address, value in edits.items():
        outcome = _finished(record, address, "edited")
        _alone(address, changed)
        steps.append(_edited(outcome, _checked(record, outcome, value, secrets)))
    for address in rerun:
        ended = record.failures.get(address) or _finished(record, address, "run again")
        _alone(address, edits.keys())
        steps.append(invalidated(address, ended.kind) | {"edited": True})
    return steps


def _alone(address: str, changed: Collection[str]) -> None:
    """Raises ConfigError if what is to become of a step would be lost with a step around it."""
    for outer in outers(address):
        if outer in changed:
            raise ConfigError(f"{address} is part of {outer}, which is changed as a whole; wanted one of the two")


def _finished(record: Record, address: str, what: str) -> Outcome:
    outcome = record.outcomes.get(address)
    if outcome is None or not address:
        close = [at for at in record.outcomes if at]
        raise RefError(address, f"names no finished step of that checkpoint, so it cannot be {what}", close)
    return outcome


def _edited(outcome: Outcome, data: Any) -> StepRecord:
    edited: StepRecord = {
        "address": outcome.address,
        "kind": outcome.kind,
        "fingerprint": outcome.fingerprint,
        "value": data,
        "digest": codec.digest(data),
        "ms": 0.0,
        "edited": True,
    }
    return {"question": dict(outcome.question), **edited} if outcome.question else edited


def _checked(record: Record, outcome: Outcome, value: Any, secrets: Secrets) -> Any:
    """The value as it is recorded, in the form of the outcome that it takes the place of."""
    was, asked = record.value(outcome.address), record.asked.get(outcome.address)
    meant = _read(outcome, value, was, asked) if isinstance(value, Typed) else value
    data: Any = secrets.mask_data(_coded(outcome, meant))
    if kinds.of(outcome.kind).holds_value:
        return coerce(data, was, f"The edit of {outcome.address}")
    if kinds.of(outcome.kind).asks_person and asked:
        try:
            check(asked, codec.decode(data["answer"]))
        except AnswerRefused as refusal:
            raise AnswerRefused(refusal.address, refusal.problem, edit=True) from None
    return data


def _read(outcome: Outcome, said: Typed, recorded: Any, asked: AskedQuestion | None) -> Any:
    """What somebody typed, as an outcome of this kind is read."""
    if kinds.of(outcome.kind).holds_value:
        return read(said, recorded)
    schema = asked.get("schema") if asked else None
    return typed(said, schema) if kinds.of(outcome.kind).asks_person else str(said)


def _coded(outcome: Outcome, value: Any) -> Any:
    """The value as an outcome of this kind is recorded."""
    make = _CODED.get(kinds.of(outcome.kind))
    if make is None:
        raise ConfigError(
            f"{outcome.address} is a {outcome.kind}, which cannot be edited; wanted {', '.join(map(str, _CODED))}"
        )
    return make(outcome, value)


def _answer_text(outcome: Outcome, value: Any) -> str:
    """Text as it is; data as the JSON that a structured answer is."""
    if isinstance(value, str | BaseModel | dict | list) and not _is_reply(value):
        return as_text(value)
    raise ConfigError(f"The edit of {outcome.address} is {an(type(value).__name__)}; wanted its text, or data")


def _done(outcome: Outcome, value: Any) -> Any:
    """A task with this answer, also one that was skipped."""
    recorded = {name: part for name, part in outcome.value.items() if name != "skipped"}
    return recorded | {"raw": _answer_text(outcome, value)}


def _value(outcome: Outcome, value: Any) -> Any:
    return codec.encode(value, f"the edit of {outcome.address}")


def _reply(outcome: Outcome, value: Any) -> Any:
    if _is_reply(value):
        return recorded(whole_reply(value, "an edit"))
    return {"text": _answer_text(outcome, value)}


def _is_reply(value: Any) -> bool:
    """Whether this is what a model says, or the calls that it wishes for."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, ToolCall) for item in value)
    return isinstance(value, ToolCall | LLMReply)


_CODED: dict[Kind, Callable[[Outcome, Any], Any]] = {
    kinds.STEP: _value,
    kinds.CONDITION: lambda outcome, value: _value(outcome, bool(value)),
    kinds.TASK: _done,
    kinds.LLM: _reply,
    kinds.TOOL: lambda outcome, value: {"text": as_text(value)},
    kinds.HUMAN: lambda outcome, value: {"answer": codec.encode(value, f"the edit of {outcome.address}")},
}
