"""How a function of the user gives its result (returned, awaited or yielded), and the types that it names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints


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


def _called(fn: object) -> tuple[object, object]:
    """Return what a call of `fn` may run: the function itself, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn, getattr(fn, "__call__", None)  # noqa: B004 - it is looked at, not asked for
