"""The difference between two checkpoints, which may belong to different branches and runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crewlite.codec import Json, decode, digest
from crewlite.usage import Usage


@dataclass(frozen=True, slots=True)
class Diff:
    """The values and the usage that differ between a first and a second checkpoint, as `first.diff(second)` returns.

    `added` are values of the second alone, `removed` of the first alone, `changed` of both.
    """

    added: dict[str, Any]
    removed: dict[str, Any]
    changed: dict[str, tuple[Any, Any]]
    """Each changed value as `(before, after)`."""
    usage: Usage
    """The usage of the second minus that of the first; a count is negative where the second has less."""


def diff(before: Mapping[str, Json], after: Mapping[str, Json], paid: tuple[Usage, Usage]) -> Diff:
    """Compare encoded values, and the usage of both. A value counts as changed if any part of it differs.

    `1` and `1.0` differ; the order of the keys of a dict makes no difference.
    """
    both = [key for key in before if key in after and digest(before[key]) != digest(after[key])]
    return Diff(
        added={key: decode(after[key]) for key in after if key not in before},
        removed={key: decode(before[key]) for key in before if key not in after},
        changed={key: (decode(before[key]), decode(after[key])) for key in both},
        usage=usage_change(*paid),
    )


def usage_change(before: Usage, after: Usage) -> Usage:
    """Return the usage `after` minus the usage `before`. The cost of the result is None only if both costs are None."""
    counts = {name: n - getattr(before, name) for name, n in after.__dict__.items() if name not in ("cost", "by_agent")}
    roles = before.by_agent.keys() | after.by_agent.keys()
    each = {role: usage_change(before.by_agent.get(role, Usage()), after.by_agent.get(role, Usage())) for role in roles}
    known = (before.cost, after.cost) != (None, None)
    return Usage(**counts, cost=(after.cost or 0.0) - (before.cost or 0.0) if known else None, by_agent=each)
