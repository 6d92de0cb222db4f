"""Which of some checkpoints is meant: by its version, or by a ref."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeVar

from crewlite.errors import RefError
from crewlite.refs import parse
from crewlite.state.reading.checkpoint import Checkpoint, no_checkpoint


class Named(Protocol):
    """What refs tell a checkpoint by."""

    @property
    def id(self) -> str:
        """The id of the checkpoint."""

    @property
    def address(self) -> str:
        """The step that its event is about."""

    @property
    def label(self) -> str | None:
        """The label that a person gave it."""


P = TypeVar("P", bound=Named)


def chosen(checkpoints: Sequence[Checkpoint], target: object) -> Checkpoint:
    """The one of these checkpoints, first to last, that a version or a ref names. Raises RefError, ConfigError."""
    if isinstance(target, int) and not isinstance(target, bool):
        found = [one for one in checkpoints if one.version == target]
        return _only(found, f"version {target}", checkpoints)
    if not isinstance(target, str):
        raise no_checkpoint(target, "a Checkpoint, the version of one, or a ref")
    if exact := [one for one in checkpoints if target in (one.ref, one.id) or _file(target) == _file(one.ref)]:
        return exact[-1]
    ref = parse(target)
    by_id = ref.at is None and ref.path != "latest"
    found = [one for one in checkpoints if ref.path in one.id] if by_id else meant(checkpoints, ref.at)
    checkpoint = _only(found, target, checkpoints)
    for _ in range(ref.back):
        checkpoint = _only([p for p in checkpoints if p.id == checkpoint.parent_id], target, checkpoints)
    return checkpoint


def _file(ref: str) -> str:
    """The name of a checkpoint file, which is the same from whatever directory it is looked at; else the ref."""
    return os.path.basename(ref) if ref.endswith(".json") else ref


def meant(checkpoints: Sequence[P], at: str | None) -> list[P]:
    """Those of these checkpoints that what a ref says behind its @ may mean; the newest, if it says nothing."""
    if at is None:
        return list(checkpoints[-1:])
    if at.startswith("label:"):
        return [one for one in checkpoints if one.label == at.removeprefix("label:")]
    return [one for one in checkpoints if one.address == at][-1:] or [one for one in checkpoints if at in one.id]


def _only(found: Sequence[Checkpoint], target: str, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    if len(found) != 1:
        named = [f"{one.version} ({one.label or one.id[-8:]})" for one in checkpoints]
        raise RefError(target, f"names {len(found) or 'none'} of the checkpoints of this branch", named)
    return found[0]
