"""The named values of a run after each commit: without the changes that its steps have made, and with them.

A commit records each change once. The changes of a step are part of its outcome, and become invalid with it. The
changes of code between the steps are recorded as the difference to the values that follow from the rest of the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crewlite.encoding.codec import Json
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.operations import ABSENT, Operation, alike, applied

Order = tuple[int, ...]
"""(number of the commit, index in it): the position of changes among those of other steps."""


def order_of_late(seq: int, number: int) -> Order:
    """Return the position of changes to the state of an ended step: commit `seq` applies them before its own steps'.

    `number`: their index among such changes of the commit.
    """
    return seq, -1, number


def late_changes(commit: CommitParts, seq: int) -> Iterator[tuple[str, tuple[Order, Sequence[Operation]]]]:
    """Yield the changes to the states of ended steps that commit `seq` records: (address, (position, operations))."""
    for number, late in enumerate(commit.get("late", ())):
        yield late["address"], (tuple(late.get("order", order_of_late(seq, number))), late["ops"])


@dataclass(slots=True)
class Kept:
    """The values at one commit. `values`, `own` and `versions` are replaced when a value changes, never changed."""

    values: Mapping[str, Json] = field(default_factory=dict)
    """The values as the code of the run sees them, with the changes of its steps."""
    own: Mapping[str, Json] = field(default_factory=dict)
    """The values without the changes of steps: after every resume the code of the run begins with these."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """The number of changes to each value, deleted ones included."""
    steps: dict[str, int] = field(default_factory=dict)
    """The steps whose changes are in `values`, numbered. If one runs again, a later commit records what the code sees.

    The mapping is shared with the values after later commits and grows in place, so that no commit copies it: only
    steps with numbers below `ended` belong to this commit.
    """
    ended: int = 0
    """How many of `steps` belong to this commit."""

    def after(self, commit: CommitParts) -> Kept:
        """Return the values after a commit."""
        changed = commit.get("values", {})
        own, values = self.own, self.values
        operations: list[Operation] = []
        if changed:
            new, gone = changed.get("set", {}), frozenset(changed.get("gone", ()))
            if new or gone:
                own = {name: value for name, value in own.items() if name not in gone} | new
                values = {name: value for name, value in values.items() if name not in gone} | new
            operations += changed.get("ops", ())
            own = applied(own, operations)
        for late in commit.get("late", ()):
            operations += late["ops"] if is_outermost(late["address"]) else ()
        operations += changed.get("seen", ())
        ended = {
            at: step
            for step in commit.get("steps", ())
            if "state" in step and is_outermost(at := step["address"]) and not self.holds(at)
        }
        for step in ended.values():
            operations += step["state"]
        operations += changed.get("seen_after", ())
        now = applied(values, operations)
        versions = dict(self.versions)
        for name in _touched(operations, values, now):
            versions[name] = versions.get(name, 0) + 1
        versions |= changed.get("versions", {})
        return Kept(now, own, versions, self._with(ended) if ended else self.steps, self.ended + len(ended))

    def holds(self, address: str) -> bool:
        """Return whether the changes of a step are in `values`. If it runs again, a commit does not add them again."""
        return self.steps.get(address, self.ended) < self.ended

    def _with(self, ended: Iterable[str]) -> dict[str, int]:
        steps = self.steps
        if len(steps) > self.ended:  # the values after another commit have grown it already
            steps = {address: number for address, number in steps.items() if number < self.ended}
        for address in ended:
            steps[address] = len(steps)
        return steps


def _touched(operations: Iterable[Operation], before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterable[str]:
    """Return the names of the values that operations change, except values that only move in the order of names."""
    found, removed = dict[str, None](), set[str]()
    for operation in operations:
        path = operation[1]
        found[path[0]] = None
        if operation[0] == "remove" and len(path) == 1:
            removed.add(path[0])
    for name in removed:
        if name in after and alike(before.get(name, ABSENT), after[name]):
            del found[name]
    return found


def is_outermost(address: str) -> bool:
    """Return whether a step is at the top level: inside no other step."""
    return bool(address) and "/" not in address
