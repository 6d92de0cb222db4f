"""The checkpoints of a journal: all of them, the newest one, and those at one place as a group.

They and the record are read in one replay. A checkpoint is built when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from crewlite.encoding.codec import Json, decode
from crewlite.state.format.checkpoints import along, recorded_in
from crewlite.state.format.commit import CheckpointRecord, RunStart
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record, replay
from crewlite.state.providers import CheckpointInfo
from crewlite.state.reading.checkpoint import Checkpoint, TasksAndEvents
from crewlite.usage import Counted

C = TypeVar("C", bound="Checkpoint | CheckpointInfo")


class Checkpoints:
    """The checkpoints of a journal, first to last, including those that a rewind abandoned.

    `ref` makes the ref of a checkpoint from its record. `lacks`: checkpoints to leave out, as `Lineage` has
    them. Raises JournalCorrupt if the checkpoints contradict the journal.
    """

    def __init__(
        self, entries: Sequence[Entry], ref: Callable[[CheckpointRecord], str], lacks: Mapping[str, str | None]
    ) -> None:
        self._ref = ref
        self._built: dict[str, Checkpoint] = {}
        self._then: dict[int, RecordView] = {}
        self._homes: dict[str, str] = {}
        shown = {one["seq"] for entry in entries for one in recorded_in(entry)}
        record = Record()
        for entry, record in replay(entries):
            if entry.seq in shown:
                self._then[entry.seq] = RecordView.of(record)
            if checkpoint := entry.commit.get("place"):
                self._homes[checkpoint["id"]] = record.run["branch"]
            base = entry.commit.get("run", {}).get("base")
            if base and base["place"]:
                self._homes.setdefault(base["place"]["id"], base["branch"])
        record.check_checkpoints({entry.seq: entry.sum for entry in entries})
        record.checkpoints.forget(lacks)
        self.record = record

    def recorded(self, then: Record | None = None, *, abandoned: bool = False) -> list[CheckpointRecord]:
        """Return the records of all checkpoints, first to last; with `then`, those up to its last commit.

        `then`: an earlier state of the record. `abandoned`: include checkpoints that a rewind had abandoned by then.
        """
        record = then or self.record
        known = (one for one in self.record.checkpoints.values() if one["seq"] <= record.seq)
        return sorted((one for one in known if abandoned or record.counts(one["seq"])), key=along)

    def find(self, identifier: str) -> Checkpoint | None:
        """Return the checkpoint with this id; None if there is none."""
        found = self.record.checkpoints.get(identifier)
        return found and self.of(found)

    def of(self, recorded: CheckpointRecord) -> Checkpoint:
        """Return the checkpoint with this record, the same object each time."""
        name = recorded["id"]
        if name not in self._built:
            then, home = self._then[recorded["seq"]], self._homes[name]
            self._built[name] = _build(recorded, self.record, then, home, self._ref(recorded))
        return self._built[name]


class RecordView(NamedTuple):
    """The state of a record at one commit.

    It stays valid while the record advances: the record replaces its mappings and never changes them; its tasks and
    events only grow, so `history` holds how many of them there were.
    """

    seq: int
    sum: str
    """The checksum of the commit; "" without a store."""
    run: RunStart
    paid: Counted
    values: Mapping[str, Json]
    versions: Mapping[str, int]
    history: TasksAndEvents

    @classmethod
    def of(cls, record: Record) -> RecordView:
        """Build the view of a record at its last commit."""
        history = TasksAndEvents(record.tasks, len(record.tasks), record.events, len(record.events))
        return cls(*record.head, record.run, record.paid.so_far(), record.values, record.kept.versions, history)


def newest(record: Record, checkpoint: CheckpointRecord, ref: str) -> Checkpoint:
    """Build the checkpoint that the last commit of a record created."""
    return _build(checkpoint, record, RecordView.of(record), record.run["branch"], ref)


def _build(checkpoint: CheckpointRecord, record: Record, then: RecordView, branch: str, ref: str) -> Checkpoint:
    return Checkpoint(
        id=checkpoint["id"],
        run_id=then.run["run_id"],
        branch=branch,
        parent_id=record.checkpoints.parent(checkpoint),
        seq=checkpoint["seq"],
        version=checkpoint["version"],
        trigger=checkpoint["trigger"],
        address=checkpoint["address"],
        created_at=datetime.fromisoformat(checkpoint["at"]),
        label=checkpoint.get("label"),
        metadata=decode(checkpoint.get("metadata", {})),
        inputs=decode(then.run["inputs"]),
        definition=then.run["definition"],
        usage=then.paid.usage,
        ref=ref,
        _values=then.values,
        _versions=then.versions,
        _history=then.history,
        abandoned=not record.counts(checkpoint["seq"]),
    )


@dataclass(frozen=True, slots=True)
class NamedPlace(Generic[C]):
    """A checkpoint with the labels that were given to it."""

    checkpoint: C
    labels: tuple[str, ...]
    """The label that the checkpoint was made with, then those that it was given later."""
    ids: frozenset[str]
    """The ids of the checkpoint and of those that were made to label it."""


def by_place(checkpoints: Iterable[C]) -> list[NamedPlace[C]]:
    """Group checkpoints by place: return a NamedPlace for each, in the given order.

    A checkpoint that was made to label another belongs to the group of that one, if both are given.
    """
    listed = list(checkpoints)
    groups: dict[str, list[C]] = {}
    first: dict[tuple[object, ...], str] = {}
    for one in sorted(listed, key=lambda one: one.id):
        at = (one.run_id, one.branch, one.seq, one.trigger, one.address, str(getattr(one, "metadata", "")))
        home = first.setdefault(at, one.id) if one.label else one.id
        first.setdefault(at, one.id)
        groups.setdefault(home, []).append(one)
    return [
        NamedPlace(one, tuple(each.label for each in group if each.label), frozenset(each.id for each in group))
        for one in listed
        if (group := groups.get(one.id))
    ]
