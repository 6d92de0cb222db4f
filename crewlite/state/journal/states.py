"""The state of a run: the views of its running steps, what handlers change, and what commits say of it.

A handler is not called again in another life. So what it changes is recorded: with the step its event belongs to, if
that runs; else with the next commit, under the address of that step, and wherever that is answered it comes in again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from crewlite.codec import Json
from crewlite.errors import NotCodable
from crewlite.secrets import Secrets
from crewlite.state.format.addresses import outer
from crewlite.state.format.commit import Commit, CommitParts, LateChanges, ValueChanges
from crewlite.state.format.kept import is_outermost
from crewlite.state.format.operations import ABSENT, ITEMS, Operation, alike, applied, difference
from crewlite.state.format.record import Record
from crewlite.state.journal.conflicts import Start
from crewlite.state.journal.values import Values
from crewlite.state.journal.view import Shared, View
from crewlite.usage import Usage


@dataclass(eq=False)
class Late:
    """The state as somebody sees it who is no running step: a handler, or whoever has opened a state."""

    address: str
    """The step that its changes belong to; "" for the run itself."""
    values: Values
    base: Mapping[str, Json]
    """The values without what was changed here and is not settled."""
    moment: int


class States:
    """The state of one run. Any thread may use it."""

    def __init__(self, record: Record, secrets: Callable[[], Secrets], check: Callable[[], None]) -> None:
        self._record, self._check = record, check
        self.shared = Shared(secrets, used=bool(record.versions))
        self.paid = Usage()
        """Usage that was added by hand, and no commit has recorded yet."""
        self._running: dict[str, View] = {}
        self._late: list[tuple[weakref.ref[object], Late]] = []
        """Each with who was given it: what they hold may be changed inside for as long as they live."""
        self._own: list[Operation] = []
        """What the next commit says of the values of the run itself."""
        self._ended: list[LateChanges] = []
        """What it says of steps that have ended."""
        self._missing = set[str]()
        """Recorded steps of the run whose changes its code has not come to yet in this life."""
        self._unsure = False
        """The recorded values may be others than the code of the run sees, in any name."""
        self._final: Mapping[str, Json] | None = None
        """What the code of the run saw last, when it has just come to its end."""
        self._told = set[str]()
        self._numbers = count(1)
        """For items that no step adds."""

    @property
    def beginning(self) -> Start:
        """What the code of the run begins with."""
        with self.shared.lock:
            self.settle()
            return Start(applied(self._record.kept.own, self._own))

    @property
    def waiting(self) -> bool:
        """Whether a commit would have something to say."""
        self.settle()
        return bool(self._own or self._ended or self.paid != Usage())

    def pay(self, usage: Usage) -> None:
        """Let usage be recorded with the next commit."""
        with self.shared.lock:
            self.paid, self.shared.used = self.paid + usage, True

    def begin(self, address: str, start: Start, opening: Mapping[str, Json] | None = None) -> View:
        """An attempt of a step begins."""
        view = self._running[address] = View(self.shared, address, start, opening)
        if not address:
            record = self._record
            changed = {at for at, outcome in record.outcomes.items() if outcome.changes} | record.late.keys()
            self._missing = {at for at in changed if is_outermost(at) and at in record.outcomes}
            self._unsure = bool(record.versions)
        return view

    def end(self, view: View, *, finished: bool = False) -> None:
        """The attempt has ended. If the step is not `finished`, what was changed in it counts no more."""
        with self.shared.lock:
            view.ended = True
            if self._running.get(view.address) is view:
                del self._running[view.address]
            if finished and not view.address and self.shared.used:
                self._final = view.now()

    def given(self, address: str, holder: object) -> Late | View:
        """What a handler has of the state of a step: the step's own, if it runs."""
        with self.shared.lock:
            self.shared.used = True
            if address and (view := self._running.get(address)):
                return view
            self.settle()
            base = self._outlook(address)
            values = Values(base, self.shared.secrets, self._check, self._next_id, exact=False)
            late = Late(address, values, base, self.shared.moment)
            self._late.append((weakref.ref(holder), late))
            return late

    def follow(self, late: Late) -> None:
        """Bring up to date what somebody has who is no running step."""
        with self.shared.lock:
            if late.moment == self.shared.moment:
                return
            self.settle()
            late.moment, now = self.shared.moment, self._outlook(late.address)
            for name in {**late.base, **now}:
                then, found = late.base.get(name, ABSENT), now.get(name, ABSENT)
                if then is not found and (name.startswith(ITEMS) or not alike(then, found)):
                    late.values.replace(name, now.get(name, ABSENT))
            late.base = late.values.settle(self.shared.refused)

    def settle(self) -> None:
        """Hand what was changed by those who are no running step to where it belongs."""
        if not self._late:
            return
        with self.shared.lock:
            for _, late in self._late:
                if operations := late.values.since(late.base, self.shared.refused):
                    late.base = late.values.settle(self.shared.refused)
                    self._hand_over(late.address, operations)
            self._late = [(holder, late) for holder, late in self._late if holder() is not None]

    def shown(self, values: Values) -> ValueChanges:
        """What a commit has to say so that the recorded values are these. Raises NotCodable."""
        with self.shared.lock:
            values.settle()
            self.settle()
            seen = _difference(self._recorded(), values.settle())
            self._unsure = True
            return {"seen": seen} if seen else {}

    def add_to(self, commit: Commit, *, strict: bool) -> list[NotCodable]:
        """Add what has changed to a commit. The values that could not be recorded, of which nobody was told.

        The first of them is raised if `strict`.
        """
        with self.shared.lock:
            self.settle()
            changed: ValueChanges = {**commit.pop("values", {})}
            if self._own:
                changed["ops"], self._own = self._own, []
            if self._ended:
                commit["late"], self._ended = self._ended, []
            if changed:
                commit["values"] = changed
            if "seen" not in changed and (seen := self._seen(commit)):
                commit["values"] = {**changed, "seen": seen}
            paid, self.paid = self.paid.to_record(), Usage()
            if paid:
                commit["usage"] = paid
            refused, self.shared.refused[:] = list(self.shared.refused), []
            if refused and strict:
                raise refused[0]
            fresh = {str(error): error for error in refused if str(error) not in self._told}
            self._told |= fresh.keys()
            return list(fresh.values())

    def _seen(self, commit: Commit) -> list[Operation]:
        """What the code of the run sees else than this commit would say."""
        view, final = self._running.get(""), self._final
        self._final = None
        if final is not None:
            return _difference(self._recorded_with(commit), final)
        if view is None or not self._is_caught_up(view):
            return []
        seen = view.outlook(but={step["address"] for step in commit.get("steps", ())})
        names = None if self._unsure else view.unshown
        view.unshown, self._unsure = set(), False
        if names is not None and not names:
            return []
        return _difference(self._recorded_with(commit), seen, names)

    def _recorded_with(self, commit: Commit) -> Mapping[str, Json]:
        """The values as this commit records them, but for what its steps have changed."""
        rest: CommitParts = {"values": commit.get("values", {}), "late": commit.get("late", [])}
        return self._record.kept.after(rest).values

    def _is_caught_up(self, view: View) -> bool:
        """Whether the code of the run has come to all steps that an earlier life recorded."""
        if self._missing:
            self._missing -= view.handed
            self._missing -= view.pending.keys()
        return not self._missing

    def _next_id(self) -> str:
        """For an item that no step adds: no commit comes twice."""
        return f"{self._record.seq + 1}.{next(self._numbers)}"

    def _hand_over(self, address: str, operations: list[Operation]) -> None:
        self.shared.moment += 1
        change = (self._record.seq + 1,), operations
        if not address:
            self._own += operations
            if root := self._running.get(""):
                root.take(change)
            return
        address, around = self._running_around(address)
        self._ended.append({"address": address, "ops": operations})
        if around:
            around.commit(address, [change], late=True)

    def _running_around(self, address: str) -> tuple[str, View | None]:
        """The running step around a step, and the step inside that which this one is part of, or is."""
        while True:
            around = outer(address)
            if view := self._running.get(around):
                return address, view
            if not around:
                return address, None
            address = around

    def _outlook(self, address: str) -> Mapping[str, Json]:
        """What holds around a step that has ended, and what it has changed itself."""
        view = self._running_around(address)[1] if address else self._running.get("")
        return view.outlook() if view else self._recorded()

    def _recorded(self) -> Mapping[str, Json]:
        """The values as the next commit would record them, if it said nothing else."""
        outermost = (late["ops"] for late in self._ended if is_outermost(late["address"]))
        return applied(self._record.values, [*self._own, *(one for operations in outermost for one in operations)])


def _difference(
    before: Mapping[str, Json], after: Mapping[str, Json], names: set[str] | None = None
) -> list[Operation]:
    """What makes the one values of the others, wherever they stand; with `names`, of these alone."""
    order = [*before, *(name for name in after if name not in before)]
    wanted = order if names is None else [name for name in order if name in names]
    return difference(
        {name: before[name] for name in wanted if name in before},
        {name: after[name] for name in wanted if name in after},
    )
