"""The checkpoints of a journal and its record, read in one replay. A checkpoint is built when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from crewlite.codec import Json, decode
from crewlite.state.format.checkpoints import along, parent_of, recorded_in
from crewlite.state.format.commit import CheckpointRecord, RunStart
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record, replay
from crewlite.state.reading.checkpoint import Checkpoint, TasksAndEvents
from crewlite.usage import UsageSum


class Checkpoints:
    """The checkpoints of a journal, first to last, including those that a rewind abandoned.

    `ref` makes the ref of a checkpoint from its record. `lost` maps the id of each checkpoint to leave out to the id of
    its parent. Raises JournalCorrupt if the checkpoints contradict the journal.
    """

    def __init__(
        self, entries: Sequence[Entry], ref: Callable[[CheckpointRecord], str], lost: Mapping[str, str | None]
    ) -> None:
        self._ref = ref
        self._built: dict[str, Checkpoint] = {}
        self._then: dict[int, tuple[RecordView, Record]] = {}
        self._homes: dict[str, str] = {}
        shown = {one["seq"] for entry in entries for one in recorded_in(entry)}
        record = Record()
        for entry, record in replay(entries):
            if entry.seq in shown:
                self._then[entry.seq] = RecordView.of(record), record
            if checkpoint := entry.commit.get("place"):
                self._homes[checkpoint["id"]] = record.run["branch"]
            base = entry.commit.get("run", {}).get("base")
            if base and base["place"]:
                self._homes.setdefault(base["place"]["id"], base["branch"])
        record.check_checkpoints({entry.seq: entry.sum for entry in entries})
        self.record = record
        """The record after the last entry."""
        self._dropped = {**record.dropped, **lost}
        self._known = {name: one for name, one in record.checkpoints.items() if name not in lost}
        self._tasks = {id(one): list(one.tasks) for _, one in self._then.values()}

    def recorded(self) -> list[CheckpointRecord]:
        """Return the records of all checkpoints, first to last."""
        return sorted(self._known.values(), key=along)

    def all(self) -> list[Checkpoint]:
        """Build all checkpoints, first to last."""
        return [self.of(one) for one in self.recorded()]

    def find(self, identifier: str) -> Checkpoint | None:
        """Return the checkpoint with this id; None if there is none."""
        found = self._known.get(identifier)
        return found and self.of(found)

    def of(self, recorded: CheckpointRecord) -> Checkpoint:
        """Return the checkpoint with this record, the same object each time."""
        name = recorded["id"]
        if name not in self._built:
            then, grown = self._then[recorded["seq"]]
            history = self._tasks[id(grown)], then.tasks, grown.events, then.events
            parent, counts = parent_of(recorded, self._known, self._dropped), self.record.counts(recorded["seq"])
            self._built[name] = _build(recorded, then, history, parent, self._homes[name], self._ref(recorded), counts)
        return self._built[name]


class RecordView(NamedTuple):
    """The state of a record at one commit.

    It stays valid while the record advances: the record replaces its mappings and never changes them, and its lists
    only grow, so `tasks` and `events` are the lengths to cut them to.
    """

    run: RunStart
    paid: UsageSum
    values: Mapping[str, Json]
    versions: Mapping[str, int]
    tasks: int
    events: int

    @classmethod
    def of(cls, record: Record) -> RecordView:
        """Build the view of a record at its last commit."""
        counts = len(record.tasks), len(record.events)
        return cls(record.run, record.paid.so_far(), record.values, record.kept.versions, *counts)


def newest(record: Record, checkpoint: CheckpointRecord, ref: str) -> Checkpoint:
    """Build the checkpoint that the last commit of a record created."""
    now, counts = RecordView.of(record), record.counts(checkpoint["seq"])
    history = list(record.tasks), now.tasks, record.events, now.events
    return _build(checkpoint, now, history, record.parent(checkpoint), record.run["branch"], ref, counts)


def _build(
    checkpoint: CheckpointRecord,
    then: RecordView,
    history: TasksAndEvents,
    parent: str | None,
    branch: str,
    ref: str,
    counts: bool,
) -> Checkpoint:
    return Checkpoint(
        id=checkpoint["id"],
        run_id=then.run["run_id"],
        branch=branch,
        parent_id=parent,
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
        _kept=(then.values, then.versions),
        _history=history,
        abandoned=not counts,
    )
