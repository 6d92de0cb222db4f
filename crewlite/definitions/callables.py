"""How a function of the user gives its result (returned, awaited, yielded), what types it names and what it holds."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from types import CodeType, FunctionType
from typing import Any, get_type_hints

from crewlite.encoding.codec import Json


def is_async(fn: object) -> bool:
    """Return whether calling `fn` gives something to await."""
    return any(map(inspect.iscoroutinefunction, _called(fn)))


def is_generator(fn: object) -> bool:
    """Return whether calling `fn` gives a generator, sync or async, and so runs nothing of its code."""
    return any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in _called(fn))


def types_of(fn: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the type hints of the parameters of `fn`, and of its "return"; {} if they cannot be evaluated."""
    try:
        return get_type_hints(fn)
    except (NameError, TypeError):
        return {}


@functools.lru_cache(maxsize=1024)  # bounded: a cached function keeps alive what it refers to
def parameters_of(fn: Callable[..., object]) -> tuple[frozenset[str], bool]:
    """Return (the names of a function's parameters, whether it takes any other keyword, too)."""
    parameters = inspect.signature(fn).parameters.values()
    return frozenset(p.name for p in parameters), any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def only(names: Collection[str] | None, context: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the context with these names; all of it for None."""
    return context if names is None else {name: value for name, value in context.items() if name in names}


def context_for(fn: Callable[..., object], context: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the context that a function's signature takes."""
    names, takes_more = parameters_of(fn)
    return context if takes_more else only(names, context)


def held(fn: object) -> dict[str, Any]:
    """Return the variables of enclosing functions that a function uses and that are set. {} for other objects."""
    found = dict[str, Any]()
    if isinstance(fn, FunctionType):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):
                found[name] = cell.cell_contents
    return found


def shape(constant: object) -> Json:
    """Return JSON that identifies a constant in a function's code, the same in every process: no files and lines."""
    match constant:
        case CodeType():
            constants = [shape(one) for one in constant.co_consts]
            return [constant.co_code.hex(), *map(list, (constant.co_names, constant.co_freevars)), constants]
        case tuple():
            return [shape(one) for one in constant]
        case frozenset():  # its order is another one in each process
            return sorted(repr(one) for one in constant)
    return repr(constant)


def _called(fn: object) -> tuple[object, object]:
    """Return what a call of `fn` may run: the function itself, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn, getattr(fn, "__call__", None)  # noqa: B004 - it is looked at, not asked for
