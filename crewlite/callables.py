"""How a function of the user gives its result: it returns it, it is awaited, or it yields and so returns nothing."""

from __future__ import annotations

import functools
import inspect


def is_async(fn: object) -> bool:
    """Return whether calling `fn` gives something to await."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def is_generator(fn: object) -> bool:
    """Return whether calling `fn` gives a generator, sync or async, and so runs nothing of its code."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    ways = fn, getattr(fn, "__call__", None)  # noqa: B004 - objects may be generators too
    return any(inspect.isgeneratorfunction(way) or inspect.isasyncgenfunction(way) for way in ways)
