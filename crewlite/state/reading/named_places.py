"""The checkpoints of a listing, grouped by place: to label a checkpoint makes another checkpoint at the same place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from crewlite.state.providers import CheckpointInfo
from crewlite.state.reading.checkpoint import Checkpoint

C = TypeVar("C", bound="Checkpoint | CheckpointInfo")


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
    return [_named(one, groups[one.id]) for one in listed if one.id in groups]


def _named(checkpoint: C, group: Sequence[C]) -> NamedPlace[C]:
    labels = tuple(one.label for one in group if one.label)
    return NamedPlace(checkpoint, labels, frozenset(one.id for one in group))
