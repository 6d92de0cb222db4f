"""A checkpoint: a named, immutable point in the journal of a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from crewlite.codec import Json, JsonObject, decode, encode
from crewlite.errors import ConfigError, JournalCorrupt, NotCodable
from crewlite.state.format.commit import CheckpointRecord, RunStart
from crewlite.state.format.entry import Entry
from crewlite.state.format.outcome import LightEvent
from crewlite.state.format.record import Record, replay
from crewlite.state.reading import written
from crewlite.state.reading.diff import Diff, diff
from crewlite.usage import Usage

_History = tuple[Sequence[str], int, Sequence[LightEvent], int]
"""Tasks and events of a run, and how many of them there were at some commit."""


class RecordView(NamedTuple):
    """A record as it was at some commit. What it holds only ever grows, or is replaced."""

    run: RunStart
    usage: Usage
    values: Mapping[str, Json]
    versions: Mapping[str, int]
    tasks: int
    events: int

    @classmethod
    def of(cls, record: Record) -> RecordView:
        """As it is now."""
        counts = len(record.tasks), len(record.events)
        return cls(record.run, record.usage, record.values, record.versions, *counts)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint. Everything it tells is as of its `seq`: what came later does not show."""

    id: str
    run_id: str
    branch: str
    parent_id: str | None
    """The checkpoint before it; of a snapshot after a restore, the one that was restored."""
    seq: int
    version: int
    """Its number among the checkpoints of its line, from 1. Pruned ones keep theirs, and a restore takes none back."""
    trigger: str
    """The type of the event that named it; "snapshot" for one made with `state.snapshot()`."""
    address: str
    """The step that event is about."""
    created_at: datetime
    label: str | None
    metadata: dict[str, Any]
    inputs: dict[str, Any]
    definition: JsonObject
    usage: Usage
    ref: str
    """The text that names it from anywhere; of a run that is kept in memory only, its id."""
    _kept: tuple[Mapping[str, Json], Mapping[str, int]] = field(repr=False)
    _history: _History = field(repr=False, compare=False)

    @property
    def values(self) -> dict[str, Any]:
        """The values beside the run. Each look gives new ones, so changing them changes no checkpoint."""
        return {name: decode(value) for name, value in self._kept[0].items()}

    @property
    def versions(self) -> dict[str, int]:
        """How often each value had really changed, set and deleted ones counted alike, since the run began."""
        return dict(self._kept[1])

    @property
    def tasks(self) -> tuple[str, ...]:
        """Addresses of the tasks finished at this checkpoint, in the order they finished."""
        tasks, count, _, _ = self._history
        return tuple(tasks[:count])

    def events(self) -> tuple[LightEvent, ...]:
        """The history of the run up to this checkpoint, in order."""
        _, _, events, count = self._history
        return tuple(events[:count])

    def diff(self, other: Checkpoint) -> Diff:
        """What is different in `other`, a later checkpoint or one of another branch or run: `before.diff(after)`.

        Raises ConfigError for what is none.
        """
        if not isinstance(other, Checkpoint):
            raise no_checkpoint(other, "a Checkpoint")
        return diff(self._kept[0], other._kept[0], (self.usage, other.usage))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data that `json.dump` takes; `Checkpoint.from_dict` makes the same checkpoint of it."""
        said = {name: getattr(self, name) for name in written.PLAIN}
        said |= {"created_at": self.created_at.isoformat(), "usage": self.usage.to_record()}
        said |= {"metadata": encode(self.metadata), "inputs": encode(self.inputs), "definition": self.definition}
        said |= {"values": self._kept[0], "versions": self._kept[1], "tasks": list(self.tasks)}
        said["events"] = [[e.type, e.event_id, e.timestamp, e.address, e.seq] for e in self.events()]
        return copy.deepcopy({**written.HEAD, **said})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """A checkpoint as `to_dict` gave it, of this program or another. It belongs to no store.

        Raises ConfigError for anything else, SchemaTooNew if a later crewlite wrote it.
        """
        said = copy.deepcopy(written.checked(data))
        try:
            decode(list(said["values"].values()))
            metadata, inputs = decode(said["metadata"]), decode(said["inputs"])
        except (JournalCorrupt, NotCodable) as damage:
            raise written.misfit(damage.problem if isinstance(damage, JournalCorrupt) else str(damage)) from None
        tasks, heard = said["tasks"], [LightEvent(*event) for event in said["events"]]
        return cls(
            **{name: said[name] for name in written.PLAIN},
            created_at=datetime.fromisoformat(said["created_at"]),
            metadata=metadata,
            inputs=inputs,
            definition=said["definition"],
            usage=Usage(**said["usage"]),
            _kept=(said["values"], said["versions"]),
            _history=(tasks, len(tasks), heard, len(heard)),
        )

    def coded_values(self) -> Mapping[str, Json]:
        """The values as they are recorded."""
        return self._kept[0]


def no_checkpoint(found: object, wanted: str) -> ConfigError:
    """The error for what was given in a checkpoint's place."""
    if isinstance(found, Mapping):
        return ConfigError("This dict is no checkpoint; if `to_dict` made it: Checkpoint.from_dict(data)")
    return ConfigError(f"{found!r} is no checkpoint; wanted {wanted}")


def checkpoints(
    entries: Sequence[Entry], ref: Callable[[CheckpointRecord], str], lost: Mapping[str, str | None]
) -> list[Checkpoint]:
    """The checkpoints that a journal names, first to last, but for those that are lost, given with their parents.

    Raises JournalCorrupt.
    """
    record = Record()
    then: dict[int, tuple[RecordView, Record]] = {}
    homes: dict[str, str] = {}
    for entry, record in replay(entries):
        then[entry.seq] = RecordView.of(record), record
        if checkpoint := entry.commit.get("place"):
            homes[checkpoint["id"]] = record.run["branch"]
        base = entry.commit.get("run", {}).get("base")
        if base and base["place"]:
            homes.setdefault(base["place"]["id"], base["branch"])
    record.check_checkpoints({entry.seq: entry.sum for entry in entries})
    record.forget(lost)
    tasks = {id(one): list(one.tasks) for _, one in then.values()}
    named = sorted(record.checkpoints.values(), key=lambda checkpoint: (checkpoint["seq"], checkpoint["id"]))
    made = list[Checkpoint]()
    for checkpoint in named:
        moment, grown = then[checkpoint["seq"]]
        history = tasks[id(grown)], moment.tasks, grown.events, moment.events
        made.append(_made(checkpoint, record, moment, history, homes[checkpoint["id"]], ref(checkpoint)))
    return made


def newest(record: Record, checkpoint: CheckpointRecord, ref: str) -> Checkpoint:
    """The checkpoint at the very end of a record."""
    now = RecordView.of(record)
    history = list(record.tasks), now.tasks, record.events, now.events
    return _made(checkpoint, record, now, history, record.run["branch"], ref)


def _made(
    checkpoint: CheckpointRecord, record: Record, then: RecordView, history: _History, branch: str, ref: str
) -> Checkpoint:
    return Checkpoint(
        id=checkpoint["id"],
        run_id=then.run["run_id"],
        branch=branch,
        parent_id=record.parent(checkpoint),
        seq=checkpoint["seq"],
        version=checkpoint["version"],
        trigger=checkpoint["trigger"],
        address=checkpoint["address"],
        created_at=datetime.fromisoformat(checkpoint["at"]),
        label=checkpoint.get("label"),
        metadata=decode(checkpoint.get("metadata", {})),
        inputs=decode(then.run["inputs"]),
        definition=then.run["definition"],
        usage=then.usage,
        ref=ref,
        _kept=(then.values, then.versions),
        _history=history,
    )
