"""The score of a finished branch, recorded as metadata of a checkpoint at its end, so that no judge is asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crewlite.encoding.codec import decode, encode
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import own_entries
from crewlite.state.journal.lineage import last_commit_again, read_lineage
from crewlite.state.providers import Commit, Store
from crewlite.state.subscriber import new_checkpoint
from crewlite.state.verbs.from_outside import appended, commit_beside
from crewlite.texts.secrets import Secrets
from crewlite.usage import NO_USAGE, Usage

TRIGGER = "scored"


@dataclass(frozen=True, slots=True)
class RecordedScore:
    """The score that a judge gave to a result, and the judge's reason."""

    value: float
    reason: str = ""
    usage: Usage = NO_USAGE
    """The usage of the judge."""


def recorded_score(store: Store, run_id: str, branch: str, judge: str) -> RecordedScore | None:
    """Return the score that the judge identified by this text gave to a branch's result; None if there is none."""
    read = read_lineage(store, run_id, branch)
    return _found(store, read.entries, read.record(), judge)


def record_score(
    store: Store, run_id: str, branch: str, judge: str, score: RecordedScore, secrets: Secrets
) -> RecordedScore:
    """Record the score of a finished branch, and return it; if the judge's score is recorded already, return that."""

    def make() -> tuple[list[Commit], RecordedScore]:
        read = read_lineage(store, run_id, branch)
        record = read.record()
        if found := _found(store, read.entries, record, judge):
            return [], found
        about = {"score": score.value, "reason": score.reason, "usage": score.usage.to_record()}
        about |= {"judge": judge, "of": record.outcomes[""].digest}
        totals = {"finished_tasks": len(record.tasks), "tokens": record.paid.total.total_tokens}
        metadata = secrets.mask_data(encode(about, "the score"))
        made = new_checkpoint(record, record.seq + 1, TRIGGER, "", about=totals, metadata=metadata)
        return [commit_beside(record, {"place": made})], score

    return appended(store, make)


def _found(store: Store, entries: Sequence[Entry], record: Record, judge: str) -> RecordedScore | None:
    """Return the score of a branch by this judge. Lists its checkpoint, if the process died before it had done so."""
    result = record.outcomes.get("")
    for checkpoint in sorted(record.checkpoints.values(), key=lambda one: one["seq"], reverse=True):
        about = decode(checkpoint.get("metadata") or {}) if checkpoint["trigger"] == TRIGGER else {}
        if result and (about.get("judge"), about.get("of")) == (judge, result.digest):
            if not store.places(checkpoint["id"]):
                store.append([last_commit_again(own_entries(entries))])
            return RecordedScore(about["score"], about["reason"], Usage.of(about["usage"]))
    return None
