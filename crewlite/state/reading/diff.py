"""What is different between two checkpoints, of whatever branches and runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crewlite.codec import Json, decode, digest
from crewlite.usage import Usage


@dataclass(frozen=True, slots=True)
class Diff:
    """From one checkpoint to another: what happened to the values, and what was paid in between."""

    added: dict[str, Any]
    removed: dict[str, Any]
    changed: dict[str, tuple[Any, Any]]
    """Each value before and after."""
    usage: Usage
    """What the other has more; counts are negative where it has less."""


def diff(before: Mapping[str, Json], after: Mapping[str, Json], paid: tuple[Usage, Usage]) -> Diff:
    """Compare coded values, each as a whole: `1` and `1.0` are two, however the keys of a dict are ordered."""
    both = [key for key in before if key in after and digest(before[key]) != digest(after[key])]
    return Diff(
        added={key: decode(after[key]) for key in after if key not in before},
        removed={key: decode(before[key]) for key in before if key not in after},
        changed={key: (decode(before[key]), decode(after[key])) for key in both},
        usage=_less(*paid),
    )


def _less(before: Usage, after: Usage) -> Usage:
    counts = {name: count - getattr(before, name) for name, count in after.__dict__.items() if name != "cost"}
    known = (before.cost, after.cost) != (None, None)
    return Usage(**counts, cost=(after.cost or 0.0) - (before.cost or 0.0) if known else None)
