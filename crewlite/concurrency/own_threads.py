"""Steps that are called in threads other than the run's: `bound` carries the running step into a thread of the user's.

An async function that calls a blocking verb, such as `crew.kickoff()` or `llm.call()`, would stop the loop on which the
run itself goes on. It is called in a thread, on an event loop of its own, which it may block.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from types import CodeType, FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from crewlite.concurrency import background
from crewlite.concurrency.unawaited import shielded
from crewlite.durable import Scope, scope
from crewlite.encoding import codec
from crewlite.encoding.comparable import Seen, comparable, copied_apart, seen
from crewlite.errors import ConfigError
from crewlite.lazy import asyncio, futures
from crewlite.system.steady_clock import new_loop

P = ParamSpec("P")
R = TypeVar("R")
Json = Any
_BLOCKING = frozenset({"call", "execute_sync", "execute_task", "kickoff", "kickoff_for_each"})
"""Methods of definitions and models that block until the work is done."""
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_IS_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LOADS = ("LOAD_METHOD", "LOAD_ATTR")  # Python's instructions that name a method; 3.12 has the second one alone
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_STARTERS = frozenset({"threading", "concurrent", "asyncio", "anyio"})
"""Libraries whose functions start calls in threads."""
_PATIENCE = 0.25  # seconds that a cancelled call on a loop of its own is given to end

_bound_scope: ContextVar[Scope | None] = ContextVar("crewlite_bound_scope", default=None)


class ThreadCall(NamedTuple):
    """The call that a thread of the user's executes. It tells the thread's steps from those of other threads."""

    frame: FrameType | None = None
    """Where it is executed. A thread without this frame in its stack has only inherited the context variables."""
    key: Json = None
    """The function with its arguments, and the calls around it."""
    is_bound: bool = False
    """Whether it is a `bound` call, rather than one in a thread that was given the context in another way."""
    holds: Seen = Seen(None)
    """A snapshot of the function, its arguments and closure, and of the calls around it, with the objects that `key`
    leaves out."""


_NO_CALL = ThreadCall()
_first_seen: WeakKeyDictionary[Scope, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()
"""By scope and `id()`: each mutable object that was passed to a thread, and a copy made when it was first seen."""
_call: ContextVar[ThreadCall] = ContextVar("crewlite_call", default=_NO_CALL)
call_here: Callable[[], ThreadCall] = _call.get
"""Returns the call that this thread of the user's executes; an empty one in other code."""
bound_scope: Callable[[], Scope | None] = _bound_scope.get
"""Returns the scope that `bound` has brought to the calling thread; None in any other code."""


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
    if scope().loop and background.in_foreign_thread() and not background.running_loop():
        note_call(scope())
    context = copy_context()
    context.run(_bound_scope.set, scope())
    process = os.getpid()

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if os.getpid() != process:  # forked: the run is at work in the parent alone
            return fn(*args, **kwargs)
        own = context.copy()  # because only one thread at a time can enter a context
        own.run(_note_bound, fn, args, kwargs)
        return own.run(fn, *args, **kwargs)

    return call


def note_foreign(context: Context, asker: Scope) -> None:
    """Note in `context` that a thread of the user's requests a step of `asker`, and the call that it executes."""
    note_call(asker)
    context.run(_call.set, call_here())
    context.run(_bound_scope.set, asker)


def note_call(asker: Scope) -> None:
    """Note the call that this thread of the user's executes. `asker`: the scope of its context.

    Without `bound`, that is the outermost call of the thread, with the arguments as they are when it first requests a
    step.
    """
    around, frames = call_here(), _frames()
    if around.frame not in frames:
        own = next(one for one in reversed(frames) if _package(one) not in _STARTERS)
        holds = _seen_in(around, own.f_code, _arguments(own), _held(own))
        _call.set(ThreadCall(own, [around.key, call_in(own, asker)], holds=holds))


def _note_bound(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note that this thread executes a `bound` call."""
    while isinstance(fn, functools.partial):
        fn, args, kwargs = fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}
    asker = bound_scope()
    if asker is not None and asker.loop:
        args = _at_first(args, asker)
        kwargs = {name: _at_first(value, asker) for name, value in kwargs.items()}
    around = call_here()
    key = [around.key, getattr(fn, "__qualname__", ""), comparable(args), comparable(kwargs)]
    _call.set(ThreadCall(sys._getframe(1), key, is_bound=True, holds=_seen_in(around, fn, args, kwargs)))


def _seen_in(around: ThreadCall, *parts: Any) -> Seen:
    """Make a snapshot of the parts of a call, which may change what they hold."""
    return Seen(object(), {"around": around.holds, **{number: seen(part) for number, part in enumerate(parts)}})


def _frames() -> list[FrameType]:
    """Return the stack of this thread, the innermost call first."""
    frame: FrameType | None = sys._getframe()
    frames = list[FrameType]()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


def call_in(frame: FrameType, asker: Scope | None = None) -> Json:
    """Return the function that a frame executes, and its arguments as they are now.

    With `asker`, mutable arguments are as they were when a thread with that scope first got them.
    """
    arguments = _arguments(frame)
    if asker is not None:
        arguments |= arguments.pop(inspect.getargvalues(frame).keywords or "", {})
        arguments = {name: _at_first(value, asker) for name, value in arguments.items()}
    return [frame.f_code.co_qualname, {name: comparable(value) for name, value in arguments.items()}]


def _arguments(frame: FrameType) -> dict[str, Any]:
    given = inspect.getargvalues(frame)
    names = [*given.args, *filter(None, (given.varargs, given.keywords))]
    return {name: given.locals[name] for name in names if name in given.locals}


def _held(frame: FrameType) -> dict[str, Any]:
    """Return the variables of enclosing functions that the function of a frame reads and never sets."""
    names = frozenset(frame.f_code.co_freevars) - _set_by(frame.f_code)
    return {name: value for name, value in frame.f_locals.items() if name in names} if names else {}


@functools.lru_cache(maxsize=1024)
def _set_by(code: CodeType) -> frozenset[str]:
    """Return the variables in cells that a function, or one that is defined in it, sets: `nonlocal done; done += 1`."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname in ("STORE_DEREF", "DELETE_DEREF")}
    return frozenset(own).union(*(_set_by(one) for one in code.co_consts if isinstance(one, CodeType)))


def _at_first(value: Any, asker: Scope) -> Any:
    """Return an argument as it was when the first thread got it.

    Threads fill a list that they share, such as one for their results, in random order, so its later content is random.
    """
    if type(value) in codec.IMMUTABLE:
        return value
    if type(value) is tuple:
        return tuple(_at_first(item, asker) for item in value)
    seen = _first_seen.setdefault(asker, {})
    if id(value) not in seen:
        seen.setdefault(id(value), (value, copied_apart(value)))
    return seen[id(value)][1]


def blocks(fn: Callable[..., object]) -> bool:
    """Return whether a coroutine function itself calls a method that blocks, such as `crew.kickoff()`.

    Functions that it wraps count, and so do comprehensions and coroutine functions defined inside it. Plain functions
    inside it do not, as they may be called in threads.
    """
    return any(isinstance(code, CodeType) and _blocks(code) for code in map(_code, _layers(fn)))


def _layers(fn: Any) -> Iterator[Any]:
    """Yield a function, and each that it wraps as `functools.wraps` or `functools.partial` tells."""
    while fn is not None:
        yield fn
        fn = fn.func if isinstance(fn, functools.partial) else getattr(fn, "__wrapped__", None)


def _code(fn: Any) -> CodeType | None:
    called = getattr(type(fn), "__call__", None)  # noqa: B004 - it is looked at, not asked for
    return getattr(fn, "__code__", None) or getattr(called, "__code__", None)


@functools.lru_cache(maxsize=1024)  # of code: a method would keep its flow
def _blocks(code: CodeType) -> bool:
    if not code.co_flags & _IS_ASYNC:
        return False
    if not _BLOCKING.isdisjoint(_called(code)):
        return True
    return any(_blocks(inner) for inner in code.co_consts if isinstance(inner, CodeType))


def _called(code: CodeType) -> Iterator[str]:
    """Yield the names of the methods that code calls without `await`, comprehensions in it included.

    A call belongs to the method name that was loaded at the same place in the source.
    """
    loaded = dict[Any, str]()
    for instruction, following in itertools.pairwise(dis.get_instructions(code)):
        place = instruction.positions and (instruction.positions.lineno, instruction.positions.col_offset)
        if instruction.opname in _LOADS:
            loaded[place] = instruction.argval
        elif instruction.opname in _CALLS and following.opname != "GET_AWAITABLE":
            yield loaded.get(place, "")
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_name in _COMPREHENSIONS:
            yield from _called(inner)


async def on_own_loop(
    in_thread: Callable[..., Coroutine[Any, Any, R]],
    fn: Callable[P, Coroutine[Any, Any, R]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a coroutine function on an event loop of its own, in the thread that `in_thread` calls, bound as by `bound`.

    If the caller is cancelled, so is the call, where it next awaits something. The caller waits a moment for its end.
    """
    begun = futures.Future[Any]()

    async def call() -> R:
        begun.set_result(asyncio.current_task())  # InvalidStateError if it was cancelled
        return await fn(*args, **kwargs)

    @functools.wraps(fn)
    def run() -> R:  # with context variables of its own, as `in_thread` gives each call
        _bound_scope.set(scope())
        _note_bound(fn, args, kwargs)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(call())

    running = asyncio.ensure_future(in_thread(run))
    try:
        return await shielded(running)
    except asyncio.CancelledError:
        if not begun.cancel():
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile, and its loop is closed
                begun.result().get_loop().call_soon_threadsafe(begun.result().cancel)
            await asyncio.wait({running}, timeout=_PATIENCE)
        raise
    finally:
        running.cancel()
