"""How a function of the user gives its result: it returns it, it is awaited, or it yields and so returns nothing."""

from __future__ import annotations

import functools
import inspect


def is_async(fn: object) -> bool:
    """Return whether calling `fn` gives something to await."""
    return any(map(inspect.iscoroutinefunction, _called(fn)))


def is_generator(fn: object) -> bool:
    """Return whether calling `fn` gives a generator, sync or async, and so runs nothing of its code."""
    return any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in _called(fn))


def _called(fn: object) -> tuple[object, object]:
    """Return what a call of `fn` may run: the function itself, or the `__call__` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn, getattr(fn, "__call__", None)  # noqa: B004 - it is looked at, not asked for
