"""The checkpoints of a listing, one for each place: a label makes one of its own, and is a name of the place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from crewlite.state.providers import CheckpointInfo
from crewlite.state.reading.checkpoint import Checkpoint

C = TypeVar("C", bound="Checkpoint | CheckpointInfo")


@dataclass(frozen=True, slots=True)
class NamedPlace(Generic[C]):
    """A checkpoint, and the labels of its place."""

    checkpoint: C
    labels: tuple[str, ...]
    """Its own label, and those that its place was given later, in this order."""
    ids: frozenset[str]
    """Its id, and those of the checkpoints that these labels have made."""


def by_place(checkpoints: Iterable[C]) -> list[NamedPlace[C]]:
    """Return the places of some checkpoints, in the order of these.

    A labelled checkpoint goes with the one that it was made of, if that is among them.
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
