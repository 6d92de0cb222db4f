"""Select one checkpoint of a branch by its version or by a ref."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeVar

from crewlite.errors import RefError
from crewlite.ids import short
from crewlite.refs import parse
from crewlite.state.reading.checkpoint import Checkpoint, no_checkpoint


class Named(Protocol):
    """The fields of a checkpoint that a ref can match."""

    @property
    def id(self) -> str:
        """The id of the checkpoint."""

    @property
    def address(self) -> str:
        """The address of the step whose event triggered the checkpoint."""

    @property
    def label(self) -> str | None:
        """The label that the user gave the checkpoint; None without one."""


P = TypeVar("P", bound=Named)


def chosen(checkpoints: Sequence[Checkpoint], target: object) -> Checkpoint:
    """Return the one of these checkpoints, ordered first to last, that `target` names.

    `target` is the `version` of a checkpoint, which counts from 1, or a ref. Raises RefError if it names none of them
    or several, ConfigError if it is neither.
    """
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
    """Return the file name of a ref to a checkpoint file, so that relative and absolute paths compare equal.

    Returns any other ref unchanged.
    """
    return os.path.basename(ref) if ref.endswith(".json") else ref


def meant(checkpoints: Sequence[P], at: str | None) -> list[P]:
    """Return the checkpoints that match `at`, the part of a ref after its `@`; the last one if `at` is None.

    `at` is `label:x`, the address of a step (the last checkpoint of that step), or a part of an id.
    """
    if at is None:
        return list(checkpoints[-1:])
    if at.startswith("label:"):
        return [one for one in checkpoints if one.label == at.removeprefix("label:")]
    return [one for one in checkpoints if one.address == at][-1:] or [one for one in checkpoints if at in one.id]


def _only(found: Sequence[Checkpoint], target: str, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    if len(found) != 1:
        named = [f"{one.version} ({one.label or short(one.id)})" for one in checkpoints]
        many = f"matches {len(found)} checkpoints of this branch: give a version, or more of the id"
        raise RefError(target, many if found else "names no checkpoint of this branch", named)
    return found[0]
