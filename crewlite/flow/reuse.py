"""The key by which other runs find a step's cached result: a digest of its code and its arguments."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable
from typing import Any

from crewlite import codec
from crewlite.codec import Json
from crewlite.errors import ConfigError, NotCodable
from crewlite.flow.code import HoldsSecret, NotYet, Version, code_of
from crewlite.step_parts import Cached

log = logging.getLogger("crewlite.flow")
_FORMAT = 1
"""The version of the key's format. After a change, results cached before are not found any more."""


class Reuse:
    """Computes the cache keys of one step."""

    def __init__(
        self, name: str, func: Callable[..., Any], age: float | None, version: Version, deps: tuple[object, ...]
    ) -> None:
        self._name, self._func, self._age, self._version, self._deps = name, func, age, version, deps
        self._where = f"{func.__module__}:{getattr(func, '__qualname__', name)}"
        self._code = ""
        self._warned = False
        with contextlib.suppress(NotYet, HoldsSecret):  # a recursive function gets its name only after it is decorated
            self._code = self._coded()
        self._defaults: dict[str, Json] = {}
        for parameter in inspect.signature(func).parameters.values():
            if parameter.default is not parameter.empty:
                with contextlib.suppress(NotCodable):  # then the default counts as part of the code only
                    self._defaults[parameter.name] = codec.encode(parameter.default)

    def at(self, arguments: dict[str, Json]) -> Cached | None:
        """Return the cache key for these arguments and the age limit. Omitted arguments count with their defaults.

        Returns None, with a warning at the first time, if an argument or the code holds a secret: no two could be told
        apart, because not even a digest of a secret is recorded.
        """
        asked = self._defaults | arguments
        if codec.holds_secret(asked):
            self._warn("the argument " + ", ".join(name for name, value in asked.items() if codec.holds_secret(value)))
            return None
        try:
            self._code = self._code or self._coded()
        except HoldsSecret as what:
            self._warn(str(what))
            return None
        except NotYet as unset:
            raise ConfigError(
                f"@step {self._name!r}: the name {unset} in its closure has no value when the step is called. Give it "
                f"one before the call, as a later run compares it to tell whether the step is still the same"
            ) from None
        return Cached(codec.digest([_FORMAT, self._where, self._code, asked]), self._age)

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "@step %s: %s holds a secret, by which no result can be found: nothing is cached. Leave "
                "cache= out, or read the secret inside the step",
                self._name,
                what,
            )

    def _coded(self) -> str:
        return codec.digest(code_of(self._name, self._func, self._version, self._deps))
