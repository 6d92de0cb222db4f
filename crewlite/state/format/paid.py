"""The usage of a run: in total, and inside each of its steps.

The usage of a model call counts for every enclosing step. So the usage inside a step is known even after a compaction
has removed the calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import CommitParts, StepRecord
from crewlite.usage import NO_USAGE, Usage, UsageRecord, UsageSum


class Paid:
    """The usage of a run and of its steps. It only grows: neither a rewind nor an edit subtracts usage."""

    def __init__(self) -> None:
        self._total = self._own = UsageSum()
        self._inside: dict[str, UsageSum] = {}
        self._own_inside = self._inside

    @property
    def total(self) -> Usage:
        """The usage of the run."""
        return self._total.usage

    @property
    def own(self) -> Usage:
        """The usage of this branch since it was forked; the same as `total` if it is not a fork."""
        return self._own.usage

    def so_far(self) -> UsageSum:
        """Return a copy of the run's usage at this moment, which need not become a `Usage`."""
        return self._total.copy()

    def inside(self, address: str) -> Usage:
        """Return the usage of a step and all steps inside it, in all attempts; for "" that of the run."""
        found = self._inside.get(address) if address else self._total
        return found.usage if found else NO_USAGE

    def own_inside(self, address: str) -> Usage:
        """Return the part of the usage of a step and all steps inside it that this branch has since it was forked."""
        return found.usage if (found := self._own_inside.get(address)) else NO_USAGE

    def fork(self) -> None:
        """Note that a fork begins here: the usage so far was inherited from its base."""
        self._own, self._own_inside = UsageSum(), {}

    def take(self, commit: CommitParts) -> None:
        """Add all usage in a commit."""
        self.take_steps(commit.get("steps", ()))
        if "usage" in commit or "usage_inside" in commit:
            self.take_totals(commit)

    def take_totals(self, commit: CommitParts) -> None:
        """Add the usage in a commit that is not part of a step's outcome."""
        if usage := commit.get("usage"):
            self._add(usage)
        for address, usage in commit.get("usage_inside", {}).items():  # `usage` includes it already
            self._count(address, usage)

    def take_steps(self, steps: Iterable[StepRecord]) -> None:
        """Add the usage of these steps."""
        for step in steps:
            if usage := step.get("usage"):
                self._add(usage)
                for address in (step["address"], *outers(step["address"])):
                    self._count(address, usage)

    def parts(self, left_out: Callable[[str], bool]) -> CommitParts:
        """Return the usage in the form that a commit records: in total, and inside each step.

        Steps for which `left_out` returns True are not listed: the steps that enclose them include their usage.
        """
        total = self.total.to_record()
        inside = {address: spent.usage.to_record() for address, spent in self._inside.items() if not left_out(address)}
        parts: CommitParts = {"usage": total} if total else {}
        return {**parts, "usage_inside": inside} if inside else parts

    def _add(self, usage: UsageRecord) -> None:
        self._total.add(usage)
        if self._own is not self._total:  # the same until a fork begins
            self._own.add(usage)

    def _count(self, address: str, usage: UsageRecord) -> None:
        if address:
            _add_at(self._inside, address, usage)
            if self._own_inside is not self._inside:
                _add_at(self._own_inside, address, usage)


def _add_at(sums: dict[str, UsageSum], address: str, usage: UsageRecord) -> None:
    if (inside := sums.get(address)) is None:
        inside = sums[address] = UsageSum()
    inside.add(usage)
