"""Steps that are called in threads of the user's own: `bound` carries the running step into them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, ParamSpec, TypeVar

from crewlite import codec
from crewlite.durable import Scope, scope
from crewlite.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
Json = Any

_bound_scope: ContextVar[Scope | None] = ContextVar("crewlite_bound_scope", default=None)


class Call(NamedTuple):
    """A function call, as the address of a step that it requests beside others identifies it."""

    told: Json = None
    """The function and its arguments; the same on every resume."""
    held: tuple[object, ...] = ()
    """What `told` hides: arguments that cannot be encoded, and what else the function holds."""


_NO_CALL = Call()
_call: ContextVar[Call] = ContextVar("crewlite_call", default=_NO_CALL)
bound_scope: Callable[[], Scope | None] = _bound_scope.get
"""Returns the scope that `bound` has brought to the calling thread; None in any other code."""
call: Callable[[], Call] = _call.get
"""Returns the `bound` call that the calling thread executes; an empty one in other code."""


def hides(known: Json) -> bool:
    """Return whether data from `codec.known` do not tell all: they stand for an object of some class, or a secret."""
    text = codec.dumps(known)
    return b'"opaque"' in text or b'"$":"secret"' in text


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

    @functools.wraps(fn)
    def in_thread(*args: P.args, **kwargs: P.kwargs) -> R:
        own = context.copy()  # because only one thread at a time can enter a context
        given = [(each, codec.known(each)) for each in (args, kwargs)]
        held = [each for each, known in given if hides(known)] + [getattr(fn, "__self__", None)]
        held += [cell.cell_contents for cell in getattr(fn, "__closure__", None) or () if cell != types.CellType()]
        told = [_call.get().told, getattr(fn, "__qualname__", ""), *(known for _, known in given)]
        own.run(_call.set, Call(told, (*_call.get().held, *held)))
        return own.run(fn, *args, **kwargs)

    return in_thread
