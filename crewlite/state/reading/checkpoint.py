"""A checkpoint: a named, immutable point in the journal of a run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crewlite.codec import Json, JsonObject, decode, encode
from crewlite.errors import ConfigError, JournalCorrupt, NotCodable
from crewlite.state.format.operations import items_in, without_items
from crewlite.state.format.outcome import LightEvent, RecordedEvent
from crewlite.state.reading import written
from crewlite.state.reading.diff import Diff, diff
from crewlite.usage import Usage

TasksAndEvents = tuple[Sequence[str], int, Sequence[RecordedEvent], int]
"""(all tasks of a run, how many were finished at some commit, all events of the run, how many were recorded by then)"""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint. All its fields show the run as it was after commit `seq`."""

    id: str
    run_id: str
    branch: str
    parent_id: str | None
    """The id of the checkpoint before this one; for a snapshot made after a restore, of the restored checkpoint."""
    seq: int
    version: int
    """The number of the checkpoint, from 1, among those of its branch and of the branches that this one is forked from.

    A number is used once: neither pruning nor a restore makes it available again.
    """
    trigger: str
    """The type of the event that triggered it; "snapshot" for one made with `state.snapshot()`."""
    address: str
    """The address of the step that the event is about."""
    created_at: datetime
    label: str | None
    metadata: dict[str, Any]
    inputs: dict[str, Any]
    definition: JsonObject
    usage: Usage
    ref: str
    """A ref that names the checkpoint from any directory; the id of the checkpoint if the run is in memory only."""
    _kept: tuple[Mapping[str, Json], Mapping[str, int]] = field(repr=False)
    _history: TasksAndEvents = field(repr=False, compare=False)
    abandoned: bool = field(default=False, compare=False)
    """Whether the branch was rewound to before this checkpoint, which can still be read, forked and rewound to."""

    @property
    def values(self) -> dict[str, Any]:
        """The named values of the run. Every access decodes new copies: changing them does not change a checkpoint."""
        return values_in(self._kept[0])

    @property
    def collections(self) -> dict[str, dict[str, Any]]:
        """The items of each collection by their ids."""
        return collections_in(self._kept[0])

    @property
    def versions(self) -> dict[str, int]:
        """The number of changes to each value since the run began, deletions and deleted values included.

        Setting a value to what it was already is no change.
        """
        return without_items(self._kept[1])

    @property
    def tasks(self) -> tuple[str, ...]:
        """The addresses of the tasks that were finished at this checkpoint, in the order in which they finished."""
        tasks, count, _, _ = self._history
        return tuple(tasks[:count])

    def events(self) -> tuple[LightEvent, ...]:
        """Return the events of the run up to this checkpoint, in order."""
        _, _, events, count = self._history
        return tuple(LightEvent(*event) for event in events[:count])

    def diff(self, other: Checkpoint) -> Diff:
        """Return the changes from this checkpoint to `other`, of any branch or run: `before.diff(after)`.

        Raises ConfigError if `other` is not a Checkpoint.
        """
        if not isinstance(other, Checkpoint):
            raise no_checkpoint(other, "a Checkpoint")
        return diff(without_items(self._kept[0]), without_items(other._kept[0]), (self.usage, other.usage))

    def to_dict(self) -> dict[str, Any]:
        """Return the checkpoint as a dict that `json.dump` accepts and `Checkpoint.from_dict` reads."""
        said = {name: getattr(self, name) for name in written.PLAIN}
        said |= {"created_at": self.created_at.isoformat(), "usage": self.usage.to_record()}
        said |= {"metadata": encode(self.metadata), "inputs": encode(self.inputs), "definition": self.definition}
        said |= {"values": self._kept[0], "versions": self._kept[1], "tasks": list(self.tasks)}
        said["events"] = [[e.type, e.event_id, e.timestamp, e.address, e.seq] for e in self.events()]
        return copy.deepcopy({**written.HEAD, **said})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Build a checkpoint from the dict that `to_dict` returned, in this program or another. No store is needed.

        Raises ConfigError if `data` is not such a dict, SchemaTooNew if a later crewlite wrote it.
        """
        said = copy.deepcopy(written.checked(data))
        try:
            decode(list(said["values"].values()))
            metadata, inputs = decode(said["metadata"]), decode(said["inputs"])
        except (JournalCorrupt, NotCodable) as damage:
            raise written.misfit(damage.problem if isinstance(damage, JournalCorrupt) else str(damage)) from None
        tasks, heard = said["tasks"], [RecordedEvent(*event) for event in said["events"]]
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
        """Return the values as the codec recorded them."""
        return self._kept[0]


def values_in(values: Mapping[str, Json]) -> dict[str, Any]:
    """Return the named values among encoded values, decoded."""
    return {name: decode(value) for name, value in without_items(values).items()}


def collections_in(values: Mapping[str, Json]) -> dict[str, dict[str, Any]]:
    """Return the collections among encoded values, with their items decoded."""
    found = items_in(values).items()
    return {name: {identifier: decode(item) for identifier, item in items.items()} for name, items in found}


def no_checkpoint(found: object, wanted: str) -> ConfigError:
    """Build the error for a value that was given in place of a checkpoint."""
    if isinstance(found, Mapping):
        return ConfigError("A dict is not a checkpoint; if `to_dict` returned it, use Checkpoint.from_dict(data)")
    return ConfigError(f"{found!r} is not a checkpoint; wanted {wanted}")
