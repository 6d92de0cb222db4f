"""The key by which other runs find a step's cached result: a digest of its code and its arguments.

The code is read as plain data, which changes only when the code, its defaults or its closure change: the source without
decorators and indentation or, without readable source (as at a prompt), the compiled code. Names that the function
looks up in its module are left out: `deps` names them. Sources and values are read at the time of the call.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

from crewlite.encoding import codec, homes
from crewlite.encoding.codec import Json
from crewlite.errors import ConfigError, NotCodable
from crewlite.step_parts import Cached
from crewlite.texts.logs import logger

log = logger("crewlite.flow")
_FORMAT = 1
"""The version of the key's format. To change it makes all results cached before unfindable."""
Version = str | int | None
Inside = frozenset[int]
"""The ids of the functions that are being read, to stop at recursion."""


class CacheKeys:
    """Computes the cache keys of one step."""

    def __init__(self, name: str, func: Callable[..., Any], age: float | None, coded: Callable[[], Json]) -> None:
        """`coded`: returns the code of the step as `code_of` does."""
        self._name, self._age, self._coded = name, age, coded
        self._where = f"{func.__module__}:{getattr(func, '__qualname__', name)}"
        self._code = ""
        self._warned = False
        with contextlib.suppress(
            NotYet, HoldsSecret
        ):  # a recursive function's own name has no value until it is decorated
            self._code = codec.digest(coded())
        self._defaults: dict[str, Json] = {}
        for parameter in inspect.signature(func).parameters.values():
            if parameter.default is not parameter.empty:
                with contextlib.suppress(NotCodable):  # such a default counts only as part of the code
                    self._defaults[parameter.name] = codec.encode(parameter.default)

    def at(self, arguments: dict[str, Json]) -> Cached | None:
        """Return the cache key for these arguments, with the defaults of those left out, and the age limit.

        Returns None, and warns the first time, if an argument or the code holds a secret: no digest of a secret is
        recorded, so a key could not tell two secrets apart.
        """
        asked = self._defaults | arguments
        if codec.holds_secret(asked):
            self._warn("the argument " + ", ".join(name for name, value in asked.items() if codec.holds_secret(value)))
            return None
        try:
            self._code = self._code or codec.digest(self._coded())
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


def lifetime(label: str, cache: object) -> float | None:
    """Return the seconds that a cached result is valid; None for ever. Raises ConfigError for an unusable `cache`."""
    if isinstance(cache, bool):
        return None
    if not isinstance(cache, timedelta) or cache <= timedelta(0):
        raise ConfigError(f"{label}: cache is {cache!r}; wanted True, False, or a timedelta of more than 0")
    return cache.total_seconds()


def version_of(label: str, version: object) -> Version:
    """Return the version of a step. Raises ConfigError unless it is text or a whole number."""
    if version is None or type(version) is str or type(version) is int:
        return version
    raise ConfigError(f"{label}: version is {version!r}; wanted text or a whole number")


def dependencies(label: str, deps: object) -> tuple[object, ...]:
    """Return the deps of a step. Raises ConfigError unless each is a function, a step, a class or a module."""
    if not isinstance(deps, tuple | list):
        raise ConfigError(f"{label}: deps is {deps!r}; wanted a tuple of functions, classes or modules")
    for dep in deps:
        known = isinstance(dep, FunctionType | BuiltinFunctionType | type | ModuleType)
        if not known and not hasattr(dep, "__wrapped__"):
            raise ConfigError(f"{label}: deps holds {dep!r}; wanted functions, classes or modules")
    return tuple(deps)


class NotYet(Exception):
    """A name in a closure has no value yet: the code around it sets it later. Internal."""


class HoldsSecret(Exception):
    """A part of the code is a secret, of which not even a digest is recorded. Internal."""


@runtime_checkable
class Coded(Protocol):
    """An object that knows its own code, such as a step."""

    def step_code(self, inside: Inside) -> Json:
        """Return the code of the object's function, with version and deps, as plain data."""


def code_of(step: str, func: Callable[..., Any], version: Version, deps: tuple[object, ...], inside: Inside) -> Json:
    """Return all that the outcome of a step depends on besides its arguments: code, version and deps.

    Raises ConfigError for a closure or default that has neither a recordable value nor readable code, unless `version`
    stands for it. Raises NotYet if a name in a closure has no value, HoldsSecret if one has a secret without `version`.
    """
    look = _Look(step, version is not None, inside)
    return [look.of(func, "what it calls"), version, [look.of(dep, "one of its deps") for dep in deps]]


@dataclass(frozen=True, slots=True)
class _Look:
    """Reads the code and the values that a step is made of."""

    step: str
    lenient: bool
    """Whether a value that cannot be recorded is represented by its class alone; else it is an error."""
    inside: Inside

    def of(self, value: Any, what: str) -> Json:
        """Return an object's code if it has any, else its value. `what` names the object in an error."""
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            source = _source(value)
            return {"class": homes.class_name(value), "source": source} if source else self._unknown(value, what)
        if isinstance(value, ModuleType):
            return self._module(value, what)
        if isinstance(value, Coded):
            return value.step_code(self.inside)
        if hasattr(value, "__wrapped__"):
            return self.of(value.__wrapped__, what)
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType):
            return {"builtin": f"{value.__module__}:{value.__qualname__}", "python": sys.version}
        if callable(value):  # its value does not say what it does
            return self._unknown(value, what)
        return self._value(value, what)

    def _function(self, func: FunctionType) -> Json:
        if id(func) in self.inside:
            return "itself"
        inner = _Look(self.step, self.lenient, self.inside | {id(func)})
        defaults = [*(func.__defaults__ or ()), *(value for _, value in sorted((func.__kwdefaults__ or {}).items()))]
        return {
            "code": _written(func.__code__) or _compiled(func.__code__),
            "defaults": [inner.of(value, f"a default of {func.__name__}") for value in defaults],
            "closure": {name: inner.of(value, f"{name!r} in its closure") for name, value in _closure(func)},
        }

    def _module(self, module: ModuleType, what: str) -> Json:
        file: str | None = getattr(module, "__file__", None)
        if file is None:
            return self._unknown(module, what)
        return {
            "module": module.__name__,
            "bytes": hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest(),
        }

    def _value(self, value: object, what: str) -> Json:
        try:
            data = codec.encode(value)
        except NotCodable:
            return self._unknown(value, what)
        if not codec.holds_secret(data):
            return {"value": data}
        if self.lenient:
            return self._unknown(value, what)
        raise HoldsSecret(what)

    def _unknown(self, value: object, what: str) -> Json:
        if self.lenient:
            return {"opaque": homes.class_name(type(value))}
        raise ConfigError(
            f"@step {self.step!r}: a later run could not tell whether {what} ({value!r}) is still the same. Pass "
            f"that value as an argument, or give the step a version= and change it whenever the value changes"
        )


def _closure(func: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            raise NotYet(name) from None


def _source(thing: type | CodeType) -> str | None:
    """Return the source lines of a class or of code; None if they cannot be read."""
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None


def _written(code: CodeType) -> str | None:
    """Return the source of a function from its `def` on. None for a lambda, whose line may hold other lambdas."""
    source = _source(code)
    try:
        found = ast.parse(source).body[0] if source else None
    except (SyntaxError, IndexError):  # a multi-line string is less indented than the function, or the file has changed
        return None
    if not source or not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    return "\n".join(source.split("\n")[found.lineno - 1 : found.end_lineno])


def _compiled(code: CodeType) -> Json:
    """Return the compiled code of a function as plain data. It differs between releases of Python."""
    return {
        "python": sys.version,
        "code": [code.co_code.hex(), code.co_exceptiontable.hex(), code.co_flags],
        "takes": [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount],
        "names": [list(names) for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)],
        "constants": [_constant(value) for value in code.co_consts],
    }


def _constant(value: object) -> Json:
    if isinstance(value, CodeType):
        return _compiled(value)
    if isinstance(value, tuple):
        return [_constant(item) for item in value]
    if isinstance(value, frozenset):  # its order differs between processes
        return {"frozenset": sorted((_constant(item) for item in value), key=codec.digest)}
    return [type(value).__name__, repr(value)]
