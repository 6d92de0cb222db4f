"""Steps that are called in threads of the user's own: `bound` carries the running step into them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

from crewlite import codec
from crewlite.durable import Scope, scope
from crewlite.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
Json = Any

_bound_scope: ContextVar[Scope | None] = ContextVar("crewlite_bound_scope", default=None)
_call_key: ContextVar[Json] = ContextVar("crewlite_call_key", default=None)
bound_scope: Callable[[], Scope | None] = _bound_scope.get
"""Returns the scope that `bound` has brought to the calling thread; None in any other code."""
call_key: Callable[[], Json] = _call_key.get
"""Returns the function and arguments of the `bound` call that the calling thread executes; None in other code."""


def bound(fn: Callable[P, R]) -> Callable[P, R]:
    """Return `fn` bound to the running step, for use in threads of your own: `pool.map(bound(fetch), pages)`.

    A thread does not inherit the run of the code that starts it: without `bound`, steps called there are plain calls
    that are not recorded. The step that calls `bound` must not end before the calls. Outside a run, the result behaves
    like `fn`. Raises ConfigError for an async function.
    """
    if inspect.iscoroutinefunction(fn):
        raise ConfigError(
            f"bound({getattr(fn, '__name__', fn)}): wanted a plain function. A coroutine needs no "
            f"bound(): await it as it is"
        )
    context = copy_context()
    context.run(_bound_scope.set, scope())
    process = os.getpid()

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if os.getpid() != process:  # forked: the run is at work in the parent alone
            return fn(*args, **kwargs)
        own = context.copy()  # because only one thread at a time can enter a context
        own.run(_call_key.set, [_call_key.get(), getattr(fn, "__qualname__", ""), *map(codec.known, [args, kwargs])])
        return own.run(fn, *args, **kwargs)

    return call
