"""An answer to a question that a run waits with, given while the run is not at work: one commit at its head."""

from __future__ import annotations

from typing import Any

from crewlite import codec
from crewlite.errors import AnswerRefused, BranchConflictError, RefError
from crewlite.ids import now
from crewlite.lazy import lazy
from crewlite.secrets import Secrets
from crewlite.state.claim import holder, holds
from crewlite.state.entry import SCHEMA, Facts, seal
from crewlite.state.lineage import whole
from crewlite.state.providers import Store
from crewlite.state.providers.base import Commit
from crewlite.state.record import Record

jsonschema = lazy("jsonschema")  # only answers that come from elsewhere need it; a run checks with its own classes


def answer(store: Store, run_id: str, branch: str, address: str, value: Any) -> None:
    """Record an answer. Raises RefError, AnswerRefused, and BranchConflictError if the run is at work."""
    record = Record.of(whole(store, run_id, branch))
    asked = record.asked.get(address)
    if asked is None:
        waiting = [item["address"] for item in record.waiting]
        raise RefError(address, f"is no question of run {run_id!r}", waiting)
    if record.claim and holds(record.claim, store.touched(run_id, branch)):
        raise BranchConflictError(run_id, branch, holder=holder(record.claim))
    if address in record.outcomes or record.answer_to(asked):
        raise AnswerRefused(address, "it has an answer already, which the run goes on with")
    coded = Secrets.of().mask_data(codec.encode(value, "the answer"))
    check(asked, coded)
    at = now().isoformat()
    facts: Facts = {"schema": SCHEMA, "seq": record.seq + 1, "at": at}
    of = {"digest": asked["digest"]} if "digest" in asked else {}
    facts |= {"answers": [{"address": address, "value": coded, "at": at, **of}]}
    store.append([Commit(run_id, branch, record.seq, record.sum, (seal(facts, after=record.sum),))])


def check(asked: Facts, coded: Any) -> None:
    """Raises AnswerRefused unless this answers the question, as far as its recorded schema tells."""
    if "schema" not in asked:
        if not isinstance(coded, str):
            raise AnswerRefused(asked["address"], f"{coded!r} is no text")
        return
    try:
        jsonschema.validate(coded, asked["schema"])
    except jsonschema.ValidationError as error:
        raise AnswerRefused(asked["address"], error.message) from None
