"""Which of some checkpoints is meant: by its version, or by a ref."""

from __future__ import annotations

from collections.abc import Sequence

from crewlite.errors import ConfigError, RefError
from crewlite.refs import parse
from crewlite.state.checkpoints.checkpoint import Checkpoint


def chosen(places: Sequence[Checkpoint], target: object) -> Checkpoint:
    """The one of these places, first to last, that a version or a ref names. Raises RefError, ConfigError."""
    if isinstance(target, int) and not isinstance(target, bool):
        found = [place for place in places if place.version == target]
        return _only(found, f"version {target}", places)
    if not isinstance(target, str):
        raise ConfigError(f"{target!r} is no checkpoint; wanted a Checkpoint, the version of one, or a ref")
    if exact := [place for place in places if target in (place.ref, place.id)]:
        return exact[-1]
    ref = parse(target)
    if ref.at is None:
        found = list(places[-1:]) if ref.path == "latest" else [place for place in places if ref.path in place.id]
    elif ref.at.startswith("label:"):
        found = [place for place in places if place.label == ref.at.removeprefix("label:")]
    else:
        found = [p for p in places if p.address == ref.at][-1:] or [p for p in places if ref.at in p.id]
    place = _only(found, target, places)
    for _ in range(ref.back):
        place = _only([p for p in places if p.id == place.parent_id], target, places)
    return place


def _only(found: Sequence[Checkpoint], target: str, places: Sequence[Checkpoint]) -> Checkpoint:
    if len(found) != 1:
        named = [f"{place.version} ({place.label or place.id[-8:]})" for place in places]
        raise RefError(target, f"names {len(found) or 'none'} of the checkpoints of this branch", named)
    return found[0]
