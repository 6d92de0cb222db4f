"""The state as one attempt of a step sees it: the state when the step was requested, with the changes since.

The changes of a child step become visible when its result is handed to the code of this step. That is the same point
of the program after every resume, so the code always sees the same state. Of concurrent changes to the same value, the
one with the later commit wins, whichever result is handed over first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from crewlite.encoding.codec import Json
from crewlite.errors import ConfigError
from crewlite.state.format.kept import Order
from crewlite.state.format.operations import ABSENT, Operation, applied, by_name, difference
from crewlite.state.journal.conflicts import CLASH, Start, Touched, merged_at
from crewlite.state.journal.values import Common, Values

Change = tuple[Order, Sequence[Operation]]
_NONE: Mapping[str, Sequence[Change]] = {}


class Mirror(Protocol):
    """An object of the program that shows the values of a view and can be changed, such as a pydantic state."""

    def write(self, values: Values) -> None:
        """Write the changes of this object to the values."""


class View:
    """The state of one attempt of a step. Any thread may use it."""

    __slots__ = (
        "_common",
        "_inside",
        "_opening",
        "_values",
        "address",
        "ended",
        "handed",
        "mirror",
        "start",
        "unshown",
    )

    def __init__(self, common: Common, address: str, start: Start, opening: Mapping[str, Json] | None = None) -> None:
        self._common, self.address, self.start = common, address, start
        self._opening = start.values if opening is None else opening
        """The values when the attempt began, with the changes of handlers of the event that announced the start."""
        self._values: _StepValues | None = None
        self._inside: _Inside | None = None
        self.handed: dict[str, None] = {}  # there is one for each step, and an empty set takes three times as much
        """The addresses of child steps whose results were handed to the code."""
        self.unshown: dict[str, None] = {}
        """The names that a commit has to record: the code of the step has changed them, or asked for a recorded step
        that did."""
        self.ended = False
        self.mirror: Mirror | None = None
        """An object that shows these values; its changes are written to them before they are collected."""

    @property
    def values(self) -> Values:
        """The current values, for use by the program."""
        with self._common.lock:
            return self._current()

    @property
    def pending(self) -> Mapping[str, list[Change]]:
        """By address: the changes of child steps whose results have not been handed to the code."""
        return self._inside.pending if self._inside else {}

    def now(self) -> Mapping[str, Json]:
        """Return the current values, encoded."""
        with self._common.lock:
            if self._values is None and not self._inside:
                return self._opening
            return self._settled(self._current())

    def with_committed(
        self, except_for: Collection[str] = (), more: Mapping[str, Sequence[Change]] = _NONE
    ) -> Mapping[str, Json]:
        """Return the values with `more` and all committed changes of child steps, `except_for` those of some steps."""
        with self._common.lock:
            now, inside = self.now(), self._inside or _Inside()
            pending = ((at, each) for at, each in {**more, **self.pending}.items() if at not in except_for)
            changes = sorted(((change, at) for at, each in pending for change in each), key=lambda one: one[0][0])
            return inside.with_changes(now, changes) if changes else now

    def start_inside(self) -> Start:
        """Return the state with which a step that is requested now starts."""
        with self._common.lock:
            if self._values is None and self._inside is None:
                return Start(self._opening)
            return Start(self._settled(self._current()), self._inside.delivered if self._inside else 0)

    def note_changes(self) -> None:
        """Add the names that the code has changed to `unshown`."""
        if self._values is not None and (self._values.is_touched or self.mirror):
            self.now()

    def note_request(self, address: str, start: Start) -> None:
        """Note that a child step is requested. It begins with the state `start`.

        The child's changes are applied after those in `start`. Where a step in `start` has run again since, the child's
        recorded changes may be the older ones.
        """
        if self._inside:
            with self._common.lock:
                self._inside.seen[address] = start.delivered

    def newest_inside(self, recorded: Mapping[str, Sequence[Change]] = _NONE) -> Start:
        """Return the state including the changes of child steps whose results have not been handed over.

        `recorded`: the changes of recorded child steps, which the code may not have requested since a resume.
        """
        with self._common.lock:
            delivered = self._inside.delivered if self._inside else 0
            unseen = {at: changes for at, changes in recorded.items() if at not in self.handed}
            return Start(self.with_committed(more=unseen), delivered, frozenset({*self.pending, *unseen}))

    def changes(self) -> list[Operation]:
        """Return the changes of this step and of the steps inside it."""
        with self._common.lock:
            if self._values is None and not self._inside:
                return difference(self.start.values, self._opening)
            values = self._current()
            if self.mirror:
                self.mirror.write(values)
            return values.since(self.start.values, self._common.refused)

    def commit(self, address: str, changes: Sequence[Change], *, late: bool = False, recorded: bool = False) -> None:
        """Add the committed changes of a child step. `late`: handlers made them after the step had ended.

        `recorded`: an earlier kickoff has committed them. The commits since may not show them, so the next one does.
        """
        changes = [change for change in changes if change[1]]
        if not changes:
            return
        with self._common.lock:
            if recorded:
                self.unshown |= dict.fromkeys(path[0] for _, operations in changes for _, path, *_ in operations)
            self._common.moment, self._common.used = self._common.moment + 1, True
            if self._inside is None:
                self._inside = _Inside()
            if late and address in self.handed:
                self._apply(self._inside, changes)
                return
            self._inside.pending.setdefault(address, []).extend(changes)
            for _, operations in changes if not late else ():
                self._inside.touched.note(address, operations)

    def deliver(self, address: str) -> None:
        """Apply the changes of a child step, because its result is handed to the code now."""
        with self._common.lock:
            self.handed[address] = None
            if self._inside is None or not (changes := self._inside.pending.pop(address, None)):
                return
            self._common.moment += 1
            self._inside.delivered += 1
            self._inside.touched.deliver(address, self._inside.delivered)
            self._apply(self._inside, changes, after=self._inside.seen.pop(address, 0))

    def deliver_rest(self) -> None:
        """Apply the changes of all child steps whose results the code has not awaited, because this step ends now."""
        if self._inside:
            with self._common.lock:
                for address in sorted(self.pending, key=lambda at: self.pending[at][0][0]):
                    self.deliver(address)

    def apply_change(self, change: Change) -> None:
        """Apply at once a change that no child step has made, such as one that a handler made."""
        with self._common.lock:
            self._common.moment += 1
            if self._inside is None:
                self._inside = _Inside()
            self._apply(self._inside, [change])

    def conflicts(self, operations: Sequence[Operation], start: Start) -> list[str]:
        """Return the names in which these operations conflict with the changes of a concurrent step inside."""
        with self._common.lock:
            inside = self._inside
            if inside is None or (start.delivered == inside.delivered and not inside.pending):
                return []  # none has changed anything that the step could not see
            return inside.touched.conflicts(operations, start)

    def put_together(self, operations: Sequence[Operation], start: Start) -> tuple[list[Operation], list[str]]:
        """Put operations together with the changes of concurrent steps inside, where these conflict.

        Returns the operations, and the names in which the same part was changed.
        """
        found, names = list[Operation](), dict[str, None]()
        with self._common.lock:
            theirs = self.with_committed()
            for operation in operations:
                both = CLASH
                if self.conflicts([operation], start):
                    both = merged_at(operation, start.values, theirs)
                    names |= dict.fromkeys([operation[1][0]] if both is CLASH else ())
                found.append(operation if both is CLASH else ["set", operation[1], both])
        return found, list(names)

    def end(self) -> None:
        """Note that the attempt has ended: from now on nothing changes these values. The caller holds the lock."""
        self.ended = True
        if self._values is not None:
            self._values.ended = True

    def _current(self) -> _StepValues:
        """Return the current values. The caller holds the lock."""
        if self._values is None:
            self._common.used = True
            self._values = self._new_values()
        if self._inside and self._inside.behind:
            self._inside.catch_up(self._values)
        return self._values

    def _new_values(self) -> _StepValues:
        return _StepValues(self._opening, self._common, self.address, ended=self.ended)

    def _apply(self, inside: _Inside, changes: Sequence[Change], after: int = 0) -> None:
        if self._values is None:
            self._values = self._new_values()
        before = self._settled(self._values)
        for order, operations in changes:
            for name, own in by_name(operations).items():
                inside.add(self._values, name, before.get(name, ABSENT), (order, own), after)

    def _settled(self, values: Values) -> Mapping[str, Json]:
        """Return the values, encoded. What the code has written itself overrides earlier changes of child steps."""
        if self.mirror:
            self.mirror.write(values)
        now = values.settle(self._common.refused)
        if written := values.pop_written():
            self._common.moment += 1
            self.unshown |= dict.fromkeys(written)
            if self._inside:
                for name in written:
                    self._inside.trails.pop(name, None)
                    self._inside.placed.pop(name, None)
        return now


class _StepValues(Values):
    """The values of one attempt.

    They do not refer to the view, so that both are freed with the step, without the garbage collector.
    """

    __slots__ = ("_added", "_address", "ended")
    key_order_counts = True

    def __init__(self, opening: Mapping[str, Json], common: Common, address: str, *, ended: bool) -> None:
        super().__init__(opening, common)
        self._address, self.ended = address, ended
        self._added = 0
        """The number of collection items that the code of the step has added."""

    def check(self) -> None:
        if self.ended:
            whose = self._address or "the run"
            raise ConfigError(
                f"The state of {whose} was changed after {whose} had ended, so the change cannot be recorded. Change "
                f"it earlier, and wait for threads that change it. To change the state of the step that runs now, call "
                f"RuntimeState.current() there"
            )

    def next_id(self) -> str:
        """Return an id for a new item of a collection. On a resume, the item added at the same point gets it again."""
        self._added += 1
        return f"{self._address or 'run'}.{self._added}"


class _Inside:
    """The changes of the state that the steps inside a step have made."""

    __slots__ = ("behind", "delivered", "pending", "placed", "seen", "touched", "trails")

    def __init__(self) -> None:
        self.pending: dict[str, list[Change]] = {}
        self.delivered = 0
        self.seen: dict[str, int] = {}
        """By address of a requested step: how many changes had been handed over at the request."""
        self.trails: dict[str, _Trail] = {}
        self.placed: dict[str, Order] = {}
        """New names in these changes, with the positions by which the names are ordered."""
        self.behind: dict[str, None] = {}
        """The names with changes that their values do not include yet."""
        self.touched = Touched()

    def add(self, values: Values, name: str, before: Json, change: Change, after: int) -> None:
        """Add a change of one name. `before` is the value of the name before all such changes.

        `after`: the number of the last change that had been handed over when the changing step was requested.
        """
        trail = self.trails.get(name)
        if trail is None:
            trail = self.trails[name] = _Trail(before)
        trail.add(change, self.delivered, after)
        self.behind[name] = None
        order = change[0]
        for verb, path, *_ in change[1]:
            if verb == "remove" and len(path) == 1:
                values.replace(name, ABSENT)
            elif name not in values.names:
                values.place(name, lambda other: self.placed.get(other, ()) > order)
                self.placed[name] = order

    def with_changes(self, now: Mapping[str, Json], changes: Sequence[tuple[Change, str]]) -> Mapping[str, Json]:
        """Return the values `now` as they will be when these changes are handed over: (change, its step), in order."""
        found = dict[str, list[tuple[Change, int]]]()
        for (order, operations), address in changes:
            for name, own in by_name(operations).items():
                found.setdefault(name, []).append(((order, own), self.seen.get(address, 0)))
        values = dict(now)
        for name, more in found.items():
            trail = self.trails.get(name) or _Trail(now.get(name, ABSENT))
            if (value := trail.value_with(more, self.delivered)) is not ABSENT:
                values[name] = value
            else:
                values.pop(name, None)
        return values

    def catch_up(self, values: Values) -> None:
        behind, self.behind = self.behind, {}
        for name in behind:
            trail = self.trails[name]
            values.replace(name, trail.value(), begun=trail.is_begun)


class _Trail:
    """The changes of one name since the code of the step last wrote it.

    They are in the order of their commits, except that a change always comes after those that its step has seen.
    """

    __slots__ = ("_base", "_changes", "_done", "_numbers", "_value", "is_begun")

    def __init__(self, base: Json) -> None:
        self._base = self._value = base
        self._changes: list[Change] = []
        self._numbers: list[int] = []
        """For each change, how many changes had been handed over by then, this one included."""
        self._done = 0
        """The number of changes that `_value` includes."""
        self.is_begun = base is ABSENT
        """Whether the value was created empty and has only been added to, never set."""

    def add(self, change: Change, number: int, after: int) -> None:
        if self.is_begun:
            self.is_begun = all(verb == "append" or len(path) > 1 for verb, path, *_ in change[1])
        at = len(self._changes)
        while at and self._numbers[at - 1] > after and self._changes[at - 1][0] > change[0]:
            at -= 1
        self._changes.insert(at, change)
        self._numbers.insert(at, number)
        if at < self._done:
            self._value, self._done = self._base, 0

    def value_with(self, more: Sequence[tuple[Change, int]], number: int) -> Json:
        """Return the value once these changes are added too: each with `after` as for `add`."""
        other = _Trail(self.value())
        if self._changes and more[0][0][0] < self._changes[-1][0]:  # one may come before some of these
            other = _Trail(self._base)
            other._changes, other._numbers = [*self._changes], [*self._numbers]
        for change, after in more:
            other.add(change, number + 1, after)
        return other.value()

    def value(self) -> Json:
        todo = [operation for _, operations in self._changes[self._done :] for operation in operations]
        if todo:
            name = todo[0][1][0]
            values: dict[str, Any] = {} if self._value is ABSENT else {name: self._value}
            self._value = applied(values, todo).get(name, ABSENT)
            self._done = len(self._changes)
        return self._value
