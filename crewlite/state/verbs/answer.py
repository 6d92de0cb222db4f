"""Answers to questions that a run waits with, or will ask: as parts of a commit, checked as far as can be told here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from crewlite import codec
from crewlite.errors import AnswerRefused, BranchConflictError, RefError, StoreError
from crewlite.ids import now
from crewlite.lazy import lazy
from crewlite.secrets import Secrets
from crewlite.state.format.addresses import is_question
from crewlite.state.format.commit import AskedQuestion, CommitParts, GivenAnswer
from crewlite.state.format.record import Record
from crewlite.state.journal.holder import holder
from crewlite.state.journal.journal import Journal, at_work_on
from crewlite.state.journal.lineage import recorded
from crewlite.state.journal.manual import change
from crewlite.state.providers import Store
from crewlite.state.providers.base import Commit

jsonschema = lazy("jsonschema")  # only answers that come from elsewhere need it; a run checks with its own classes
_FORMATS: dict[str, Any] = {"date": date, "date-time": datetime, "time": time, "duration": timedelta, "uuid": UUID}
_SECOND = "it has an answer already, which stands"


class Typed(str):
    """An answer as somebody typed it: it is read as the question wants it, see `typed`."""


def typed(text: str, schema: Any) -> Any:
    """What somebody typed: text where text is wanted, else what it says as JSON, or as yes and no.

    `schema` is the JSON schema of the answer; None for any text.
    """
    text = str(text)
    wanted = "string" if schema is None else schema.get("type")
    if wanted == "string":
        return text
    word = text.strip().lower()
    if wanted == "boolean" and word in ("y", "yes", "n", "no"):
        return word[0] == "y"
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def decode_answer(given_answer: GivenAnswer, schema: Any) -> Any:
    """A recorded answer, read as the question wants it if somebody typed it ahead of that."""
    value = codec.decode(given_answer["value"])
    return typed(value, schema) if given_answer.get("typed") else value


def answer(store: Store, run_id: str, branch: str, address: str, value: Any, *, ahead: bool) -> None:
    """Record an answer. A run of this process hears it while it is at work.

    Raises RefError, AnswerRefused, and BranchConflictError if the run is at work elsewhere.
    """
    record = recorded(store, run_id, branch)
    if journal := at_work_on(record.claim, store.location):
        _answer_live(journal, lambda: _answered(journal.record, journal.secrets, address, value, ahead=ahead))
        return
    parts = _answered(record, Secrets.of(), address, value, ahead=ahead)
    if by := holder(store, run_id, branch, record.claim):
        raise BranchConflictError(run_id, branch, holder=by)
    store.append([Commit.saying(run_id, branch, record.head, parts)])


def _answer_live(journal: Journal, make: Callable[[], CommitParts]) -> None:
    try:
        change(journal, make, lambda parts: None, "the answer was").result()
    except StoreError as error:
        if not journal.closed:
            raise
        raise BranchConflictError(journal.run_id, journal.branch) from error  # it is about to release the branch


def _answered(record: Record, secrets: Secrets, address: str, value: Any, *, ahead: bool) -> CommitParts:
    """What a commit says of an answer. Raises RefError, AnswerRefused."""
    asked = record.asked.get(address)
    if asked is None and (record.finished or not (ahead and is_question(address))):
        waiting = [item["address"] for item in record.waiting]
        raise RefError(address, f"is no question of run {record.run['run_id']!r}", waiting)
    if record.settled(address) or (asked and record.answer_to(asked)):
        raise AnswerRefused(address, _SECOND, second=True)
    given_answer = _given_answer(address, value, asked, secrets)
    if asked:
        check(asked, typed(value, asked.get("schema")) if isinstance(value, Typed) else value)
    return {"answers": [given_answer]}


def unheard(record: Record) -> frozenset[str]:
    """Questions that somebody has answered, whose steps have not gone on with it yet."""
    return frozenset(at for at, asked in record.asked.items() if not record.settled(at) and record.answer_to(asked))


def given(record: Record, answers: Mapping[str, Any], secrets: Secrets, *, changed: bool = False) -> list[GivenAnswer]:
    """The answers to people's questions that a kickoff is given, as it records them; not those it knows already.

    `changed`: its inputs are not those of the record, so that it may ask other questions at the same addresses.
    Raises AnswerRefused for another answer to a question that has one.
    """
    recorded_answers = []
    for address, value in answers.items():
        if not is_question(address):
            continue
        other = changed or bool(record.edited) or record.inputs_of(address) != record.run.get("inputs")
        asked = None if other else record.asked.get(address)
        given_answer = _given_answer(address, value, asked, secrets)
        if other or not _known(record, asked, given_answer):
            recorded_answers.append(given_answer)
    return recorded_answers


def refusal(address: str, problem: str) -> GivenAnswer:
    """What takes back a recorded answer that does not fit, so that its question waits again."""
    return {"address": address, "value": None, "at": now().isoformat(), "refused": problem}


def _given_answer(address: str, value: Any, asked: AskedQuestion | None, secrets: Secrets) -> GivenAnswer:
    """An answer as it is recorded: to the question that was asked, or else ahead of it."""
    is_typed = isinstance(value, Typed)
    if is_typed:
        value = typed(value, asked.get("schema")) if asked else str(value)
    coded = secrets.mask_data(codec.encode(value, f"the answer to {address}"))
    given_answer: GivenAnswer = {"address": address, "value": coded, "at": now().isoformat()}
    if asked:
        return given_answer | ({"digest": asked["digest"]} if "digest" in asked else {})
    return given_answer | {"ahead": True} | ({"typed": True} if is_typed else {})


def _known(record: Record, asked: AskedQuestion | None, given_answer: GivenAnswer) -> bool:
    """Whether a question has this answer. Raises AnswerRefused if it has another."""
    address = given_answer["address"]
    if before := asked and record.answer_to(asked):
        same = codec.digest(before["value"]) == codec.digest(given_answer["value"])
    elif address in record.outcomes:
        same = _may_be_same(given_answer["value"], record.value(address))
    else:
        return record.settled(address)
    if not same:
        raise AnswerRefused(address, _SECOND, second=True)
    return True


def _may_be_same(value: Any, recorded: Any) -> bool:
    """Whether this may have become that outcome. Where the schema made another type of it, nobody can tell any more."""
    if "answer" not in recorded:  # nobody answered in time
        return False
    made = recorded["answer"]
    return type(value) is not type(made) or isinstance(value, dict) or codec.digest(value) == codec.digest(made)


def check(asked: AskedQuestion, value: Any) -> None:
    """Raises AnswerRefused unless this answers the question, as far as its recorded schema tells."""
    address = asked["address"]
    if "schema" not in asked:
        if not isinstance(value, str):
            raise AnswerRefused(address, f"{value!r} is no text")
        return
    formats = jsonschema.FormatChecker()
    for name, kind in _FORMATS.items():
        formats.checks(name, raises=ValidationError)(_reader(kind))
    try:
        jsonschema.validate(to_jsonable_python(value), asked["schema"], format_checker=formats)
    except jsonschema.ValidationError as error:
        raise AnswerRefused(address, error.message) from None


def _reader(kind: Any) -> Any:
    adapter = TypeAdapter(kind)
    return lambda text: adapter.validate_python(text) is not None
