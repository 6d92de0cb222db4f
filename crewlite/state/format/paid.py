"""The usage of a run: in total, and inside each of its steps.

The usage of a model call counts for every enclosing step. So the usage inside a step is known even after a compaction
has removed the calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import CommitParts, StepRecord
from crewlite.usage import NO_USAGE, Usage


class Paid:
    """The usage of a run and of its steps. It only grows: neither a rewind nor an edit subtracts usage."""

    def __init__(self) -> None:
        self.total = NO_USAGE
        self.own = NO_USAGE
        """The usage of this branch alone, without what the branch that it is forked from had paid."""
        self._inside: dict[str, Usage] = {}

    def inside(self, address: str) -> Usage:
        """Return the usage of a step and all steps inside it, in all attempts; for "" that of the run."""
        return self._inside.get(address, NO_USAGE) if address else self.total

    def fork(self) -> None:
        """Note that a fork begins here: the usage so far is inherited from the branch it is forked from."""
        self.own = NO_USAGE

    def take(self, commit: CommitParts) -> None:
        """Add all usage in a commit."""
        self.take_steps(commit.get("steps", ()))
        self.take_totals(commit)

    def take_totals(self, commit: CommitParts) -> None:
        """Add the usage in a commit that is not part of a step's outcome."""
        if usage := commit.get("usage"):
            self._add(Usage(**usage))
        for address, usage in commit.get("usage_inside", {}).items():  # `usage` includes it already
            self._count(address, Usage(**usage))

    def take_steps(self, steps: Iterable[StepRecord]) -> None:
        """Add the usage of these steps."""
        for step in steps:
            if usage := step.get("usage"):
                paid = Usage(**usage)
                self._add(paid)
                for address in (step["address"], *outers(step["address"])):
                    self._count(address, paid)

    def parts(self, left_out: Callable[[str], bool]) -> CommitParts:
        """Return all usage as parts of a commit, without the steps for which `left_out` returns True.

        Their usage is part of the enclosing steps.
        """
        total = self.total.to_record()
        inside = {address: usage.to_record() for address, usage in self._inside.items() if not left_out(address)}
        parts: CommitParts = {"usage": total} if total else {}
        return {**parts, "usage_inside": inside} if inside else parts

    def _add(self, usage: Usage) -> None:
        total = self.total + usage
        self.own = total if self.own is self.total else self.own + usage  # the same until a fork begins
        self.total = total

    def _count(self, address: str, usage: Usage) -> None:
        if address:
            self._inside[address] = self._inside.get(address, NO_USAGE) + usage
