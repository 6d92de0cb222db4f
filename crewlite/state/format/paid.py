"""The usage of a run: in total, and inside each of its steps.

The usage of a model call counts for every enclosing step. So the usage inside a step is known even after a compaction
has removed the calls themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import CommitParts
from crewlite.usage import NOTHING_COUNTED, Counted, Usage, UsageRecord, counted


class Paid:
    """The usage of a run and of its steps. It only grows: neither a rewind nor an edit subtracts usage."""

    def __init__(self) -> None:
        self._all = self._own = dict[str, Counted]()
        """By address, "" for the run: the usage of a step and all steps inside it; the part of this branch."""
        self._valid: Paid | None = None

    @property
    def without_abandoned(self) -> Paid:
        """The usage without what rewinds have abandoned: this very object if the branch was never rewound."""
        return self._valid or self

    @property
    def total(self) -> Usage:
        """The usage of the run."""
        return self.so_far().usage

    @property
    def own(self) -> Usage:
        """The usage of this branch since it was forked; the same as `total` if it is not a fork."""
        return self.own_inside("")

    def so_far(self) -> Counted:
        """Return the run's usage at this moment. It becomes a `Usage` only if somebody asks for that."""
        return self._all.get("", NOTHING_COUNTED)

    def inside(self, address: str) -> Usage:
        """Return the usage of a step and all steps inside it, in all attempts; for "" that of the run."""
        return self._all.get(address, NOTHING_COUNTED).usage

    def own_inside(self, address: str) -> Usage:
        """Return the part of `inside` that this branch has used since it was forked."""
        return self._own.get(address, NOTHING_COUNTED).usage

    def fork(self) -> None:
        """Note that a fork begins here: the usage so far was inherited from its base."""
        self._own = {}
        if self._valid:
            self._valid.fork()

    def rewound_to(self, then: Paid) -> Paid:
        """Note a rewind to a commit with the usage `then`, which `without_abandoned` continues. Returns this object."""
        self._valid = then
        return self

    def count(self, commit: CommitParts) -> None:
        """Add all usage in a commit."""
        for step in commit.get("steps", ()):
            if paid := step.get("usage") or ("error" in step and step["error"].get("usage")):
                address = step["address"]
                self._add(paid, [address, *outers(address), ""] if address else [""])
        if usage := commit.get("usage"):
            self._add(usage, [""])
        for address, part in commit.get("usage_inside", {}).items():  # `usage` includes it already
            self._add(part, [address])
        if self._valid:
            self._valid.count(commit)

    def _add(self, usage: UsageRecord, addresses: Iterable[str]) -> None:
        paid = counted(usage)
        for sums in (self._all,) if self._own is self._all else (self._all, self._own):
            for address in addresses:
                known = sums.get(address)
                sums[address] = paid if known is None else known + paid

    def parts(self, left_out: Callable[[str], bool]) -> CommitParts:
        """Return the usage in the form that a commit records: in total, and inside each step.

        Steps for which `left_out` returns True are not listed: the steps that enclose them include their usage.
        """
        total = self.total.to_record()
        named = {at: spent.usage.to_record() for at, spent in self._all.items() if at and not left_out(at)}
        parts: CommitParts = {"usage": total} if total else {}
        return {**parts, "usage_inside": named} if named else parts
