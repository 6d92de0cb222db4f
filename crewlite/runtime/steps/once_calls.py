"""The calls with effect="once" of a run: which of them its attempts have requested, and which share a result.

An attempt that is made again requests its calls again, and a call that was made gives its result to one request. So the
run remembers what its attempts have requested so far. A resume rebuilds this from the record.
"""

from __future__ import annotations

from itertools import chain

from crewlite.state.format.addresses import outers
from crewlite.state.format.record import Record


class OnceCalls:
    """What a run knows of its calls with effect="once", besides the record of each."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        """Addresses of the calls that this kickoff has begun."""
        self.requested: set[str] = set()
        """Addresses of the calls that the current attempts of this kickoff have requested or have an earlier result
        for, or that are inside steps which have their recorded end."""
        self.recipients: dict[str, set[str]] = {}
        """By address of a call: the calls elsewhere that have its result, or are about to get it."""
        self.inside: dict[str, set[str]] = {}
        """The addresses of the calls, by the address of each step around them."""

    def go_on(self, record: Record) -> None:
        """Note the calls that earlier kickoffs have recorded."""
        for at, outcome in record.outcomes.items():
            if outcome.reused:
                self.recipients.setdefault(outcome.reused_at, set()).add(at)
        for at in chain(record.once, self.recipients, *self.recipients.values()):
            self._place(at)

    def request(self, address: str) -> None:
        """Note that the code has requested a call."""
        self.requested.add(address)
        self._place(address)

    def add_recipient(self, made: str, address: str) -> None:
        """Note that the call at an address receives the result of the call `made`, which may be itself."""
        self.requested.add(address)  # now, as the step of a model's call is requested later
        if address != made:
            self.recipients.setdefault(made, set()).add(address)

    def leave(self, prefix: str) -> None:
        """Forget the requests of an attempt that has failed. `prefix` begins the addresses of the steps inside it."""
        self.requested -= {at for at in self.requested if at.startswith(prefix)}

    def _place(self, address: str) -> None:
        for at in outers(address):
            self.inside.setdefault(at, set()).add(address)
