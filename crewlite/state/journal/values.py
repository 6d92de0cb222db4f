"""Named values over coded ones, as programs hold them.

A value is decoded when it is first asked for; from then on it is looked at whenever the values are settled, as whoever
was given it may have changed its inside. What nobody asks for is never looked at.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from itertools import takewhile
from typing import Any

from crewlite.codec import IMMUTABLE, Json, declare, decode, digest, encode
from crewlite.errors import ConfigError, NotCodable
from crewlite.forked import rlock
from crewlite.secrets import MASK, Secrets
from crewlite.state.format.operations import ABSENT, ITEMS, Operation, alike, difference, without_items

log = logging.getLogger("crewlite.state")
_TRIES = 5


class Values(MutableMapping[str, Any]):
    """Values that a program changes. Any thread may use them."""

    def __init__(
        self,
        coded: Mapping[str, Json],
        secrets: Callable[[], Secrets],
        check: Callable[[], None],
        next_id: Callable[[], str],
        *,
        exact: bool,
    ) -> None:
        self._secrets = secrets
        self._check = check
        """Called before each change; raises where it would be recorded nowhere."""
        self._next_id = next_id
        """An id for an item."""
        self._exact = exact
        """Whether another order of the keys in a value is a change."""
        self._coded = dict(coded)
        """All, in their order, as they were when they were settled last; ABSENT for one that never was."""
        self._handed_out = False
        """Somebody else has `_coded`, so it is copied before it changes."""
        self._lent: dict[str, Any] = {}
        """What was set, or asked for."""
        self._read: dict[str, tuple[Json, Json]] = {}
        """Those that came out of a record and may still be as they were: each as recorded, and as this program writes
        it, once that was looked at."""
        self._fixed: dict[str, object] = {}
        """Settled values that cannot change inside."""
        self._added_to: dict[str, dict[str, Json]] = {}
        """Collections that nobody else has, so that they need not be copied before they change."""
        self._begun: dict[str, Json] = {}
        """Names that `setdefault` gave an empty list or mapping, with that."""
        self._written = set[str]()
        """Names that the program has changed."""
        self._lock = rlock()

    def __getitem__(self, key: str) -> Any:
        with self._lock:
            if key not in self._lent:
                self._lend(key, self._coded[key])
            return self._lent[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._check()
        if type(key) is not str or not isinstance(encode(key), str) or key.startswith(ITEMS):
            raise ConfigError(f"{key!r} is no name for a value; wanted a text, such as state['progress']")
        declare(type(value))
        with self._lock:
            self._forget(key)
            self._lent[key] = value
            self._written.add(key)
            if key not in self._coded:
                self._own()[key] = ABSENT

    def __delitem__(self, key: str) -> None:
        self._check()
        with self._lock:
            del self._own()[key]
            self._forget(key)
            self._written.add(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As of any mapping. What is then added to an empty list or mapping is recorded as added."""
        with self._lock:
            if key in self:
                return self[key]
            self[key] = default
            if type(default) in (list, dict) and not default:
                self._begun[key] = type(default)()
            return default

    def __contains__(self, key: object) -> bool:
        return key in self._coded

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(without_items(self._coded))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add_item(self, collection: str, value: object) -> str:
        """Add an item to a collection. Its id. Raises NotCodable."""
        self._check()
        declare(type(value))
        coded = self._secrets().mask_data(_encoded(collection, value))
        with self._lock:
            identifier = self._next_id()
            self._items(collection)[identifier] = coded
        return identifier

    def remove_item(self, collection: str, identifier: str) -> None:
        """Remove an item. Raises KeyError."""
        self._check()
        with self._lock:
            if identifier not in self.items_of(collection):
                raise KeyError(identifier)
            del self._items(collection)[identifier]

    def items_of(self, collection: str) -> Mapping[str, Json]:
        """The items of a collection by their ids, coded."""
        found: Mapping[str, Json] = self._coded.get(ITEMS + collection, {})
        return found

    def settle(self, refused: list[NotCodable] | None = None) -> Mapping[str, Json]:
        """All of them coded, without configured secrets, as they are now.

        Raises NotCodable for a value that cannot be recorded; or leaves it as it was, where there is a list to tell of
        it.
        """
        with self._lock:
            for key, value in self._lent.items():
                if self._fixed.get(key, ABSENT) is value:
                    continue
                before = self._coded[key]
                try:
                    coded = self._looked_at(key, value, before)
                except NotCodable as error:
                    if refused is None:
                        raise
                    refused.append(error)
                    continue
                if coded is not before:
                    self._own()[key] = coded
                    self._written.add(key)
                if type(value) in IMMUTABLE:
                    self._fixed[key] = value
            self._handed_out, self._added_to = True, {}
            if ABSENT in self._coded.values():
                return {key: coded for key, coded in self._coded.items() if coded is not ABSENT}
            return self._coded

    def since(self, before: Mapping[str, Json], refused: list[NotCodable] | None = None) -> list[Operation]:
        """What was done to the values, which were these before. Raises NotCodable as `settle`."""
        found = list[Operation]()
        for operation in difference(before, self.settle(refused)):
            verb, [name, *inner], *rest = operation
            empty = self._begun.get(name) if verb == "set" and not inner and name not in before and rest[0] else None
            if empty is None:
                found.append(operation)
            else:  # others may have begun it too
                found += difference({name: empty}, {name: rest[0]})
        return found

    def coded(self) -> dict[str, Json]:
        """All of them, as `put_back` takes them. Raises NotCodable."""
        with self._lock:
            self._added_to = {}
            lent = {key: self._plain(key, value) for key, value in self._lent.items()}
            return {key: lent.get(key, coded) for key, coded in self._coded.items()}

    def put_back(self, coded: Mapping[str, Json]) -> None:
        """Make these the values, and nothing else. Whatever was handed out before is no part of them any more."""
        with self._lock:
            before, self._coded, self._handed_out = self._coded, {}, False
            self._written |= before.keys() | coded.keys()
            self._lent, self._read, self._fixed, self._begun, self._added_to = {}, {}, {}, {}, {}
            for key, value in coded.items():
                if key.startswith(ITEMS):
                    self._coded[key] = value
                    continue
                self._coded[key] = was = before.get(key, ABSENT)
                if not self._same(was, value):
                    self._lend(key, value)

    def place(self, key: str, behind: Callable[[str], bool]) -> None:
        """Give a name its place, if it has none, before the last names that have to be `behind`; `replace` follows."""
        with self._lock:
            if key not in self._coded:
                own = self._own()
                later = list(takewhile(behind, reversed(own)))
                own[key] = ABSENT
                for name in reversed(later):
                    own[name] = own.pop(name)

    @property
    def names(self) -> Collection[str]:
        """All names, those of collections too."""
        return self._coded.keys()

    def take_written(self) -> set[str]:
        """The names that the program has changed since this was asked last, as far as it is settled."""
        with self._lock:
            found, self._written = self._written, set()
            return found

    def replace(self, key: str, coded: Json, *, begun: bool = False) -> None:
        """Make a value another one, as something else than the program has changed it; ABSENT takes it away.

        `begun`: it was begun as by `setdefault`.
        """
        with self._lock:
            for known in (self._lent, self._read, self._fixed, self._added_to):
                known.pop(key, None)
            if begun and type(coded) in (list, dict):
                self._begun[key] = type(coded)()
            if coded is not ABSENT:
                self._own()[key] = coded
            elif key in self._coded:
                del self._own()[key]

    def _own(self) -> dict[str, Json]:
        if self._handed_out:
            self._coded, self._handed_out = dict(self._coded), False
        return self._coded

    def _items(self, collection: str) -> dict[str, Json]:
        """The items of a collection, to change them."""
        name = ITEMS + collection
        self._written.add(name)
        if name not in self._added_to:
            self._added_to[name] = self._own()[name] = dict(self._coded.get(name, {}))
        return self._added_to[name]

    def _forget(self, key: str) -> None:
        for known in (self._lent, self._read, self._fixed, self._begun):
            known.pop(key, None)

    def _lend(self, key: str, coded: Json) -> None:
        self._lent[key] = decode(coded)
        self._read[key] = coded, ABSENT

    def _plain(self, key: str, value: Any) -> Json:
        """The value coded. One that was read, and is as it was, keeps its form, though its class is not known here."""
        coded = _encoded(key, value)
        if key not in self._read:
            return coded
        source, as_read = self._read[key]
        if alike(coded, source):
            return source
        if as_read is ABSENT:
            as_read = _encoded(key, decode(source))
            self._read[key] = source, as_read
        if self._same(coded, as_read):
            return source
        del self._read[key]
        return coded

    def _looked_at(self, key: str, value: Any, before: Json) -> Json:
        """The value as it is to be recorded: the very object that was known before, if it has not changed."""
        secrets = self._secrets()
        if secrets.mask(key) != key:
            raise NotCodable(_path(MASK), key, "a name that holds a configured secret")
        plain = self._plain(key, value)
        coded: Json = secrets.mask_data(plain)
        if self._same(before, coded):
            return before
        if coded != plain:
            log.warning("%s held a configured secret, which was masked", _path(key))
        return coded

    def _same(self, one: Json, other: Json) -> bool:
        if alike(one, other):
            return True
        return not (self._exact or one is ABSENT or other is ABSENT) and digest(one) == digest(other)


def _encoded(key: str, value: Any) -> Json:
    """The value coded. Raises NotCodable, also for one that another thread never leaves alone."""
    for _ in range(_TRIES):
        with contextlib.suppress(RuntimeError):  # "dictionary changed size during iteration"
            return encode(value, _path(key))
    raise NotCodable(_path(key), value, "another thread changes it all the time")


def _path(key: str) -> str:
    return f"state[{key!r}]"
