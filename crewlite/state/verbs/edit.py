"""Edits of a fork: replace the outcome of a step, or a field of the state that it left, or have the step run again.

The original branch does not change. The first commit of the fork holds the new outcome. On the fork, a step that is
asked something else because of the new outcome runs again; every other step answers from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import BaseModel

from crewlite import kinds
from crewlite.encoding import codec
from crewlite.errors import AnswerRefused, ConfigError, RefError
from crewlite.kinds import Kind
from crewlite.llm.base import LLMReply, ToolCall, whole_reply
from crewlite.llm.call import recorded
from crewlite.state.format.addresses import BEGINNING, is_question, outer, outers
from crewlite.state.format.commit import AskedQuestion, StepRecord, invalidated
from crewlite.state.format.forms import are_messages
from crewlite.state.format.operations import Operation
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.reading.fitting import Typed, converted, misfit
from crewlite.state.reading.missing import no_step
from crewlite.state.verbs import edited_state, edited_values as values
from crewlite.texts.secrets import Secrets
from crewlite.texts.wording import number_of, what_is
from crewlite.tools.approval import schema_of
from crewlite.tools.base import as_text

_SHOWN = 200  # characters of a value in an error


def changed_steps(
    record: Record,
    edits: Mapping[str, Any],
    rerun: Collection[str],
    secrets: Secrets,
    definition: edited_state.Editable | None = None,
) -> list[StepRecord]:
    """Build the step records of the first commit of a fork: new outcomes for `edits`, tombstones for `rerun`.

    `record` is the record that the fork starts from, `definition` what is to run the fork, if it is known. Raises
    RefError for a step that has not finished in the record, AnswerRefused for a person's answer that does not fit the
    question, ConfigError for an edit that cannot be made.
    """
    steps, by_step = list[StepRecord](), dict[str, dict[str, Any]]()
    for key, value in edits.items():
        address, name = edited_state.split(key, record.outcomes)
        by_step.setdefault(address, {})[name] = value
    if both := by_step.keys() & set(rerun):
        raise ConfigError(f"{min(both)} is in `edits` and in `rerun`; name it in one of the two")
    changed = by_step.keys() | set(rerun)
    for address, new in by_step.items():
        outcome = _finished(record, address, "edited")
        _check_not_enclosed(address, changed)
        if address == BEGINNING and kinds.has_methods(record.run["definition"]):
            raise ConfigError(
                f"{address} sets the fields of the state with which the flow begins, and has no outcome to edit; "
                f"fork with inputs={{...}}, which set them"
            )
        data = record.value(address)
        if edited_state.OUTCOME in new:
            data = _checked(record, outcome, new.pop(edited_state.OUTCOME), secrets)
            if definition:
                definition.check_edit(record, address, data)
        set_fields = edited_state.operations(record, outcome, new, secrets, definition)
        steps.append(_edited(outcome, data, [*outcome.changes, *set_fields]))
    for address in rerun:
        ended = record.failures.get(address) or _finished(record, address, "run again")
        _check_not_enclosed(address, by_step.keys())
        steps.append(invalidated(address, ended.kind) | {"edited": True})
    return steps


def can_edit(kind: Kind) -> bool:
    """Return whether outcomes of this kind can be edited."""
    return kind in _CODED


def _check_not_enclosed(address: str, changed: Collection[str]) -> None:
    """Raise ConfigError if a step that encloses this one is changed too: that would discard the change of this step."""
    for whole in outers(address):
        if whole in changed:
            raise ConfigError(f"{address} is part of {whole}, which is edited or rerun itself; change one of the two")


def _finished(record: Record, address: str, what: str) -> Outcome:
    outcome = record.outcomes.get(address)
    if outcome is None and address in record.asked:
        problem = f"is a question whose answer was not used yet, so it cannot be {what}: answer it, on a fork too"
        raise RefError(address, f"{problem}: history.answer(run, {address!r}, ..., replace=True)")
    if outcome is None and address in record.attempts:
        handled = "the run did not end by that, so it is tried again only if rerun names it"
        again = handled if address in record.failures else "any fork from there tries it again, without rerun"
        raise RefError(address, f"has failed, so there is no outcome to change; {again}")
    if outcome is None or not address:
        problem = f"names no finished step at that checkpoint, so it cannot be {what}"
        raise no_step(address, problem, record)
    return outcome


def _edited(outcome: Outcome, data: Any, changes: list[Operation]) -> StepRecord:
    edited: StepRecord = {
        "address": outcome.address,
        "kind": outcome.kind,
        "fingerprint": outcome.fingerprint,
        "value": data,
        "digest": codec.digest(data),
        "ms": 0.0,
        "edited": True,
    }
    if changes or kinds.of(outcome.kind) is kinds.METHOD:  # changes and methods keep their place in the order
        edited |= {"order": list(outcome.order)}
    if changes:
        edited |= {"state": changes}
    return {"question": dict(outcome.question), **edited} if outcome.question else edited


def _checked(record: Record, outcome: Outcome, value: Any, secrets: Secrets) -> Any:
    """Return the value of an edit as it is recorded: encoded, masked, checked, in the type of the old outcome."""
    was = record.value(outcome.address)
    asks = kinds.of(outcome.kind).asks_person
    asked = (record.asked.get(outcome.address) or _approval(outcome, was)) if asks else None
    data: Any = secrets.mask_data(_coded(outcome, _read(outcome, value, was, asked)))
    if kinds.of(outcome.kind).holds_value:
        try:
            return values.as_recorded(data, was, f"The edit of {outcome.address}")
        except ConfigError as error:
            if answers := [at for at in record.outcomes if outer(at) == outcome.address and is_question(at)]:
                way = f"To have another answer of the person, edit {', '.join(answers)}"
                raise ConfigError(f"{error}. {way}") from None
            raise
    if asked and (problem := misfit(codec.decode(data["answer"]), asked.get("schema"))):
        raise AnswerRefused(outcome.address, secrets.mask(problem), edit=True)
    return data


def _approval(outcome: Outcome, was: Any) -> AskedQuestion | None:
    """Return the question if `auto_approve` answered it in place of a person; None if a person did."""
    if not (isinstance(was, dict) and "automatic" in was):
        return None
    return {"address": outcome.address, "question": "", "at": outcome.at, "schema": schema_of(None)}


def _read(outcome: Outcome, given: Any, recorded: Any, asked: AskedQuestion | None) -> Any:
    """Convert text that a person typed, and a person's yes or no, to the type that an outcome of this kind has."""
    if kinds.of(outcome.kind).asks_person:
        return converted(given, asked.get("schema") if asked else None)
    if not isinstance(given, Typed):
        return given
    return values.read(given, recorded) if kinds.of(outcome.kind).holds_value else str(given)


def _coded(outcome: Outcome, value: Any) -> Any:
    """Encode the value as outcomes of this kind are recorded. Raises ConfigError for a kind that cannot be edited."""
    make = _CODED.get(kinds.of(outcome.kind))
    if make is None:
        raise ConfigError(
            f"{outcome.address} is of kind {outcome.kind}, which cannot be edited; these kinds can: "
            f"{', '.join(map(str, _CODED))}"
        )
    return make(outcome, value)


def _answer_text(outcome: Outcome, value: Any) -> str:
    """Return a text unchanged, and a dict, list or pydantic model as JSON. Raises ConfigError for anything else."""
    if isinstance(value, str | BaseModel | dict | list) and not _is_reply(value):
        return as_text(value)
    raise ConfigError(
        f"The edit of {outcome.address} is {what_is(value)}; wanted its text, or data: a dict, list or model"
    )


def _done(outcome: Outcome, value: Any) -> Any:
    """Return the recorded outcome of a task or turn with another answer. A skipped task then counts as done."""
    recorded = {name: part for name, part in outcome.value.items() if name != "skipped"}
    return recorded | {"raw": _answer_text(outcome, value)}


def _message(outcome: Outcome, value: Any) -> Any:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        messages = _value(outcome, value)
        if are_messages(messages):
            return messages
    raise ConfigError(f"The edit of {outcome.address} is {value!r}; wanted a text, or a list of messages")


def _value(outcome: Outcome, value: Any) -> Any:
    return codec.encode_to_keep(value, f"the edit of {outcome.address}")


def _plan(outcome: Outcome, value: Any) -> Any:
    """Check the plan of a crew, which has a text for each task. Raises ConfigError."""
    count = len(outcome.value)
    if isinstance(value, list | tuple) and len(value) == count and all(isinstance(text, str) for text in value):
        return list(value)
    wanted = f"a list of {number_of(count, 'text')}, one for each task"
    raise ConfigError(f"The edit of {outcome.address} is {value!r:.{_SHOWN}}; wanted {wanted}")


def _verdict(outcome: Outcome, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigError(f"The edit of {outcome.address} is {value!r}; wanted True or False: whether its task is done")


def _passed(outcome: Outcome, value: Any) -> list[Any]:
    """Check a guardrail's verdict, [True, a replacing text or None] or [False, the reason]. Raises ConfigError."""
    match value:
        case [True, None | str()]:
            return list(value)
        case [False, str() as reason] if reason.strip():
            return list(value)
    raise ConfigError(
        f"The edit of {outcome.address} is {value!r}; wanted the verdict of a guardrail: [True, None], [True, the "
        f"answer to use instead] or [False, the reason that the agent is told]"
    )


def _reply(outcome: Outcome, value: Any) -> Any:
    if _is_reply(value):
        return recorded(whole_reply(value, "an edit"))
    return {"text": _answer_text(outcome, value)}


def _is_reply(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, ToolCall) for item in value)
    return isinstance(value, ToolCall | LLMReply)


_CODED: dict[Kind, Callable[[Outcome, Any], Any]] = {
    kinds.STEP: _value,
    kinds.METHOD: _value,
    kinds.PLAN: _plan,
    kinds.CONDITION: _verdict,
    kinds.GUARDRAIL: _passed,
    kinds.TASK: _done,
    kinds.TURN: _done,
    kinds.MESSAGE: _message,
    kinds.LLM: _reply,
    kinds.TOOL: lambda outcome, value: {"text": as_text(value)},
    kinds.HUMAN: lambda outcome, value: {"answer": codec.encode_to_keep(value, f"the edit of {outcome.address}")},
}
