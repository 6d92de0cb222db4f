"""Which of some checkpoints is meant: by its version, or by a ref."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeVar

from crewlite.errors import RefError
from crewlite.refs import parse
from crewlite.state.reading.checkpoint import Checkpoint, no_checkpoint


class Place(Protocol):
    """What refs tell a place by."""

    @property
    def id(self) -> str:
        """Names it."""

    @property
    def address(self) -> str:
        """The step it is about."""

    @property
    def label(self) -> str | None:
        """What people call it."""


P = TypeVar("P", bound=Place)


def chosen(places: Sequence[Checkpoint], target: object) -> Checkpoint:
    """The one of these places, first to last, that a version or a ref names. Raises RefError, ConfigError."""
    if isinstance(target, int) and not isinstance(target, bool):
        found = [place for place in places if place.version == target]
        return _only(found, f"version {target}", places)
    if not isinstance(target, str):
        raise no_checkpoint(target, "a Checkpoint, the version of one, or a ref")
    if exact := [place for place in places if target in (place.ref, place.id) or _file(target) == _file(place.ref)]:
        return exact[-1]
    ref = parse(target)
    by_id = ref.at is None and ref.path != "latest"
    found = [place for place in places if ref.path in place.id] if by_id else meant(places, ref.at)
    place = _only(found, target, places)
    for _ in range(ref.back):
        place = _only([p for p in places if p.id == place.parent_id], target, places)
    return place


def _file(ref: str) -> str:
    """The name of a checkpoint file, which is the same from whatever directory it is looked at; else the ref."""
    return os.path.basename(ref) if ref.endswith(".json") else ref


def meant(places: Sequence[P], at: str | None) -> list[P]:
    """Those of these places that what a ref says behind its @ may mean; the newest, if it says nothing."""
    if at is None:
        return list(places[-1:])
    if at.startswith("label:"):
        return [place for place in places if place.label == at.removeprefix("label:")]
    return [place for place in places if place.address == at][-1:] or [place for place in places if at in place.id]


def _only(found: Sequence[Checkpoint], target: str, places: Sequence[Checkpoint]) -> Checkpoint:
    if len(found) != 1:
        named = [f"{place.version} ({place.label or place.id[-8:]})" for place in places]
        raise RefError(target, f"names {len(found) or 'none'} of the checkpoints of this branch", named)
    return found[0]
