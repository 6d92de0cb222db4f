"""What a run has paid: in all, and inside each of its steps.

Model calls pay. What one of them paid counts for every step around it, so each step knows what its own subtree came to,
also where a compaction has left out the calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import CommitParts, StepRecord
from crewlite.usage import Usage


class Paid:
    """The usage of a run and of its steps. It only grows: what was paid stays paid."""

    def __init__(self) -> None:
        self.total = Usage()
        self._inside: dict[str, Usage] = {}

    def inside(self, address: str) -> Usage:
        """What a step and everything in it has paid, in all its attempts; "" is the run."""
        return self._inside.get(address, Usage()) if address else self.total

    def take(self, commit: CommitParts) -> None:
        """Count all that a commit says was paid."""
        self.take_steps(commit.get("steps", ()))
        self.take_totals(commit)

    def take_totals(self, commit: CommitParts) -> None:
        """Count what a commit says of work that it does not show."""
        if usage := commit.get("usage"):
            self.total += Usage(**usage)
        for address, usage in commit.get("usage_inside", {}).items():  # the total has it already
            self._count(address, Usage(**usage))

    def take_steps(self, steps: Iterable[StepRecord]) -> None:
        """Count what these steps paid."""
        for step in steps:
            if usage := step.get("usage"):
                paid = Usage(**usage)
                self.total += paid
                for address in (step["address"], *outers(step["address"])):
                    self._count(address, paid)

    def parts(self, left_out: Callable[[str], bool]) -> CommitParts:
        """All of it as parts of a commit. Steps that are `left_out` count in the steps around them only."""
        total = self.total.to_record()
        inside = {address: usage.to_record() for address, usage in self._inside.items() if not left_out(address)}
        parts: CommitParts = {"usage": total} if total else {}
        return {**parts, "usage_inside": inside} if inside else parts

    def _count(self, address: str, usage: Usage) -> None:
        if address:
            self._inside[address] = self._inside.get(address, Usage()) + usage
