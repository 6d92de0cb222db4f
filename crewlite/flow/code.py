"""What a function does, as plain data: the same for as long as its code is, and what that code holds on to.

Of a function count its source, without decorators and indentation (where there is none that can be read, as at a
prompt, its compiled code), its defaults, and what its closure holds. What it finds by name in its module does not:
that is for `deps` to name. Sources are read, and values taken, as they are when this is asked.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

from crewlite import codec
from crewlite.codec import Json
from crewlite.errors import ConfigError, NotCodable

Version = str | int | None
Inside = frozenset[int]
"""The functions that are being looked into, by id."""


class NotYet(Exception):
    """A name in a closure has no value yet: it is given one further down. Not for users."""


@runtime_checkable
class Coded(Protocol):
    """What knows its own code, such as a step."""

    def step_code(self, inside: Inside) -> Json:
        """Its function's code, and what its author says belongs to it."""


def code_of(
    step: str, func: Callable[..., Any], version: Version, deps: tuple[object, ...], inside: Inside = frozenset()
) -> Json:
    """What the outcome of a step follows from, besides its arguments.

    Raises ConfigError for a closure or default that cannot be told by its value or its code, unless there is a
    `version` to stand for it. Raises NotYet where a name in a closure has no value.
    """
    look = _Look(step, version is not None, inside)
    return [look.of(func, "what it calls"), version, [look.of(dep, "one of its deps") for dep in deps]]


@dataclass(frozen=True, slots=True)
class _Look:
    """Looks into what a step is made of."""

    step: str
    lenient: bool
    """What cannot be told counts by its class alone."""
    inside: Inside

    def of(self, value: Any, what: str) -> Json:
        """Anything: by its code if it has some, else by its value."""
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            source = _source(value)
            return {"class": codec.class_name(value), "source": source} if source else self._unknown(value, what)
        if isinstance(value, ModuleType):
            return self._module(value, what)
        if isinstance(value, Coded):
            return value.step_code(self.inside)
        if hasattr(value, "__wrapped__"):
            return self.of(value.__wrapped__, what)
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType):
            return {"builtin": f"{value.__module__}:{value.__qualname__}", "python": sys.version}
        if callable(value):  # what it does is not told by what it is
            return self._unknown(value, what)
        try:
            return {"value": codec.encode(value)}
        except NotCodable:
            return self._unknown(value, what)

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

    def _unknown(self, value: object, what: str) -> Json:
        if self.lenient:
            return {"opaque": codec.class_name(type(value))}
        raise ConfigError(
            f"@step {self.step!r}: a later run could not tell whether {what} ({value!r}) is still the same; name it in "
            f"version=, or pass it as an argument"
        )


def _closure(func: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            raise NotYet(name) from None


def _source(thing: type | CodeType) -> str | None:
    """The lines that something was written in; None where they cannot be read."""
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return None


def _written(code: CodeType) -> str | None:
    """The source of a function from its `def` on. None for a lambda, whose lines may hold others."""
    source = _source(code)
    try:
        found = ast.parse(source).body[0] if source else None
    except (SyntaxError, IndexError):  # text in it stands further left than the function; the file is another by now
        return None
    if not source or not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    return "\n".join(source.split("\n")[found.lineno - 1 : found.end_lineno])


def _compiled(code: CodeType) -> Json:
    """A function as the interpreter has it, which is another for each release of Python."""
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
    if isinstance(value, frozenset):  # in another order in each process
        return {"frozenset": sorted((_constant(item) for item in value), key=codec.digest)}
    return [type(value).__name__, repr(value)]
