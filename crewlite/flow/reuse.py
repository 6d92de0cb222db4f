"""Where the result of a step is found by other runs: a digest of its code, and of what it is given."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from crewlite import codec
from crewlite.codec import Json
from crewlite.durable import Cached
from crewlite.errors import ConfigError, NotCodable
from crewlite.flow.code import NotYet, Version, code_of

_FORMAT = 1
"""Of what a key is made of. With another one nothing that was kept before is found."""


class Reuse:
    """How one step's results are found again."""

    def __init__(
        self, name: str, func: Callable[..., Any], age: float | None, version: Version, deps: tuple[object, ...]
    ) -> None:
        self._name, self._func, self._age, self._version, self._deps = name, func, age, version, deps
        self._where = f"{func.__module__}:{getattr(func, '__qualname__', name)}"
        self._code = ""
        with contextlib.suppress(NotYet):  # a function that calls itself has its name only after this
            self._code = self._coded()
        self._defaults: dict[str, Json] = {}
        for parameter in inspect.signature(func).parameters.values():
            if parameter.default is not parameter.empty:
                with contextlib.suppress(NotCodable):  # then it counts with the code, and is no argument
                    self._defaults[parameter.name] = codec.encode(parameter.default)

    def at(self, arguments: dict[str, Json]) -> Cached:
        """Where the result for these arguments is. What is left out is as its default."""
        try:
            self._code = self._code or self._coded()
        except NotYet as unset:
            raise ConfigError(
                f"@step {self._name!r}: {unset} in its closure has no value when it is called; wanted one, so that a "
                f"later run can tell whether it is still the same"
            ) from None
        return Cached(codec.digest([_FORMAT, self._where, self._code, self._defaults | arguments]), self._age)

    def _coded(self) -> str:
        return codec.digest(code_of(self._name, self._func, self._version, self._deps))
