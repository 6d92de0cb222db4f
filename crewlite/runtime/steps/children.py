"""The child steps of one running step: their addresses, which ones its code requested, and their outcomes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from crewlite import kinds
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.errors import ConfigError, CrewliteError
from crewlite.runtime.steps.beside import Beside
from crewlite.runtime.steps.sayings import Sayings
from crewlite.runtime.steps.siblings import Siblings
from crewlite.state.format.failed import SaidRecord
from crewlite.state.format.numbering import TOLD_APART, Numbering, stem_of
from crewlite.state.format.record import Record
from crewlite.state.journal.view import View

_SHORTEST_REFERENCE = 64  # characters; a shorter text is no longer than the reference to it


class Stop(NamedTuple):
    """The stop of a run by a child step, whose error the code must not swallow: see NOT_TO_SWALLOW."""

    error: CrewliteError | None = None
    """The first such error; None if no child step stops the run."""
    received: CrewliteError | None = None
    """The last such error that the code has received: from then on no further child step begins."""
    exempt: frozenset[str] = frozenset()
    """Addresses of steps that may begin nevertheless: it was decided that they run before the code received such an
    error."""


class Children(Numbering):
    """The child steps of one attempt of a step, and their addresses.

    Most attempts use little of this, so the class holds the defaults.
    """

    ahead: list[str] | None = None
    """Recorded child steps that were not yet requested when `is_next` was first called, the last committed first."""
    stop = Stop()
    """The stop of the run by a child step, if one stops it."""
    before_first: Callable[[], Awaitable[None]] | None = None
    """Awaited once, before the first child step begins."""
    task: asyncio.Task[Any] | None = None
    """The asyncio task of the attempt's own code, which requests steps in order; None if that code is no coroutine."""
    unrequested_calls: dict[str, None] | None = None
    """Calls with effect="once" that an earlier kickoff began in this attempt, for `once_addresses`; None: not looked
    up."""
    recorded_calls: Iterator[str] | None = None
    """Addresses of the calls in the last reply, if the record gave it; None: addresses follow from the order of the
    calls."""
    drifted: tuple[str, ...] = ()
    """Addresses of child steps, and of steps inside them, whose answers are kept though their questions changed."""
    beside: Beside | None = None
    """The code beside the attempt's own, and what it has requested."""
    sayings: Sayings | None = None
    """What the attempt's code and the child steps report; None if neither the step nor an enclosing one listens."""
    side_by_side: Siblings | None = None
    """The steps that were begun and not awaited at once, and the results to hand over."""

    def __init__(self, prefix: str, recorded: Collection[str]) -> None:
        super().__init__(prefix)
        self.unrequested = set(recorded)
        """Addresses of recorded child steps that have not been requested yet."""
        self.asked: dict[str, str | None] = {}
        """Addresses of the requested steps, in order, with the digests of their outcomes.

        "" without an outcome; None if the step was not awaited or spawned yet.
        """
        self.failed: dict[str, BaseException] = {}
        """Addresses of the steps that failed, with their errors; the latest last."""
        self.texts: dict[str, str] = {}
        """Long texts in outcomes of child steps, with the child's address, to which the parent's outcome refers."""
        self.compensators: dict[str, Callable[[Any], Any]] = {}
        """By address of a requested step: the function that undoes its work."""
        self.view: View | None = None
        """The state as this attempt sees it, including the changes of the child steps."""

    def record_child(self, address: str, digest: str, data: Any, drifted: Iterable[str] = ()) -> None:
        """Note the outcome of a child step.

        `drifted`: the steps inside it whose answers are kept though their questions changed.
        """
        self.asked[address] = digest
        if drifted:
            self.drifted += tuple(drifted)
        text = data.get("text") if isinstance(data, dict) else None
        if isinstance(text, str) and len(text) >= _SHORTEST_REFERENCE:
            self.texts.setdefault(text, address)

    def receive_sayings(self, address: str, said: SaidRecord | None) -> None:
        """Receive the sayings of a child step, once the step has its outcome or has failed finally."""
        if self.sayings is not None:
            self.sayings.receive(address, said)

    def heard_before(self, address: str) -> list[str]:
        """Return digests of what this step's model heard and said, up to its last reply before the child `address`.

        Steps that run in parallel with that child are left out.
        """
        before = list(itertools.takewhile(lambda at: at != address, self.asked))
        while before and not kinds.at(before[-1]).asks_model:
            before.pop()
        return [digest for at in before if (digest := self.asked[at])]

    def unobserved(self) -> list[str]:
        """Return the addresses of spawned steps that failed and were not awaited, or that were cancelled."""
        return self.side_by_side.unobserved() if self.side_by_side else []

    @property
    def others_first(self) -> bool:
        """Whether other tasks may have to receive results before the step's own coroutine receives one."""
        return self.side_by_side is not None and self.side_by_side.handover.busy

    def is_next(self, address: str, record: Record) -> bool:
        """Return whether a requested step is recorded, and the code has requested every step recorded before it."""
        if not (own := record.end(address)):
            return False
        if self.ahead is None:
            ends = record.ends
            self.ahead = sorted(self.unrequested & ends.keys(), key=lambda at: ends[at].order, reverse=True)
        while self.ahead:
            if self.ahead[-1] in self.unrequested and (first := record.end(self.ahead[-1])):
                return first.order > own.order
            self.ahead.pop()
        return True

    def address_beside(
        self, step: Step[Any], fingerprint: str, *, recorded: bool, ended: Callable[[str, str], bool]
    ) -> str:
        """Return the address of a step that a coroutine or thread beside the attempt's own code requests.

        Such steps come in any order, so the address is made of the step's `fingerprint`. In a `recorded` run, raises
        ConfigError if two of them have the same fingerprint and differ nevertheless: in the agent, crew or model that
        answers, or in an argument that cannot be recorded. A resume could swap their answers.

        Threads without `bound`, such as those of `asyncio.to_thread`, cannot be told apart. Two of them that execute
        the same call count as different code while the earlier step runs. `ended(address, model)` tells whether that
        step has ended; with a model, whether that model gave its outcome.
        """
        beside, stem = self.beside_here(), stem_of(step.kind.name, step.name)
        asker = beside.who_asks()
        place = f"{stem}#{codec.digest([fingerprint, asker.digest])[:TOLD_APART]}"
        address = self.at(place)
        if recorded and (differing := beside.differing(place, address, asker, step, ended)):
            raise ConfigError(
                f"{self.prefix}{stem} is requested twice side by side with the same question, and what differs "
                f"cannot be recorded ({differing}). A resume could swap the two answers: tell them apart by a "
                f"key, `with keyed(name):`, or by a text or number that the code takes as an argument, "
                f"and use another run_id"
            )
        return address

    def beside_here(self) -> Beside:
        """Return the code beside the attempt's own; create it on first use."""
        beside: Beside = self.beside or vars(self).setdefault("beside", Beside())  # several threads may create one
        return beside

    def siblings(self) -> Siblings:
        """Return the set of steps that run side by side here; create it on first use."""
        if self.side_by_side is None:
            self.side_by_side = Siblings()
        return self.side_by_side
