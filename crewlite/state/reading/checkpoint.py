"""A checkpoint: a named, immutable point in the journal of a run, its difference to another, and its written form."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.encoding.codec import Json, JsonObject, decode, digest, encode
from crewlite.errors import ConfigError, JournalCorrupt, NotCodable, SchemaTooNew
from crewlite.state.format import commit, fields
from crewlite.state.format.operations import items_in, without_items
from crewlite.state.format.outcome import LightEvent
from crewlite.texts.wording import what_is
from crewlite.usage import Usage, UsageRecord

_SCHEMA = 1
_HEAD = {"crewlite": "checkpoint", "schema": _SCHEMA}
_PLAIN = ("id", "run_id", "branch", "parent_id", "seq", "version", "trigger", "address", "label", "ref")
"""The fields that are written as they are: texts, numbers and None."""
_Heard = Annotated[tuple[fields.Text, fields.Text, fields.Text, fields.Text, fields.Number], Strict(strict=False)]


class TasksAndEvents(NamedTuple):
    """The tasks and events of a run, to both of which its record adds, and how many there were at some commit."""

    tasks: Iterable[str]
    finished: int
    events: Iterable[LightEvent]
    recorded: int


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
    _values: Mapping[str, Json] = field(repr=False)
    _versions: Mapping[str, int] = field(repr=False)
    _history: TasksAndEvents = field(repr=False, compare=False)
    abandoned: bool = field(default=False, compare=False)
    """Whether the branch was rewound to before this checkpoint, which can still be read, forked and rewound to."""

    @property
    def values(self) -> dict[str, Any]:
        """The named values of the run. Every access decodes new copies: changing them does not change a checkpoint."""
        return values_in(self._values)

    @property
    def collections(self) -> dict[str, dict[str, Any]]:
        """The items of each collection by their ids."""
        return collections_in(self._values)

    @property
    def versions(self) -> dict[str, int]:
        """The number of changes to each value since the run began, deletions and deleted values included.

        Setting a value to what it was already is no change.
        """
        return without_items(self._versions)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The addresses of the tasks that were finished at this checkpoint, in the order in which they finished."""
        return tuple(islice(self._history.tasks, self._history.finished))  # at once, as a run at work adds tasks

    def events(self) -> tuple[LightEvent, ...]:
        """Return the events of the run up to this checkpoint, in order."""
        return tuple(islice(self._history.events, self._history.recorded))

    def diff(self, other: Checkpoint) -> Diff:
        """Return the changes from this checkpoint to `other`, of any branch or run: `before.diff(after)`.

        A value counts as changed if any part of it differs: `1` and `1.0` do, orders of the keys of a dict do not.
        Raises ConfigError if `other` is not a Checkpoint.
        """
        if not isinstance(other, Checkpoint):
            raise no_checkpoint(other, "a Checkpoint")
        before, after = without_items(self._values), without_items(other._values)
        both = [key for key in before if key in after and digest(before[key]) != digest(after[key])]
        return Diff(
            added={key: decode(after[key]) for key in after if key not in before},
            removed={key: decode(before[key]) for key in before if key not in after},
            changed={key: (decode(before[key]), decode(after[key])) for key in both},
            usage=usage_change(self.usage, other.usage),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the checkpoint as a dict that `json.dump` accepts and `Checkpoint.from_dict` reads."""
        written = {name: getattr(self, name) for name in _PLAIN}
        written |= {"created_at": self.created_at.isoformat(), "usage": self.usage.to_record()}
        written |= {"metadata": encode(self.metadata), "inputs": encode(self.inputs), "definition": self.definition}
        written |= {"values": self._values, "versions": self._versions, "tasks": list(self.tasks)}
        written["events"] = [list(event) for event in self.events()]
        return copy.deepcopy({**_HEAD, **written})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Build a checkpoint from the dict that `to_dict` returned, in this program or another. No store is needed.

        Raises ConfigError if `data` is not such a dict, SchemaTooNew if a later crewlite wrote it.
        """
        written = copy.deepcopy(_checked(data))
        try:
            decode(list(written["values"].values()))
            metadata, inputs = decode(written["metadata"]), decode(written["inputs"])
        except (JournalCorrupt, NotCodable) as damage:
            raise _misfit(damage.problem if isinstance(damage, JournalCorrupt) else str(damage)) from None
        tasks, heard = written["tasks"], [LightEvent(*event) for event in written["events"]]
        return cls(
            **{name: written[name] for name in _PLAIN},
            created_at=datetime.fromisoformat(written["created_at"]),
            metadata=metadata,
            inputs=inputs,
            definition=written["definition"],
            usage=Usage.of(written["usage"]),
            _values=written["values"],
            _versions=written["versions"],
            _history=TasksAndEvents(tasks, len(tasks), heard, len(heard)),
        )

    def coded_values(self) -> Mapping[str, Json]:
        """Return the values as the codec recorded them."""
        return self._values


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


@dataclass(frozen=True, slots=True)
class Diff:
    """The values and the usage that differ between a first and a second checkpoint, as `first.diff(second)` returns.

    `added` are values of the second alone, `removed` of the first alone, `changed` of both.
    """

    added: dict[str, Any]
    removed: dict[str, Any]
    changed: dict[str, tuple[Any, Any]]
    """Each changed value as `(before, after)`."""
    usage: Usage
    """The usage of the second minus that of the first; a count is negative where the second has less."""


def usage_change(before: Usage, after: Usage) -> Usage:
    """Return the usage `after` minus the usage `before`. The cost of the result is None only if both costs are None."""
    counts = {name: n - getattr(before, name) for name, n in after.__dict__.items() if name not in ("cost", "by_agent")}
    roles = before.by_agent.keys() | after.by_agent.keys()
    each = {role: usage_change(before.by_agent.get(role, Usage()), after.by_agent.get(role, Usage())) for role in roles}
    known = (before.cost, after.cost) != (None, None)
    return Usage(**counts, cost=(after.cost or 0.0) - (before.cost or 0.0) if known else None, by_agent=each)


@with_config(ConfigDict(**commit.STRICT, extra="allow"))
class _Written(TypedDict):
    """The keys of `Checkpoint.to_dict()` besides `_HEAD`."""

    id: fields.Hex
    run_id: fields.RunName
    branch: fields.BranchName
    parent_id: fields.Hex | None
    seq: fields.Number
    version: fields.Number
    trigger: fields.Text
    address: fields.Text
    created_at: fields.Time
    label: fields.Text | None
    metadata: fields.Coded
    inputs: fields.Inputs
    definition: dict[fields.Text, Any]
    usage: UsageRecord
    ref: fields.Text
    values: dict[fields.Text, Any]
    versions: dict[fields.Text, fields.Number]
    tasks: list[fields.Text]
    events: list[_Heard]


def _checked(data: object) -> dict[str, Any]:
    """Check `data` and return a copy. Raises ConfigError if Checkpoint.to_dict() did not return it, SchemaTooNew."""
    if not isinstance(data, dict) or data.get("crewlite") != "checkpoint" or type(data.get("schema")) is not int:
        raise _misfit(f'it is {what_is(data)} without "crewlite": "checkpoint" and a schema number')
    if data["schema"] > _SCHEMA:
        raise SchemaTooNew("this checkpoint", data["schema"], _SCHEMA)
    try:
        return {**_reader().validate_python(data)}
    except ValidationError as error:
        raise _misfit(commit.first_problem(error, "the checkpoint")) from None


def _misfit(problem: str) -> ConfigError:
    return ConfigError(f"This is not a checkpoint: {problem}. Pass a dict that Checkpoint.to_dict() returned.")


@cache
def _reader() -> TypeAdapter[_Written]:
    return TypeAdapter(_Written)
