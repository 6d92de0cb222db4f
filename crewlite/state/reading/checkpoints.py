"""The checkpoints of a journal: all of them, the newest, those at one place as a group, and the one that a ref names.

They and the record are read in one replay. A checkpoint is built when it is first asked for.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, takewhile
from typing import Generic, NamedTuple, TypeVar

from crewlite import kinds
from crewlite.encoding.codec import Json, decode
from crewlite.errors import RefError, did_you_mean, meant, nearest
from crewlite.ids import short
from crewlite.refs import Ref, parse
from crewlite.state.format.checkpoints import position_of, recorded_in
from crewlite.state.format.commit import CheckpointRecord, RunStart
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record, replay
from crewlite.state.providers import CheckpointInfo
from crewlite.state.reading.checkpoint import Checkpoint, TasksAndEvents, no_checkpoint
from crewlite.state.reading.missing import spelt_alike
from crewlite.texts.wording import number_of
from crewlite.usage import Counted

C = TypeVar("C", bound="Checkpoint | CheckpointInfo")
_ID = re.compile(r"[0-9a-f-]+")


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

    def all(self, then: Record | None = None, *, abandoned: bool = False) -> list[Checkpoint]:
        """Return all checkpoints, first to last; with `then`, an earlier state of the record, those up to its end.

        `abandoned`: include checkpoints that a rewind had abandoned by then.
        """
        return [self._of(one) for one in self._recorded(then, abandoned=abandoned)]

    def newest(self, then: Record | None = None) -> Checkpoint | None:
        """Return the last checkpoint of those that `all` returns; None if there is none."""
        recorded = self._recorded(then)
        return self._of(recorded[-1]) if recorded else None

    def chosen(self, target: object) -> Checkpoint:
        """Return the checkpoint of a branch that `target` names: its `version`, which counts from 1, or a ref.

        Raises RefError if it names none of them or several, ConfigError if it is neither.
        """
        known = self.all()
        if isinstance(target, int) and not isinstance(target, bool):
            if found := next((one for one in known if one.version == target), None):
                return found
            versions = [f"{one.version} ({one.label or short(one.id)})" for one in known]
            raise RefError(f"version {target}", "names no checkpoint of this branch", versions)
        if not isinstance(target, str):
            raise no_checkpoint(target, "a Checkpoint, the version of one, or a ref")
        file = os.path.basename(target) if target.endswith(".json") else None  # any path to it
        for one in known:
            if target in (one.ref, one.id) or os.path.basename(one.ref) == file:
                return one
        ref = parse(target)
        at = ref.at if ref.at or ref.path == "latest" else ref.path
        return self._of(named_by(ref._replace(at=at), self.record, target))

    def _recorded(self, then: Record | None, *, abandoned: bool = False) -> list[CheckpointRecord]:
        record = then or self.record
        known = (one for one in self.record.checkpoints.values() if one["seq"] <= record.seq)
        return sorted((one for one in known if abandoned or record.is_valid(one["seq"])), key=position_of)

    def find(self, identifier: str) -> Checkpoint | None:
        """Return the checkpoint with this id; None if there is none."""
        found = self.record.checkpoints.get(identifier)
        return found and self._of(found)

    def _of(self, recorded: CheckpointRecord) -> Checkpoint:
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


def at_head(record: Record, checkpoint: CheckpointRecord, ref: str) -> Checkpoint:
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
        abandoned=not record.is_valid(checkpoint["seq"]),
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


def named_by(ref: Ref, record: Record, text: str) -> CheckpointRecord:
    """Return the checkpoint that `@...` names or, with `~n`, its n-th predecessor. Raises RefError; `text`: the ref."""
    checkpoints = sorted(record.checkpoints.values(), key=lambda one: (record.is_valid(one["seq"]), *position_of(one)))
    valid = [one for one in checkpoints if record.is_valid(one["seq"])]  # behind the abandoned ones
    found = _end_of_turn(record, valid, ref.at) or _meant(valid, ref.at) or _meant(checkpoints, ref.at)
    if len(found) != 1 or ref.back >= len(checkpoints):
        if ref.back:
            raise RefError(text, _too_far(ref), _named(valid))
        if not found:
            raise _no_checkpoint(
                record, text, ref.at or "", checkpoints, _turns_with_checkpoints(record, valid, ref.at)
            )
        many = f"matches {len(found)} checkpoints of this branch: give more of the id"
        raise RefError(text, many, _named(checkpoints))
    checkpoint: CheckpointRecord | None = found[0]
    for _ in range(ref.back):
        here = checkpoint["seq"] if checkpoint else None
        while checkpoint and checkpoint["seq"] == here:  # a label has made a second one at the same place
            checkpoint = record.checkpoints.get(record.checkpoints.parent(checkpoint) or "")
    if checkpoint is None:
        raise RefError(text, _too_far(ref), _named(valid))
    return checkpoint


def _meant(checkpoints: Sequence[CheckpointRecord], at: str | None) -> Sequence[CheckpointRecord]:
    """Return the checkpoints that match `at`, the part of a ref after its `@`; the last one if `at` is None.

    `at` is `label:x`, the address of a step (the last checkpoint of that step), or a part of an id.
    """
    if at is None:
        return checkpoints[-1:]
    if at.startswith("label:"):
        return [one for one in checkpoints if one.get("label") == at.removeprefix("label:")]
    of_step = [one for one in checkpoints if one["address"] == at]
    return of_step[-1:] or [one for one in checkpoints if at in one["id"]]


def _named(checkpoints: Iterable[CheckpointRecord]) -> list[str]:
    return [f"{short(one['id'])} ({one['address'] or one['trigger']})" for one in checkpoints]


def _no_checkpoint(
    record: Record, text: str, at: str, checkpoints: Sequence[CheckpointRecord], turns: list[str]
) -> RefError:
    """Build the error for a ref whose part after the @ names no checkpoint: one was dropped, or it is misspelt."""
    problem, named = "names no checkpoint of this branch", turns or _named(checkpoints)
    if at.startswith("label:"):  # a checkpoint with a label is never dropped
        labels = [label for one in checkpoints if (label := one.get("label"))]
        hint = meant(label := at.removeprefix("label:"), labels)
        problem += f": it has no label {label!r}{hint and f'; {hint}'}"
        return RefError(text, problem, [f"@label:{one}" for one in nearest(label, labels)] or named)
    begun = {event.address for event in record.events} | record.outcomes.keys()
    known = begun | {one["address"] for one in checkpoints if one["address"]}
    known |= {task["address"] for task in record.run["definition"].get("tasks", ())}
    gone = record.checkpoints.highest_version - len(record.checkpoints)
    if gone and (at in begun or record.epoch or any(at in one for one in record.checkpoints.dropped)):
        count = f"{number_of(gone, 'checkpoint')} of it {'was' if gone == 1 else 'were'}"
        problem += f" any more: {count} pruned or over max_checkpoints"
    elif at in known:
        problem += f": none was made at {at}" if at in begun else f": {at} has not begun there"
    elif not turns and not _ID.fullmatch(at):
        alike = spelt_alike(at, known)
        problem += f": it has no step {at!r}" + (f"; {did_you_mean(alike[0])}" if alike else "")
    return RefError(text, problem, named)


def _turns_with_checkpoints(record: Record, checkpoints: Sequence[CheckpointRecord], at: str | None) -> list[str]:
    """Return refs to the turns that have checkpoints, newest first; [] unless `at` looks like the address of a turn."""
    if not (at or "").startswith(kinds.TURN.name):
        return []
    known = (f"{kinds.TURN.name}#{number}" for number in count(1))
    return [f"@{turn}" for turn in takewhile(lambda turn: _end_of_turn(record, checkpoints, turn), known)][::-1]


def _end_of_turn(record: Record, checkpoints: Sequence[CheckpointRecord], at: str | None) -> Sequence[CheckpointRecord]:
    """If `at` is the address of a turn, return [the last checkpoint before the next question]; otherwise []."""
    kind, _, number = (at or "").partition("#")
    if kind != kinds.TURN.name or not number.isdigit() or int(number) < 1:
        return []
    asked, following = (record.outcomes.get(f"{kinds.MESSAGE.name}#{int(number) + more}") for more in (0, 1))
    if asked is None and (int(number) > 1 or following is None):
        return []
    begin, end = asked.seq if asked else 0, following.seq if following else math.inf
    return [one for one in checkpoints if begin <= one["seq"] < end][-1:]


def _too_far(ref: Ref) -> str:
    return f"goes back {number_of(ref.back, 'checkpoint')}, which is further than the first one"
