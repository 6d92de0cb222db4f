"""The state as the code of a running step sees it: a mapping, whose changes are part of the outcome of the step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, Self, SupportsIndex

from crewlite.errors import ConfigError
from crewlite.state.journal.values import Values
from crewlite.state.journal.view import View
from crewlite.state.values.bag import Bag
from crewlite.state.values.mapping import NamedValues

_FOR_OTHERS = {name for cls in Bag.__mro__ for name in vars(cls)} | {"checkpoint", "acheckpoint", "flush", "aflush"}
_FOR_OTHERS |= {"open", "aopen", "close", "aclose"}


class StepState(NamedValues):
    """The state of the running step: a view of its own, whose changes count once the step has finished."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def _values(self) -> Values:
        return self._view.values

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

    @contextlib.contextmanager
    def rollback_on_error(self) -> Iterator[Self]:
        """Restore all values, nested data included, if the block raises; the exception then propagates.

        Raises NotCodable before the block runs if a value cannot be recorded, and so could not be restored.
        """
        before = self._values.coded()
        try:
            yield self
        except BaseException:
            self._values.put_back(before)
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
