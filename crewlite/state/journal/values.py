"""Named values as programs use them, on top of encoded ones.

A value is decoded at its first access. From then on `settle` encodes and compares it each time, because the program may
have changed it inside. A value that is never accessed is neither decoded nor compared.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar, cast

from crewlite.encoding.codec import IMMUTABLE, Json, declare, decode, digest, encode, encode_to_keep
from crewlite.errors import ConfigError, NotCodable
from crewlite.state.format.operations import ABSENT, ITEMS, Operation, alike, difference, is_plain, without_items
from crewlite.system.forked import lock
from crewlite.texts.logs import logger
from crewlite.texts.masking import MASK
from crewlite.texts.secrets import Secrets

log = logger("crewlite.state")
_TRIES = 5


@dataclass(eq=False)
class Common:
    """What all views of the state of a run have in common."""

    secrets: Secrets
    """The secrets that the run knows by now, which are masked in what it records."""
    closed: tuple[str, str] | None = None
    """The arguments of the StoreError for a change after the journal was closed; None while it is open."""
    used: bool = False
    """Whether the run has ever used the state, in any kickoff. If not, nobody looks for changes, for speed."""
    moment: int = 0
    """A counter of changes to the state: a view that has seen the current number need not be updated."""
    refused: list[NotCodable] = field(default_factory=list)
    """The errors of values that could not be recorded and were not announced yet."""
    lock: threading.RLock = field(default_factory=lock)


class Values(MutableMapping[str, Any], ABC):
    """Values that a program changes. Any thread may use them. Subclasses know whose values they are."""

    __slots__ = (
        "_added_to",
        "_begun",
        "_coded",
        "_common",
        "_fixed",
        "_handed_out",
        "_lent",
        "_lock",
        "_read",
        "_written",
    )
    key_order_counts: ClassVar[bool]
    """Whether a different order of keys in a value counts as a change."""

    def __init__(self, coded: Mapping[str, Json], common: Common) -> None:
        self._common = common
        self._coded = coded
        """All values, in order, as they were when last settled; ABSENT for a new one that has not been settled."""
        self._handed_out = True
        """Whether other code, such as a caller of `settle`, has `_coded`: it must then be copied before it changes."""
        self._lent: dict[str, Any] = {}
        """The values that were set or accessed, decoded."""
        self._read: dict[str, tuple[Json, Json]] = {}
        """Values from the record that may be unchanged: (as recorded, as this program encodes it; ABSENT until
        needed)."""
        self._fixed: dict[str, object] = {}
        """Settled values of immutable types."""
        self._added_to: dict[str, dict[str, Json]] = {}
        """Copies of collections that no caller of `settle` holds, so that they can be changed in place."""
        self._begun: dict[str, Json] = {}
        """The empty lists and mappings that `setdefault` created, by name."""
        self._written: set[str] = set()
        """The names that the program has changed since the last `pop_written`."""
        self._lock = lock()
        """Locks these values alone: decoding runs user code (pydantic's hooks), for which no other step may wait."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if a change made now could not be recorded."""

    @abstractmethod
    def next_id(self) -> str:
        """Return the id of the next item that is added to a collection."""

    def __getitem__(self, key: str) -> Any:
        with self._lock:
            if key not in self._lent:
                coded = self._coded[key]
                if type(coded) in IMMUTABLE:  # it stands for itself
                    self._lent[key] = self._fixed[key] = coded
                else:
                    self._lend(key, coded)
            return self._lent[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.check()
        if type(key) is not str or key.startswith(ITEMS) or not (key in self._coded or isinstance(encode(key), str)):
            raise ConfigError(f"{key!r} is not a name for a value; wanted a text, such as state['progress']")
        declare(type(value))
        with self._lock:
            self._forget(key)
            self._lent[key] = value
            self._written.add(key)
            if key not in self._coded:
                self._own()[key] = ABSENT

    def __delitem__(self, key: str) -> None:
        self.check()
        with self._lock:
            del self._own()[key]
            self._forget(key)
            self._written.add(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a name; set it to `default` first if there is none.

        If `default` is an empty list or mapping, each addition to it is recorded by itself, so that concurrent steps
        can add to the same one.
        """
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
        """Add an item to a collection, and return its id. Raises NotCodable if it cannot be recorded."""
        self.check()
        declare(type(value))
        coded = self._common.secrets.mask_data(_encoded(collection, value))
        with self._lock:
            identifier = self.next_id()
            self._items(collection)[identifier] = coded
        return identifier

    def remove_item(self, collection: str, identifier: str) -> None:
        """Remove an item from a collection. Raises KeyError if there is none with this id."""
        self.check()
        with self._lock:
            if identifier not in self.items_of(collection):
                raise KeyError(
                    f"collection {collection!r} has no item {identifier!r}: wanted an id that add() returned"
                )
            del self._items(collection)[identifier]

    def items_of(self, collection: str) -> Mapping[str, Json]:
        """Return the items of a collection by their ids, in encoded form."""
        found: Mapping[str, Json] = self._coded.get(ITEMS + collection, {})
        return found

    def settle(self, refused: list[NotCodable] | None = None) -> Mapping[str, Json]:
        """Return all current values encoded, with secrets masked.

        Raises NotCodable for a value that cannot be recorded. With a list `refused`, adds the error to that list and
        uses the earlier value instead.
        """
        with self._lock:
            for key, value in self._lent.items():
                if self._fixed.get(key, ABSENT) is value:
                    continue
                before = self._coded[key]
                try:
                    coded = self._to_record(key, value, before)
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
            self._added_to.clear()
            if not self._handed_out and ABSENT in self._coded.values():
                return {key: coded for key, coded in self._coded.items() if coded is not ABSENT}
            self._handed_out = True
            return self._coded

    def since(self, before: Mapping[str, Json], refused: list[NotCodable]) -> list[Operation]:
        """Return the operations that turn the values `before` into the current ones. `refused`: see `settle`."""
        found = list[Operation]()
        for operation in difference(before, self.settle(refused)):
            verb, [name, *inner], *rest = operation
            empty = self._begun.get(name) if verb == "set" and not inner and name not in before and rest[0] else None
            if empty is None:
                found.append(operation)
            else:  # a concurrent step may have created the same list or mapping
                found += difference({name: empty}, {name: rest[0]})
        return found

    def coded(self) -> dict[str, Json]:
        """Return all values encoded, for `put_back`. Raises NotCodable."""
        with self._lock:
            self._added_to.clear()
            lent = {key: self._plain(key, value) for key, value in self._lent.items()}
            return {key: lent.get(key, coded) for key, coded in self._coded.items()}

    def put_back(self, coded: Mapping[str, Json]) -> None:
        """Replace all values by these encoded ones. Objects that the program got before no longer belong to them."""
        with self._lock:
            before, own = self._coded, dict[str, Json]()
            self._coded, self._handed_out = own, False
            self._written |= before.keys() | coded.keys()
            self._lent, self._read, self._fixed, self._begun, self._added_to = {}, {}, {}, {}, {}
            for key, value in coded.items():
                if key.startswith(ITEMS):
                    own[key] = value
                    continue
                own[key] = was = before.get(key, ABSENT)
                if not self._same(was, value):
                    self._lend(key, value)

    def place(self, key: str, behind: Callable[[str], bool]) -> None:
        """Insert a name without a value; `replace` sets one. Does nothing if the name exists.

        The name goes near the end: before the last names in a row for which `behind` returns True.
        """
        with self._lock:
            if key not in self._coded:
                own = self._own()
                later = list(takewhile(behind, reversed(own)))
                own[key] = ABSENT
                for name in reversed(later):
                    own[name] = own.pop(name)

    @property
    def names(self) -> Collection[str]:
        """All names, including those of collections."""
        return self._coded.keys()

    @property
    def is_touched(self) -> bool:
        """Whether the program has accessed or changed any value."""
        return bool(self._lent or self._written)

    def pop_written(self) -> Collection[str]:
        """Return the names that the program changed since the last call. Changes inside values count once settled."""
        if not self._written:
            return ()
        with self._lock:
            found, self._written = self._written, set()
            return found

    def replace(self, key: str, coded: Json, *, begun: bool = False) -> None:
        """Set a value on behalf of other code; ABSENT removes it. `begun`: it began empty, as after `setdefault`."""
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
        """Return `_coded` for the caller to change: a copy takes its place if others were given the present one."""
        if self._handed_out:
            self._coded, self._handed_out = dict(self._coded), False
        return cast(dict[str, Json], self._coded)

    def _items(self, collection: str) -> dict[str, Json]:
        """Return the dict in which the items of a collection are kept, for the caller to change."""
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
        """Encode a value. A value that is unchanged since it was read keeps its recorded form.

        This program may encode it differently, for example because it does not know the value's class.
        """
        coded = _encoded(key, value)
        if key not in self._read:
            return coded
        source, as_read = self._read[key]
        if alike(coded, source):
            return source
        if not _are_of_other_lengths(coded, source):
            if as_read is ABSENT:
                as_read = _encoded(key, decode(source))
                self._read[key] = source, as_read
            if self._same(coded, as_read):
                return source
        del self._read[key]
        return coded

    def _to_record(self, key: str, value: Any, before: Json) -> Json:
        """Return the encoded and masked value to record; the object `before` itself if nothing has changed."""
        secrets = self._common.secrets
        if secrets.mask(key) != key:
            raise NotCodable(_path(MASK), key, "its name contains a configured secret: choose another name")
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
        return not (self.key_order_counts or one is ABSENT or other is ABSENT) and digest(one) == digest(other)


def _encoded(key: str, value: Any) -> Json:
    """Encode a value. Raises NotCodable, also if another thread keeps changing the value meanwhile."""
    if type(value) in IMMUTABLE:
        return encode(value)
    for _ in range(_TRIES):
        try:
            return encode_to_keep(value, _path(key))
        except RuntimeError:  # "dictionary changed size during iteration"
            continue
    raise NotCodable(_path(key), value, "another thread changes it all the time: wait for that thread")


def _are_of_other_lengths(one: Json, other: Json) -> bool:
    """Return whether these are two lists or two mappings of different lengths, which are never the same value."""
    lists = type(one) is type(other) is list
    return (lists or (is_plain(one) and is_plain(other))) and len(one) != len(other)


def _path(key: str) -> str:
    return f"state[{key!r}]"
