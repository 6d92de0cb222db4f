"""What a run has paid: in all, and inside each of its steps.

Model calls pay. What one of them paid counts for every step around it, so each step knows what its own subtree came to,
also where a compaction has left out the calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from crewlite.state.addresses import outers
from crewlite.state.entry import Facts
from crewlite.usage import Usage


class Paid:
    """The usage of a run and of its steps. It only grows: what was paid stays paid."""

    def __init__(self) -> None:
        self.total = Usage()
        self._inside: dict[str, Usage] = {}

    def inside(self, address: str) -> Usage:
        """What a step and everything in it has paid, in all its attempts; "" is the run."""
        return self._inside.get(address, Usage()) if address else self.total

    def take(self, facts: Facts) -> None:
        """Count what a commit says was paid."""
        for step in facts.get("steps", ()):
            if usage := step.get("usage"):
                paid = Usage(**usage)
                self.total += paid
                for address in (step["address"], *outers(step["address"])):
                    self._count(address, paid)
        if usage := facts.get("usage"):
            self.total += Usage(**usage)
        for address, usage in facts.get("usage_inside", {}).items():  # the total has it already
            self._count(address, Usage(**usage))

    def facts(self, left_out: Callable[[str], bool]) -> Facts:
        """All of it as facts of a commit. Steps that are `left_out` count in the steps around them only."""
        total = self.total.to_record()
        inside = {address: usage.to_record() for address, usage in self._inside.items() if not left_out(address)}
        return ({"usage": total} if total else {}) | ({"usage_inside": inside} if inside else {})

    def _count(self, address: str, usage: Usage) -> None:
        if address:
            self._inside[address] = self._inside.get(address, Usage()) + usage
