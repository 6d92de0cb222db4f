"""The checkpoint subscriber: decides which events create a checkpoint.

Unlike all other subscribers it receives an event before the commit. The checkpoint is then part of the commit that
records the event, so a checkpoint is never missing and never shows a different state than that commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from crewlite.encoding.codec import JsonObject
from crewlite.events.base import BaseEvent, EventNote, type_of
from crewlite.ids import new_id
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.checkpoints import SNAPSHOT
from crewlite.state.format.commit import CheckpointRecord, CommitParts
from crewlite.state.format.record import Record
from crewlite.texts.wording import cut

Setting = CheckpointConfig | bool | None
SHOWN = ("source_name", "output", "response")
"""The fields of an event that its checkpoint shows."""
_PREVIEW = 160  # characters of an output that a checkpoint shows; the journal has the complete output


@dataclass(frozen=True, slots=True)
class CheckpointSubscriber:
    """Knows which events create a checkpoint, by `on_events` of the innermost definition that has a setting."""

    default_events: frozenset[str]
    """The events for which `on_events=True` stands: it depends on the kind of the run's root definition."""
    max_checkpoints: int | None = None
    """The limit of the root definition, which applies to inner definitions without a limit of their own."""
    asleep: bool = False
    """Whether the run has its result already, so that no event creates a checkpoint."""

    def rule(self, setting: Setting) -> CheckpointRule | None:
        """Return what a setting says for the steps of its definition; None if no event creates a checkpoint."""
        if self.asleep or not setting:
            return None
        own = setting if isinstance(setting, CheckpointConfig) else None
        events = self.default_events if own is None or own.on_events is True else frozenset(own.on_events)
        return CheckpointRule(events, "*" in events, (own.max_checkpoints if own else None) or self.max_checkpoints)


class CheckpointRule(NamedTuple):
    """Which events create a checkpoint in a step, and how many checkpoints are kept."""

    types: frozenset[str]
    every: bool
    """Whether all other events do too, except fleeting ones: signals and the chunks of streams."""
    max_checkpoints: int | None

    def covers(self, event: type[BaseEvent]) -> bool:
        """Return whether an event of this class creates a checkpoint."""
        return type_of(event) in self.types or (self.every and not event.fleeting)

    def parts(
        self,
        event: EventNote,
        fields: Mapping[str, Any],
        record: Record,
        seq: int,
        bases: frozenset[str] = frozenset(),
    ) -> CommitParts:
        """Build the commit parts that create a checkpoint for `event` at `seq` and drop the oldest beyond the limit.

        `fields`: the fields of the event, with the name of the step that emits it. `bases` are the ids of checkpoints
        that forks start from, which are kept.
        """
        checkpoint = new_checkpoint(record, seq, event.type, event.address, about=_about(event, fields, record))
        parts: CommitParts = {"place": checkpoint}
        if limit := self.max_checkpoints:
            own = record.checkpoints.droppable(bases)
            if beyond := own[: max(0, len(own) + 1 - limit)]:
                parts |= {"drops": [(one["id"], one["parent"]) for one in beyond], "keep": limit}
        return parts


def new_checkpoint(
    record: Record,
    seq: int,
    trigger: str,
    address: str,
    *,
    about: JsonObject,
    total: str | None = None,
    label: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> CheckpointRecord:
    """Build the record of a checkpoint at commit `seq`.

    Its parent is the newest checkpoint at or before that commit; for a snapshot after a restore, the restored one.
    `total`: the checksum of that commit, if a later commit records the checkpoint.
    """
    parent = record.checkpoints.newest if seq > record.seq else record.checkpoints.newest_up_to(seq)
    restored = record.restored if trigger == SNAPSHOT else None
    undated: Any = {  # the journal that commits it adds the time
        "id": new_id(behind=parent["id"] if parent else None),
        "seq": seq,
        "version": record.checkpoints.highest_version + 1,
        "parent": restored or (parent["id"] if parent else None),
        "trigger": trigger,
        "address": address,
        "about": about,
    }
    undated |= {name: value for name, value in (("sum", total), ("label", label), ("metadata", metadata)) if value}
    return cast(CheckpointRecord, undated)


def _about(event: EventNote, fields: Mapping[str, Any], record: Record) -> JsonObject:
    output = fields.get("output") or fields.get("response")
    finished = len(record.tasks) + (event.type == "task_completed" and event.address not in record.tasks)
    about: JsonObject = {"finished_tasks": finished, "tokens": record.paid.so_far().total_tokens}
    if name := fields.get("source_name"):
        about["name"] = name
    if output is not None:
        about["output"] = cut(str(output), _PREVIEW)
    return about
