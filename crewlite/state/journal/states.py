"""The state of a run: the views of its running steps, the changes of handlers, and the parts of commits that record it.

A handler is not called again on a resume, so its changes are recorded. If the step of its event is running, they are
part of that step's changes. Otherwise the next commit records them under the address of that step, and they are applied
again wherever that step is answered from the record.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count

from crewlite.encoding.codec import Json
from crewlite.errors import NotCodable, StoreError
from crewlite.state.format.addresses import outer
from crewlite.state.format.commit import CommitData, CommitParts, LateChanges, ValueChanges
from crewlite.state.format.earlier import changed_at
from crewlite.state.format.kept import is_outermost, order_of_late
from crewlite.state.format.operations import ABSENT, ITEMS, Operation, alike, applied, difference, items_in
from crewlite.state.format.record import Record
from crewlite.state.journal.conflicts import Start
from crewlite.state.journal.values import Common, Values
from crewlite.state.journal.view import View
from crewlite.texts.secrets import Secrets
from crewlite.usage import NO_USAGE, Usage


class OutsideValues(Values):
    """The state as seen from outside the running steps: by a handler, or by a program that has opened a state."""

    __slots__ = ("_next_id", "address", "base", "moment")
    key_order_counts = False

    def __init__(self, base: Mapping[str, Json], common: Common, address: str, next_id: Callable[[], str]) -> None:
        super().__init__(base, common)
        self._next_id = next_id
        self.address = address
        """The address of the step to which changes belong; "" for the run itself."""
        self.base = base
        """The values when they were last settled, before any later changes through this object."""
        self.moment = common.moment
        """`Common.moment` at the last update."""

    def check(self) -> None:
        """Raise StoreError if the journal is closed."""
        if self._common.closed:
            raise StoreError(*self._common.closed)

    def next_id(self) -> str:
        """Return an id from the counter that all holders of this address share."""
        return self._next_id()


class States:
    """The state of one run. Any thread may use it."""

    def __init__(self, record: Record, secrets: Secrets) -> None:
        self._record = record
        self.common = Common(secrets, used=bool(record.kept.versions))
        self.paid = NO_USAGE
        """Usage that the program has added and no commit has recorded yet."""
        self._running: dict[str, View] = {}
        """The views of the running steps, by address."""
        self._late: list[tuple[weakref.ref[object], OutsideValues]] = []
        """The views from outside, each with a weak reference to its holder, which may change the values while it
        exists."""
        self._own: list[Operation] = []
        """Changes of the run's own values that the next commit records."""
        self._ended: list[LateChanges] = []
        """Changes to the state of steps that have ended; the next commit records them."""
        self._missing = set[str]()
        """Recorded steps with changes that the code of the run has not requested since the run was resumed.

        Those that it may never request, as it does something else than was recorded, are left out.
        """
        self._unsure = False
        """Whether any recorded value may differ from the one that the code of the run sees."""
        self._final: Mapping[str, Json] | None = None
        """The last values that the code of the run saw, from its end until the next commit."""
        self._announced = set[str]()
        """The messages of errors that were announced already."""
        self._numbers: dict[str, Iterator[int]] = {}
        """Counters for the ids of items added from outside the steps, by the address to which the items belong."""
        self._drops = False
        """Whether changes to the state of the run itself are being dropped: see `dropping`."""
        self._of_run = False
        """Whether the code of a run has begun; False in a state that was opened without a run."""

    @property
    def beginning(self) -> Start:
        """The values with which the code of the run begins."""
        with self.common.lock:
            self.settle()
            return Start(applied(self._record.kept.own, self._own))

    @property
    def waiting(self) -> bool:
        """Whether there are changes or usage to commit."""
        self.settle()
        return bool(self._own or self._ended or self.paid != NO_USAGE)

    def pay(self, usage: Usage) -> None:
        """Add usage, which the next commit records."""
        with self.common.lock:
            self.paid, self.common.used = self.paid + usage, True

    def begin(self, address: str, start: Start, opening: Mapping[str, Json] | None = None) -> View:
        """Create the view of an attempt that begins."""
        view = self._running[address] = View(self.common, address, start, opening)
        if not address:
            self._of_run = True
            record = self._record
            changed = {at for at, outcome in record.outcomes.items() if outcome.changes} | record.late.keys()
            known, sure = record.outcomes, changed_at(record)
            self._missing = {at for at in changed if is_outermost(at) and at in known and known[at].seq > sure}
            self._unsure = bool(record.kept.versions)
        return view

    def diverge(self, address: str) -> None:
        """Note that the code of the run does something else than was recorded, if this is a step at the top level.

        From now on commits record the state that the code sees, without the changes of recorded steps that it has yet
        to request, as it may not request them.
        """
        if is_outermost(address):
            self._missing, self._unsure = set(), bool(self._record.kept.versions)

    def end(self, view: View, *, finished: bool = False) -> None:
        """Close the view of an attempt that has ended. Unless the step is `finished`, its changes are dropped."""
        with self.common.lock:
            view.end()
            if self._running.get(view.address) is view:
                del self._running[view.address]
            if finished and not view.address and self.common.used:
                self._final = view.now()

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Drop the changes that handlers make to the run's own state in this block.

        These handlers were called for the same event before, and the changes of that call are recorded.
        """
        self.settle()
        self._drops = True
        try:
            yield
        finally:
            self._drops = False

    def given(self, address: str, holder: object) -> OutsideValues | View:
        """Return the state of a step for a handler: its own view while it runs, afterwards a view from outside."""
        common = self.common
        with common.lock:
            common.used = True
            if address and (view := self._running.get(address)):
                return view
            self.settle()
            late = OutsideValues(self._values_after(address), common, address, partial(self._next_id, address))
            self._late.append((weakref.ref(holder), late))
            return late

    def follow(self, late: OutsideValues) -> None:
        """Update a view from outside with the changes that steps have made since."""
        with self.common.lock:
            if late.moment == self.common.moment:
                return
            self.settle()
            late.moment, now = self.common.moment, self._values_after(late.address)
            for name in {**late.base, **now}:
                then, found = late.base.get(name, ABSENT), now.get(name, ABSENT)
                if then is not found and (name.startswith(ITEMS) or not alike(then, found)):
                    late.replace(name, now.get(name, ABSENT))
            late.base = late.settle(self.common.refused)

    def settle(self) -> None:
        """Collect the changes made through views from outside, for the next commit or the enclosing running step."""
        if not self._late:
            return
        with self.common.lock:
            for _, late in self._late:
                if operations := late.since(late.base, self.common.refused):
                    late.base = late.settle(self.common.refused)
                    self._hand_over(late.address, operations)
            self._late = [(holder, late) for holder, late in self._late if holder() is not None]

    def shown(self, values: Values) -> ValueChanges:
        """Return the part of a commit that makes the recorded values equal to `values`. Raises NotCodable."""
        with self.common.lock:
            values.settle()
            self.settle()
            seen = _difference(self._recorded(), values.settle())
            self._unsure = True
            return {"seen": seen} if seen else {}

    def add_to(self, commit: CommitData, *, strict: bool) -> list[NotCodable]:
        """Add all changes and usage to a commit. Returns an error for each value that cannot be recorded.

        Errors returned before are left out. With `strict`, the first is raised instead.
        """
        with self.common.lock:
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
            if self.paid is not NO_USAGE:
                paid, self.paid = self.paid.to_record(), NO_USAGE
                if paid:
                    commit["usage"] = paid
            if not self.common.refused:
                return []
            refused, self.common.refused[:] = list(self.common.refused), []
            if strict:
                raise refused[0]
            fresh = {str(error): error for error in refused if str(error) not in self._announced}
            self._announced |= fresh.keys()
            return list(fresh.values())

    def _seen(self, commit: CommitData) -> list[Operation]:
        """Return the operations that turn the values this commit would record into the values that the code sees."""
        view, final = self._running.get(""), self._final
        self._final = None
        if final is not None:
            recorded = self._recorded_with(commit)
            return [*_difference(recorded, final), *_items_anew(recorded, final)]
        if view is None or not self._is_caught_up(view):
            return []
        view.note_changes()
        steps, kept = commit.get("steps", ()), self._record.kept
        again = {step["address"]: step["state"] for step in steps if "state" in step and kept.holds(step["address"])}
        written = [path for changes in again.values() for _, path, *_ in changes]  # the commit does not add these
        names = None if self._unsure else view.unshown
        if written and names is not None:
            names = names | dict.fromkeys(path[0] for path in written)
        if names is not None and not names:
            return []
        view.unshown, self._unsure = {}, False
        seen = view.with_committed(except_for={step["address"] for step in steps} - again.keys())
        recorded = self._recorded_with(commit)
        anew = _items_anew(recorded, seen, None if names is None else written)
        return [*_difference(recorded, seen, names), *anew]

    def _recorded_with(self, commit: CommitData) -> Mapping[str, Json]:
        """Return the values as this commit records them, without the changes of its steps."""
        rest: CommitParts = {"values": commit.get("values", {}), "late": commit.get("late", [])}
        return self._record.kept.after(rest).values

    def _is_caught_up(self, view: View) -> bool:
        """Return whether the run's code has requested all steps of which it is sure that it requests them."""
        if self._missing:
            self._missing -= view.handed.keys()
            self._missing -= view.pending.keys()
        return not self._missing

    def _next_id(self, address: str) -> str:
        """Return an id for an item that a handler adds.

        In a run, a resume gives the same item the same id. A saved state without a run gives no id twice, even after a
        restore, because the id contains the number of the next commit.
        """
        whose = address or ("run" if self._of_run else str(self._record.seq + 1))
        prefix = f"{whose}+"
        if whose not in self._numbers:
            late = (operations for _, operations in self._record.late.get(address, ()))
            added = {str(one[1][-1]) for operations in late for one in operations if one[1][0].startswith(ITEMS)}
            added |= {key for items in items_in(self._record.kept.own).values() for key in items}
            used = (int(key.removeprefix(prefix)) for key in added if key.startswith(prefix))
            self._numbers[whose] = count(max(used, default=0) + 1)
        return f"{prefix}{next(self._numbers[whose])}"

    def _hand_over(self, address: str, operations: list[Operation]) -> None:
        self.common.moment += 1  # so that `follow` takes back what is dropped
        if self._drops and not address:
            return
        seq = self._record.seq + 1
        if not address:
            self._own += operations
            if root := self._running.get(""):
                root.apply_change(((seq,), operations))
            return
        address, around = self._running_around(address)
        if around:
            around.commit(address, [(order_of_late(seq, len(self._ended)), operations)], late=True)
        self._ended.append({"address": address, "ops": operations})

    def _running_around(self, address: str) -> tuple[str, View | None]:
        """Find the nearest running step that encloses a step: return (its child around the step, its view or None)."""
        while True:
            around = outer(address)
            if view := self._running.get(around):
                return address, view
            if not around:
                return address, None
            address = around

    def _values_after(self, address: str) -> Mapping[str, Json]:
        """Return the values that the code around a step sees once the step has ended."""
        view = self._running_around(address)[1] if address else self._running.get("")
        return view.with_committed() if view else self._recorded()

    def _recorded(self) -> Mapping[str, Json]:
        """Return the values as the next commit would record them, without the changes of running steps."""
        outermost = (late["ops"] for late in self._ended if is_outermost(late["address"]))
        return applied(self._record.values, [*self._own, *(one for operations in outermost for one in operations)])


def _difference(
    before: Mapping[str, Json], after: Mapping[str, Json], names: Collection[str] | None = None
) -> list[Operation]:
    """Return the operations that turn `before` into `after`, only for `names` if given, ignoring the order of names."""
    order = [*before, *(name for name in after if name not in before)]
    wanted = order if names is None else [name for name in order if name in names]
    return difference(
        {name: before[name] for name in wanted if name in before},
        {name: after[name] for name in wanted if name in after},
    )


def _items_anew(
    before: Mapping[str, Json], after: Mapping[str, Json], paths: Iterable[Sequence[str]] | None = None
) -> list[Operation]:
    """Return the operations for items that differ under the same id, because a step that added them ran again.

    `paths`: the items to compare, those that one step has written; None for all items.
    """
    if paths is None:
        paths = ((name, key) for name, items in before.items() if name.startswith(ITEMS) for key in items)
    found = list[Operation]()
    for name, *keys in paths:
        if name.startswith(ITEMS) and keys:
            then, now = (_items(values, name).get(keys[0], ABSENT) for values in (before, after))
            if then is not ABSENT and now is not ABSENT and not alike(then, now):
                found.append(["set", [name, keys[0]], now])
    return found


def _items(values: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    items = values.get(name)
    return items if isinstance(items, dict) else {}
