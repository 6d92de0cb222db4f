"""The state as the code of a running step has it: a mapping, whose changes are part of what the step comes to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any, Self

from crewlite.errors import ConfigError
from crewlite.state.journal.view import View
from crewlite.state.values.bag import Bag
from crewlite.state.values.collection import Collection

_FOR_OTHERS = {name for cls in Bag.__mro__ for name in vars(cls)} | {"checkpoint", "acheckpoint", "flush", "aflush"}


class StepState(MutableMapping[str, Any]):
    """The state of the running step. A view of its own: what it changes counts when the step has finished."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def __getitem__(self, key: str) -> Any:
        return self._view.values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._view.values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._view.values[key]

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As of any mapping. Steps side by side that begin one list or mapping so, and add to it, all add to it."""
        return self._view.values.setdefault(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._view.values

    def __iter__(self) -> Iterator[str]:
        return iter(self._view.values)

    def __len__(self) -> int:
        return len(self._view.values)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._view.address or 'the run'}: {dict(self)!r}>"

    def collection(self, name: str) -> Collection:
        """The collection of this name: items by their ids, which are added and removed, and never changed."""
        return Collection(name, lambda: self._view.values)

    @contextlib.contextmanager
    def rollback_on_error(self) -> Iterator[Self]:
        """An exception in the block makes all values what they were at its start, nested ones too, and travels on.

        Raises NotCodable at once for a value that could not be put back.
        """
        before = self._view.values.coded()
        try:
            yield self
        except BaseException:
            self._view.values.put_back(before)
            raise

    def __getattr__(self, name: str) -> Any:
        if name in _FOR_OTHERS and not name.startswith("_"):
            raise ConfigError(
                f"RuntimeState.current().{name}: the state of a running step has no {name}, as the code of a step may "
                f"run again. Handlers (source, event, state) have it, and states that RuntimeState.open gives"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
