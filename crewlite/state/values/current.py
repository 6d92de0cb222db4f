"""The state as the code of a running step sees it: a mapping, whose changes are part of the outcome of the step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NoReturn, Self, SupportsIndex

from crewlite.errors import ConfigError
from crewlite.state.journal.view import View
from crewlite.state.values.bag import Bag
from crewlite.state.values.collection import Collection

_FOR_OTHERS = {name for cls in Bag.__mro__ for name in vars(cls)} | {"checkpoint", "acheckpoint", "flush", "aflush"}
_FOR_OTHERS |= {"open", "aopen", "close", "aclose"}


class StepState(MutableMapping[str, Any]):
    """The state of the running step: a view of its own, whose changes count once the step has finished."""

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
        """Return the value of a name; set it to `default` first if there is none.

        Concurrent steps that each create the same empty list or mapping in this way, and add to it, do not conflict:
        all additions are kept.
        """
        return self._view.values.setdefault(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._view.values

    def __iter__(self) -> Iterator[str]:
        return iter(self._view.values)

    def __len__(self) -> int:
        return len(self._view.values)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def __ior__(self, other: Mapping[str, Any]) -> Self:
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """Return a new dict with the same values."""
        return dict(self)

    def __str__(self) -> str:
        return str(dict(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._view.address or 'the run'}: {dict(self)!r}>"

    def collection(self, name: str) -> Collection:
        """Return the collection of this name: items by their ids, which can be added and removed, but not changed."""
        return Collection(name, lambda: self._view.values)

    @contextlib.contextmanager
    def rollback_on_error(self) -> Iterator[Self]:
        """Restore all values, nested data included, if the block raises; the exception then propagates.

        Raises NotCodable before the block runs if a value cannot be recorded, and so could not be restored.
        """
        before = self._view.values.coded()
        try:
            yield self
        except BaseException:
            self._view.values.put_back(before)
            raise

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ConfigError(
            "the state of a running step cannot be copied or pickled, because it belongs to that step. "
            "Copy the values: copy.deepcopy(dict(state))"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _FOR_OTHERS and not name.startswith("_"):
            raise ConfigError(
                f"RuntimeState.current().{name}: the state of a running step has no {name}, because the code of a step "
                f"may run again. Use {name} in a handler (source, event, state), or on a state of RuntimeState.open"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
