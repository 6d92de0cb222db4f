"""The values beside a run, as its commits leave them: those of the run itself, and what its steps made of them.

A commit says each change once. What a step changed stands with its outcome, so whatever becomes of that becomes of its
changes; what the code between the steps changed is told as a difference to what follows from the rest of the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crewlite.codec import Json
from crewlite.state.format.commit import CommitParts, StepRecord
from crewlite.state.format.operations import Operation, applied

Order = tuple[int, ...]
"""Where changes stand among those of other steps: that of their commit."""


@dataclass(slots=True)
class Kept:
    """The values at one commit. Mappings in it are replaced when they change, never changed themselves."""

    values: Mapping[str, Json] = field(default_factory=dict)
    """As the code of the run sees them, with what its steps have changed."""
    own: Mapping[str, Json] = field(default_factory=dict)
    """Those that no step has changed: what the code of a run begins with, in every life."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """How often each has changed, those that are gone included."""
    steps: frozenset[str] = frozenset()
    """The steps of the run whose changes are in `values`. Of one that is done again, the run's code says what comes."""

    def after(self, commit: CommitParts) -> Kept:
        """The values after a commit."""
        changed = commit.get("values", {})
        new, gone = changed.get("set", {}), frozenset(changed.get("gone", ()))
        own, values = self.own, self.values
        if new or gone:
            own = {name: value for name, value in own.items() if name not in gone} | new
            values = {name: value for name, value in values.items() if name not in gone} | new
        operations: list[Operation] = list(changed.get("ops", ()))
        own = applied(own, operations)
        for late in commit.get("late", ()):
            operations += late["ops"] if is_outermost(late["address"]) else ()
        operations += changed.get("seen", ())
        ended = {step["address"]: step for step in commit.get("steps", ()) if self._adds(step)}
        for step in ended.values():
            operations += step["state"]
        operations += changed.get("seen_after", ())
        touched = dict.fromkeys(operation[1][0] for operation in operations)
        versions = {name: self.versions.get(name, 0) + 1 for name in touched} | changed.get("versions", {})
        return replace(
            self,
            values=applied(values, operations),
            own=own,
            versions={**self.versions, **versions} if versions else self.versions,
            steps=self.steps | ended.keys() if ended else self.steps,
        )

    def _adds(self, step: StepRecord) -> bool:
        return "state" in step and is_outermost(step["address"]) and step["address"] not in self.steps


def is_outermost(address: str) -> bool:
    """Whether a step is part of no other."""
    return bool(address) and "/" not in address


def changes_values(commit: CommitParts) -> bool:
    """Whether a commit says anything of values."""
    return "values" in commit or "late" in commit or any("state" in step for step in commit.get("steps", ()))
