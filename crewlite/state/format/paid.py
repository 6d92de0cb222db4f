"""The usage of a run: in total, and inside each of its steps.

The usage of a model call counts for every enclosing step. So the usage inside a step is known even after a compaction
has removed the calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import CommitParts, StepRecord
from crewlite.usage import NO_USAGE, Counted, Usage, UsageSum, counted


@dataclass(slots=True)
class _Sums:
    total: UsageSum = field(default_factory=UsageSum)
    inside: dict[str, UsageSum] = field(default_factory=dict)
    """By address: the usage of a step and all steps inside it."""

    def of(self, address: str) -> Usage:
        found = self.inside.get(address) if address else self.total
        return found.usage if found else NO_USAGE

    def add_inside(self, addresses: Iterable[str], usage: Counted) -> None:
        for address in addresses:
            if (known := self.inside.get(address)) is None:
                known = self.inside[address] = UsageSum()
            known.add(usage)


class Paid:
    """The usage of a run and of its steps. It only grows: neither a rewind nor an edit subtracts usage."""

    def __init__(self) -> None:
        self._all = self._own = _Sums()
        self._counting: Paid | None = None

    @property
    def counting(self) -> Paid:
        """The usage without what rewinds have abandoned: this very object while they have abandoned nothing."""
        return self._counting or self

    @property
    def total(self) -> Usage:
        """The usage of the run."""
        return self._all.total.usage

    @property
    def own(self) -> Usage:
        """The usage of this branch since it was forked; the same as `total` if it is not a fork."""
        return self._own.total.usage

    @property
    def total_tokens(self) -> int:
        """The tokens of the run."""
        return self._all.total.total_tokens

    def so_far(self) -> UsageSum:
        """Return a copy of the run's usage at this moment. It becomes a `Usage` only if somebody asks for that."""
        return self._all.total.copy()

    def inside(self, address: str) -> Usage:
        """Return the usage of a step and all steps inside it, in all attempts; for "" that of the run."""
        return self._all.of(address)

    def own_inside(self, address: str) -> Usage:
        """Return the part of `inside` that this branch has used since it was forked."""
        return self._own.of(address)

    def fork(self) -> None:
        """Note that a fork begins here: the usage so far was inherited from its base."""
        self._own = _Sums()
        if self._counting:
            self._counting.fork()

    def back_at(self, then: Paid) -> Paid:
        """Note a rewind to a place with the usage `then`, from which `counting` goes on. Returns this object."""
        self._counting = then
        return self

    def take(self, commit: CommitParts) -> None:
        """Add all usage in a commit."""
        self.take_steps(commit.get("steps", ()))
        if "usage" in commit or "usage_inside" in commit:
            self.take_totals(commit)
        if self._counting:
            self._counting.take(commit)

    def take_totals(self, commit: CommitParts) -> None:
        """Add the usage in a commit that is not part of a step's outcome."""
        for sums in self._sums:
            if usage := commit.get("usage"):
                sums.total.add(counted(usage))
            for address, usage in commit.get("usage_inside", {}).items():  # `usage` includes it already
                sums.add_inside((address,), counted(usage))

    def take_steps(self, steps: Iterable[StepRecord]) -> None:
        """Add the usage of these steps."""
        for step in steps:
            if usage := step.get("usage"):
                paid, address = counted(usage), step["address"]
                for sums in self._sums:
                    sums.total.add(paid)
                    if address:
                        sums.add_inside((address, *outers(address)), paid)

    def parts(self, left_out: Callable[[str], bool]) -> CommitParts:
        """Return the usage in the form that a commit records: in total, and inside each step.

        Steps for which `left_out` returns True are not listed: the steps that enclose them include their usage.
        """
        total, inside = self.total.to_record(), self._all.inside
        named = {address: spent.usage.to_record() for address, spent in inside.items() if not left_out(address)}
        parts: CommitParts = {"usage": total} if total else {}
        return {**parts, "usage_inside": named} if named else parts

    @property
    def _sums(self) -> tuple[_Sums, ...]:
        """The sums to add new usage to. Until a fork begins, the branch's own sums are those of the run."""
        return (self._all,) if self._own is self._all else (self._all, self._own)
