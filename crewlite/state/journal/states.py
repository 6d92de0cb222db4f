"""The states of running steps: each sees what held when it began, and what it and the steps inside it changed since.

What a step changed is its delta. It is part of the commit of the step's outcome, and goes to the step around it with
that; an attempt that fails or is cut takes its delta with it. A step that is answered from the record has its delta
applied again. So the state is a result of the steps, as everything else in a run is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import cast

from crewlite.codec import Json
from crewlite.errors import NotCodable
from crewlite.forked import rlock
from crewlite.secrets import Secrets
from crewlite.state.format.addresses import outer
from crewlite.state.format.commit import StepChanges, ValueChanges
from crewlite.state.format.delta import GONE, alike, applied, combined, difference, differing, names_in
from crewlite.state.format.record import Record
from crewlite.state.journal.values import Values


class View:
    """The state as a running step sees it; or, `late`, as a handler does that hears of a step which has ended."""

    versions: Mapping[str, int] = {}

    def __init__(
        self, address: str, start: Mapping[str, Json], recorded: Mapping[str, Json], *, late: bool = False
    ) -> None:
        self.address, self.late = address, late
        self.start = self.values = start
        """What held when the step began, and what holds now, coded."""
        self.recorded = recorded
        """The record's values when the step began."""
        self.stored: dict[str, Json] = {}
        """What commits have recorded of its changes before its own does: those of the steps inside it."""
        self._from: dict[str, tuple[int, int]] = {}
        """The commits that those come from."""

    @cached_property
    def bag(self) -> Values:
        """The values, for programs to change."""
        return Values(self)

    @property
    def delta(self) -> StepChanges:
        """What has changed since the step began, as far as it is settled."""
        return difference(self.start, self.values)

    def settle(self, secrets: Secrets, refused: list[NotCodable] | None) -> Mapping[str, Json]:
        """Code what was done to the values since, and return all of them."""
        if "bag" in vars(self):
            self.values = applied(self.values, cast(StepChanges, self.bag.changes(secrets, refused)))
        return self.values

    def take(self, changed: StepChanges, commit: tuple[int, int]) -> None:
        """Apply what a step inside it has changed. Of a name that several changed, the last commit counts."""
        if behind := {name for name in names_in(changed) if self._from.get(name, commit) > commit}:
            new = {name: value for name, value in changed.get("set", {}).items() if name not in behind}
            changed = {"set": new, "gone": [name for name in changed.get("gone", ()) if name not in behind]}
        self._from |= dict.fromkeys(names_in(changed), commit)
        self.values = applied(self.values, changed)
        if "bag" in vars(self):
            self.bag.forget(names_in(changed))
        self.note_stored(changed)

    def note_stored(self, changed: StepChanges) -> None:
        """Note what a commit has recorded."""
        self.stored |= {**changed.get("set", {}), **dict.fromkeys(changed.get("gone", ()), GONE)}


class States:
    """The states of one run. Any thread may use them."""

    def __init__(self, record: Record, secrets: Callable[[], Secrets]) -> None:
        self._record, self._secrets = record, secrets
        self.used = bool(record.versions)
        """Whether anybody has asked for the state, in this life or an earlier one. If not, nothing is looked at."""
        self._running: dict[str, View] = {}
        self._late: list[tuple[weakref.ref[object], View]] = []
        """What handlers were given that heard of steps which had ended, each with its holder."""
        self._waiting: dict[str, StepChanges] = {}
        """What such handlers changed and no commit has recorded yet, by the step it belongs to."""
        self._beside: StepChanges = {}
        """What the next commit says of the recorded values that is no step's delta."""
        self.refused: list[NotCodable] = []
        """Values that could not be recorded, and nobody was told of."""
        self.conflicts: dict[str, list[str]] = {}
        """Names that two steps changed side by side, by the step that came later, and nobody was told of."""
        self._lock = rlock()

    @property
    def waiting(self) -> bool:
        """Whether a commit would have anything to say, though no step ends."""
        self.settle()
        return bool(self._waiting or self._beside or self.refused)

    def begin(self, address: str) -> View:
        """An attempt of a step begins: the state as it sees it."""
        with self._lock:
            start = self._values_around(address) if self.used and address else self._record.unowned
            view = self._running[address] = View(address, start, self._record.values)
            return view

    def drop(self, view: View, *, failed: bool = False) -> None:
        """An attempt was cut, or `failed`: its changes count no more, nor do those of the steps inside it.

        Where it was cut, the record keeps those, as they are applied again when the step goes on.
        """
        with self._lock:
            if self._running.get(view.address) is not view:
                return
            del self._running[view.address]
            now, before = self._record.values, view.recorded
            ours = [n for n, value in view.stored.items() if alike(now.get(n, GONE), value)] if failed else []
            if view.address and (back := differing(ours, now, before)):
                gone = [name for name in back if name not in before]
                self._say({"set": {name: before[name] for name in back if name in before}, "gone": gone})

    def replay(self, address: str) -> None:
        """A step is answered from the record: apply what it has changed to the state around it."""
        if deltas := self._record.deltas.get(address):
            with self._lock:
                self._values_around(address)
                if around := self._around(address):
                    for commit, changed in deltas:
                        around.take(changed, commit)

    def conflicting(self, address: str) -> list[str]:
        """The names that a running step has changed, and somebody else too since it began, to something else."""
        if not self.used:
            return []
        with self._lock:
            view = self._running.get(address)
            if view is None or self._around(address) is None:
                return []
            theirs = self._values_around(address)
            mine = view.settle(self._secrets(), self.refused)
            return differing(differing(names_in(view.delta), theirs, view.start), theirs, mine)

    def given(self, address: str, holder: object) -> View:
        """What a handler sees of a step: the step's own state, if it runs; else what it changes rides with a commit."""
        with self._lock:
            self.used = True
            if view := self._running.get(address):
                return view
            view = View(address, self._values_around(address), self._record.values, late=True)
            self._late.append((weakref.ref(holder), view))
            return view

    def settle(self) -> None:
        """Hand what handlers changed after steps had ended to the steps around those."""
        if not self._late:
            return
        with self._lock:
            for _, view in self._late:
                view.settle(self._secrets(), self.refused)
                if changed := view.delta:
                    view.start = view.values
                    self._hand_over(view.address, changed)
            self._late = [late for late in self._late if late[0]() is not None]

    def changes(self, ended: str) -> ValueChanges:
        """What a commit has to say of the state; {} if nothing. `ended`: the step whose outcome it has."""
        with self._lock:
            if not self.used:
                self._running.pop(ended, None)
                return {}
            names = self.conflicting(ended)
            self.settle()
            view = self._running.pop(ended, None)
            if view is None:
                return self._said({})
            values = view.settle(self._secrets(), self.refused)
            if not view.address:
                return self._said({}, values)
            if names:
                self.conflicts[view.address] = names
            if (changed := view.delta) and (around := self._around(view.address)):
                around.take(changed, self._next)
            return self._said({view.address: changed} if changed else {})

    def shown(self, view: View) -> ValueChanges:
        """What a commit has to say so that the recorded values are those that somebody sees. Raises NotCodable."""
        with self._lock:
            values = view.settle(self._secrets(), None)
            self.settle()
            said = self._said({}, values)
            view.note_stored(cast(StepChanges, said))
            return said

    def _said(self, ended: dict[str, StepChanges], shown: Mapping[str, Json] | None = None) -> ValueChanges:
        by, values = {**self._waiting}, self._record.values
        for changed in self._waiting.values():
            values = applied(values, changed)
        for address, changed in ended.items():
            by[address] = combined(by[address], changed) if address in by else _short(changed, values)
            values = applied(values, changed)
        beside = self._beside if shown is None else difference(values, shown)
        self._waiting, self._beside = {}, {}
        if not by and not beside:
            return {}
        names = names_in(difference(self._record.values, applied(values, beside)))
        versions = {name: self._record.versions.get(name, 0) + 1 for name in names}
        return cast(ValueChanges, {"by": by, **beside} | ({"versions": versions} if versions else {}))

    def _say(self, changed: StepChanges) -> None:
        self._beside = combined(self._beside, changed)

    def _hand_over(self, address: str, changed: StepChanges) -> None:
        """Changes of a step that has ended go to the running step around it, and wait for a commit."""
        around = self._running.get(address) or self._around(address)
        if around is None:
            self._say(changed)
            return
        around.settle(self._secrets(), self.refused)
        around.take(changed, self._next)
        if around.address != address:
            while outer(address) != around.address:
                address = outer(address)
            self._waiting[address] = combined(self._waiting.get(address, {}), changed)

    @property
    def _next(self) -> tuple[int, int]:
        return self._record.seq + 1, 0

    def _around(self, address: str) -> View | None:
        """The nearest running step around a step."""
        while address:
            address = outer(address)
            if view := self._running.get(address):
                return view
        return None

    def _values_around(self, address: str) -> Mapping[str, Json]:
        """What the nearest running step around a step sees now."""
        self.settle()
        if around := self._around(address):
            return around.settle(self._secrets(), self.refused)
        return applied(self._record.values, self._beside)


def _short(changed: StepChanges, recorded: Mapping[str, Json]) -> StepChanges:
    """Changes as they are recorded: of a value that is recorded already the name alone."""
    new = changed.get("set", {})
    again = [name for name, value in new.items() if alike(recorded.get(name, GONE), value)]
    short: StepChanges = {"set": {name: value for name, value in new.items() if name not in again}}
    if not short["set"]:
        del short["set"]
    if "gone" in changed:
        short["gone"] = changed["gone"]
    return short | {"recorded": again} if again else short
