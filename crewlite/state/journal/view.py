"""The state as one attempt of a step sees it: what held when the step was asked for, and what has changed since.

What a step inside has changed comes in where its result is handed to the code of this one. That is the same place of
the program in every life, so the code sees the same in every life. Of steps side by side, the later commit counts,
whichever result is taken first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from crewlite.codec import Json
from crewlite.errors import ConfigError, NotCodable
from crewlite.forked import rlock
from crewlite.secrets import Secrets
from crewlite.state.format.kept import Order
from crewlite.state.format.operations import ABSENT, Operation, applied, by_name, difference
from crewlite.state.journal.conflicts import Start, Touched
from crewlite.state.journal.values import Values

Change = tuple[Order, Sequence[Operation]]


@dataclass(eq=False)
class Shared:
    """What all views of a run share."""

    secrets: Callable[[], Secrets]
    used: bool = False
    """Whether anybody has asked for the state, in this life or an earlier one. If not, nothing is looked at."""
    moment: int = 0
    """Counts what has happened to the state, so that nobody looks for changes where there are none."""
    refused: list[NotCodable] = field(default_factory=list)
    """Values that could not be recorded, and nobody was told of."""
    lock: RLock = field(default_factory=rlock)


class View:
    """The state of one attempt of a step. Any thread may use it."""

    __slots__ = (
        "_added",
        "_inside",
        "_opening",
        "_shared",
        "_values",
        "address",
        "ended",
        "handed",
        "start",
        "unshown",
    )

    def __init__(self, shared: Shared, address: str, start: Start, opening: Mapping[str, Json] | None = None) -> None:
        self._shared, self.address, self.start = shared, address, start
        self._opening = start.values if opening is None else opening
        """What it began with, and what handlers of the start have made of that."""
        self._values: Values | None = None
        self._added = 0
        """Items that the code of the step has added."""
        self._inside: _Inside | None = None
        self.handed = set[str]()
        """Steps inside whose results the code was handed."""
        self.unshown = set[str]()
        """Names that the code of the step has changed since a commit was told of them."""
        self.ended = False

    @property
    def values(self) -> Values:
        """The values, for the program."""
        with self._shared.lock:
            if self._values is None:
                self._shared.used = True
                self._values = self._made()
            if self._inside and self._inside.behind:
                self._inside.catch_up(self._values)
            return self._values

    @property
    def pending(self) -> Mapping[str, list[Change]]:
        """What steps inside have changed whose results the code has not been handed."""
        return self._inside.pending if self._inside else {}

    def now(self) -> Mapping[str, Json]:
        """The values, coded."""
        with self._shared.lock:
            if self._values is None and not self._inside:
                return self._opening
            return self._settled(self.values)

    def outlook(self, but: Collection[str] = ()) -> Mapping[str, Json]:
        """The values as they are once the code has been handed all that is committed, `but` for these steps."""
        with self._shared.lock:
            pending = (each for address, each in self.pending.items() if address not in but)
            changes = sorted((change for each in pending for change in each), key=_order)
            return applied(self.now(), [operation for _, operations in changes for operation in operations])

    def start_inside(self, *, newest: bool = False) -> Start:
        """What a step that is asked for now begins with; the `newest`: with what the code has not been handed too."""
        with self._shared.lock:
            delivered = self._inside.delivered if self._inside else 0
            if newest:
                return Start(self.outlook(), delivered, frozenset(self.pending))
            return Start(self.now(), delivered)

    def changes(self) -> list[Operation]:
        """What the step, and the steps inside it, have changed."""
        with self._shared.lock:
            if self._values is None and not self._inside:
                return difference(self.start.values, self._opening)
            return self.values.since(self.start.values, self._shared.refused)

    def commit(self, address: str, changes: Sequence[Change], *, late: bool = False) -> None:
        """A step inside has come to these changes; if they came `late`, handlers have, after its end."""
        changes = [change for change in changes if change[1]]
        if not changes:
            return
        with self._shared.lock:
            self._shared.moment, self._shared.used = self._shared.moment + 1, True
            if self._inside is None:
                self._inside = _Inside()
            if late and address in self.handed:
                self._apply(self._inside, changes)
                return
            self._inside.pending.setdefault(address, []).extend(changes)
            for _, operations in changes if not late else ():
                self._inside.touched.note(address, operations)

    def deliver(self, address: str, *, alone: bool = False) -> None:
        """The code is handed the result of a step inside, and sees now what that has changed.

        `alone`: nothing is under way beside it, so what comes later comes behind it, whenever it was committed.
        """
        with self._shared.lock:
            self.handed.add(address)
            if self._inside is None or not (changes := self._inside.pending.pop(address, None)):
                return
            self._shared.moment += 1
            self._inside.delivered += 1
            self._inside.touched.deliver(address, self._inside.delivered)
            self._apply(self._inside, changes)
            if alone:
                self._settled(self.values)
                self._inside.trails.clear()
                self._inside.placed.clear()

    def deliver_rest(self) -> None:
        """The step ends, and with it all that was begun inside it: hand over what the code has not asked for."""
        with self._shared.lock:
            for address in sorted(self.pending, key=lambda at: self.pending[at][0][0]):
                self.deliver(address)

    def take(self, change: Change) -> None:
        """Something is changed at once, by no step inside."""
        with self._shared.lock:
            self._shared.moment += 1
            if self._inside is None:
                self._inside = _Inside()
            self._apply(self._inside, [change])

    def conflicts(self, operations: Sequence[Operation], start: Start) -> list[str]:
        """The names that a step inside has changed as others beside it have, without seeing that."""
        with self._shared.lock:
            return self._inside.touched.conflicts(operations, start) if self._inside else []

    def _made(self) -> Values:
        return Values(self._opening, self._shared.secrets, self._check, self._next_id, exact=True)

    def _next_id(self) -> str:
        """The same in every life for an item that the code adds at the same place; its changes count once."""
        self._added += 1
        return f"{self.address or 'run'}.{self._added}"

    def _apply(self, inside: _Inside, changes: Sequence[Change]) -> None:
        if self._values is None:
            self._values = self._made()
        before = self._settled(self._values)
        for order, operations in changes:
            for name, own in by_name(operations).items():
                inside.add(self._values, name, before.get(name, ABSENT), (order, own))

    def _settled(self, values: Values) -> Mapping[str, Json]:
        """The values, coded. What the code has written itself comes behind all that was handed over before."""
        now = values.settle(self._shared.refused)
        if written := values.take_written():
            self._shared.moment += 1
            self.unshown |= written
            if self._inside:
                for name in written:
                    self._inside.trails.pop(name, None)
                    self._inside.placed.pop(name, None)
        return now

    def _check(self) -> None:
        if self.ended:
            raise ConfigError(
                f"The state of {self.address or 'the run'} was changed after that had ended, so the change would be "
                f"recorded nowhere; change it before, in a thread of yours too, or ask for RuntimeState.current() anew"
            )


class _Inside:
    """What the steps inside a step have changed."""

    __slots__ = ("behind", "delivered", "pending", "placed", "touched", "trails")

    def __init__(self) -> None:
        self.pending: dict[str, list[Change]] = {}
        self.delivered = 0
        self.trails: dict[str, _Trail] = {}
        self.placed: dict[str, Order] = {}
        """Names that came with these changes, which say where they stand: whatever is handed over first."""
        self.behind: dict[str, None] = {}
        """Names whose values have yet to be worked out."""
        self.touched = Touched()

    def add(self, values: Values, name: str, before: Json, change: Change) -> None:
        """Add a change of one name, whose value was this `before`."""
        trail = self.trails.get(name)
        if trail is None:
            trail = self.trails[name] = _Trail(before)
        trail.add(change)
        self.behind[name] = None
        order = change[0]
        for verb, path, *_ in change[1]:
            if verb == "remove" and len(path) == 1:
                values.replace(name, ABSENT)
            elif name not in values.names:
                values.place(name, lambda other: self.placed.get(other, ()) > order)
                self.placed[name] = order

    def catch_up(self, values: Values) -> None:
        """Work out the values that are behind."""
        behind, self.behind = self.behind, {}
        for name in behind:
            trail = self.trails[name]
            values.replace(name, trail.value(), begun=trail.is_begun)


class _Trail:
    """The changes of one name since the code of the step wrote it last, in the order of their commits."""

    __slots__ = ("_base", "_changes", "_done", "_value", "is_begun")

    def __init__(self, base: Json) -> None:
        self._base = self._value = base
        self._changes: list[Change] = []
        self._done = 0
        """How many of them are in `_value`."""
        self.is_begun = base is ABSENT
        """Whether nobody has set the value: it was begun empty, by what was added to it."""

    def add(self, change: Change) -> None:
        if self.is_begun:
            self.is_begun = all(verb == "append" or len(path) > 1 for verb, path, *_ in change[1])
        at = len(self._changes)
        while at and self._changes[at - 1][0] > change[0]:
            at -= 1
        self._changes.insert(at, change)
        if at < self._done:
            self._value, self._done = self._base, 0

    def value(self) -> Json:
        todo = [operation for _, operations in self._changes[self._done :] for operation in operations]
        if todo:
            name = todo[0][1][0]
            values: dict[str, Any] = {} if self._value is ABSENT else {name: self._value}
            self._value = applied(values, todo).get(name, ABSENT)
            self._done = len(self._changes)
        return self._value


def _order(change: Change) -> Order:
    return change[0]
