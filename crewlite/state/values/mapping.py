"""What programs see of named values: a mapping, and collections, whose items never change until they are removed."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NoReturn, Self

from crewlite.definitions.keywords import known_keywords
from crewlite.encoding.codec import decode
from crewlite.errors import ConfigError
from crewlite.refs import check_name
from crewlite.state.journal.values import Values
from crewlite.texts.wording import number_of

_OF_OTHERS = {*dir(MutableMapping), *dir(list)} - {*dir(Mapping)}


class NamedValues(MutableMapping[str, Any]):
    """Named values that the program may change. A subclass determines which values those are."""

    __slots__ = ()

    @property
    @abstractmethod
    def _values(self) -> Values: ...

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a name; set it to `default` first if there is none.

        Concurrent steps that each create the same empty list or mapping in this way, and add to it, do not conflict:
        all additions are kept.
        """
        return self._values.setdefault(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @known_keywords("collection of a state")
    def collection(self, name: str) -> Collection:
        """Return the collection of this name: items by their ids, which can be added and removed, but not changed."""
        return Collection(name, lambda: self._values)

    @known_keywords("rollback_on_error of a state")
    @contextlib.contextmanager
    def rollback_on_error(self) -> Iterator[Self]:
        """Restore all values, nested data included, if the block raises; the exception then propagates.

        Raises NotCodable before the block runs if a value cannot be recorded, and so could not be restored.
        """
        roll_back = self._rollback()
        try:
            yield self
        except BaseException as error:
            roll_back(error)
            raise

    def _rollback(self) -> Callable[[BaseException], None]:
        """Return a function that restores the current values after an error. Raises NotCodable."""
        before = self._values.coded()
        return lambda error: self._values.put_back(before)


class Collection(Mapping[str, Any]):
    """Items by their ids, in the order in which they were added. Recording an addition costs only that item's size."""

    __slots__ = ("_name", "_values")

    def __init__(self, name: str, values: Callable[[], Values]) -> None:
        self._name, self._values = check_name("collection", name), values

    def add(self, value: Any) -> str:
        """Add an item, and return its id, which is unique and the same after every resume.

        Later changes of `value` do not change the item. Raises NotCodable if it cannot be recorded.
        """
        return self._values().add_item(self._name, value)

    def remove(self, identifier: str) -> None:
        """Remove an item. Raises KeyError if there is none with this id."""
        self._values().remove_item(self._name, identifier)

    def __setitem__(self, identifier: str, value: Any) -> NoReturn:
        raise self._unfit("set")

    def __delitem__(self, identifier: str) -> NoReturn:
        raise self._unfit("del")

    def __getattr__(self, name: str) -> Any:
        if name in _OF_OTHERS:
            raise self._unfit(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _unfit(self, wish: str) -> ConfigError:
        return ConfigError(
            f"collection {self._name!r} has no {wish}, because it gives each item an id, and no item ever changes. "
            f"Use add(value), which returns the id, and remove(id); to remove all items: "
            f"for id in list(collection): collection.remove(id)"
        )

    def __getitem__(self, identifier: str) -> Any:
        return decode(self._values().items_of(self._name)[identifier])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values().items_of(self._name))

    def __len__(self) -> int:
        return len(self._values().items_of(self._name))

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._values().items_of(self._name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}: {number_of(len(self), 'item')}>"
