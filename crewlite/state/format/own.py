"""What counts for a step of a fork: what the branch itself has done, and what its base did in finished steps.

What a base spent on failed attempts, and on steps that the fork runs again, is part of the usage of the run alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from crewlite.state.format.addresses import outers
from crewlite.state.format.outcome import Attempt
from crewlite.state.format.record import Record
from crewlite.usage import NO_USAGE, Usage


def tries_of(record: Record, address: str) -> Sequence[Attempt]:
    """Return the failed attempts that count for a step; those of the base do if the step ended there."""
    return record.attempts.get(address, ())[tries_of_base(record, address) :]


def tries_of_base(record: Record, address: str) -> int:
    """Return how many failed attempts at a step come first and do not count for a fork, because its base made them."""
    tries, ended = record.attempts.get(address, ()), record.outcomes.get(address) or record.failures.get(address)
    before = sum(one.seq <= record.base for one in tries)
    ended_there = ended is not None and ended.seq <= record.base and before == len(tries)
    return 0 if ended_there else before


def calls_in_doubt(record: Record) -> dict[str, str]:
    """Return the calls without an outcome or a failure that counts, each with its effect, by address.

    Of calls that failed before a fork, these are the ones with effect="once", which may have taken effect.
    """
    return {
        at: effect
        for at, effect in record.intents.items()
        if at not in record.outcomes and not tries_of(record, at) and (effect == "once" or at not in record.attempts)
    }


class CountedUsage:
    """The usage of the steps of a record, each with all steps inside it."""

    def __init__(self, record: Record) -> None:
        self._paid, self._of_base = record.paid, dict[str, Usage]()
        self._inherited = {at for at, one in record.outcomes.items() if one.seq <= record.base}
        for at in self._inherited:
            if self._inherited.isdisjoint(around := [*outers(at)]):
                for address in around:
                    self._of_base[address] = self._of_base.get(address, NO_USAGE) + self._paid.inside(at)

    def of(self, address: str) -> Usage:
        """Return the usage of a step in all attempts that count; for "" that of the run."""
        if not address or not self._inherited.isdisjoint((address, *outers(address))):
            return self._paid.inside(address)
        return self._of_base.get(address, NO_USAGE) + self._paid.own_inside(address)
