"""The checkpoint subscriber: decides which events name a checkpoint.

It is the one subscriber that hears a fact before it is committed, and it only decides: the checkpoint it names is part
of the very commit that records the fact, so no checkpoint can ever be missing or show another moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from crewlite.codec import JsonObject
from crewlite.events.base import BaseEvent
from crewlite.ids import new_id
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import CheckpointRecord, CommitParts
from crewlite.state.format.record import SNAPSHOT, Record

Setting = CheckpointConfig | bool | None
_PREVIEW = 160  # characters of an output that a checkpoint shows; the whole is in the journal


@dataclass(frozen=True, slots=True)
class CheckpointSubscriber:
    """Filters events by the `on_events` of the first definition, from the inside out, that says something."""

    natural: frozenset[str]
    """What `on_events=True` means for this run's root."""
    max_checkpoints: int | None = None
    """The root's, for inner definitions that do not say."""
    asleep: bool = False
    """The run has its result already; nothing new will be named."""

    def wants(self, kind: str, outward: tuple[Setting, ...], *, fleeting: bool = False) -> CheckpointConfig | bool:
        """The setting under which an event of this type names a checkpoint, else False. "*" is no fleeting one."""
        for setting in () if self.asleep else outward:
            if setting is None:
                continue
            if isinstance(setting, bool):
                return setting and kind in self.natural
            events = self.natural if setting.on_events is True else setting.on_events
            return setting if kind in events or ("*" in events and not fleeting) else False
        return False

    def checkpoint_parts(
        self,
        event: BaseEvent,
        setting: CheckpointConfig | bool,
        record: Record,
        seq: int,
        bases: frozenset[str] = frozenset(),
    ) -> CommitParts:
        """The commit parts that name a checkpoint for `event` at `seq`, and drop what is beyond `max_checkpoints`.

        `bases` are checkpoints that forks stand on, which are kept.
        """
        checkpoint = new_checkpoint(record, seq, event.type, event.address or "", about=_about(event, record))
        parts: CommitParts = {"place": checkpoint}
        limit = setting.max_checkpoints if isinstance(setting, CheckpointConfig) else None
        if limit := limit or self.max_checkpoints:
            own = [
                one
                for one in record.checkpoints.values()
                if not one.get("label") and one["id"] not in record.inherited and one["id"] not in bases
            ]
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
    """A checkpoint at `seq`; its parent is the newest one at or before it, or what a snapshot goes back to.

    `total` is the sum of that entry, for a checkpoint named after it was sealed.
    """
    parent = record.newest_checkpoint
    if seq <= record.seq:
        before = (p for p in record.checkpoints.values() if p["seq"] <= seq and record.counts(p["seq"]))
        parent = max(before, key=lambda p: (p["seq"], p["id"]), default=None)
    restored = record.restored if trigger == SNAPSHOT else None
    undated: Any = {  # the commit that holds it says when
        "id": new_id(),
        "seq": seq,
        "version": record.named + 1,
        "parent": restored or (parent["id"] if parent else None),
        "trigger": trigger,
        "address": address,
        "about": about,
    }
    if total:
        undated["sum"] = total
    if label:
        undated["label"] = label
    if metadata:
        undated["metadata"] = metadata
    return cast(CheckpointRecord, undated)


def _about(event: BaseEvent, record: Record) -> JsonObject:
    said = vars(event)
    output = said.get("output") or said.get("response")
    finished = len(record.tasks) + (event.type == "task_completed" and event.address not in record.tasks)
    about: JsonObject = {"finished_tasks": finished, "tokens": record.usage.total_tokens}
    if event.source_name:
        about["name"] = event.source_name
    if output is not None:
        text = str(output)
        about["output"] = text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1]}…"
    return about
