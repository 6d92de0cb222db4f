"""The limit on blocking calls of users that run at once in this process.

Each call takes a thread, and a process must not start any number of them. Each level of nesting has its own permits: a
call inside another call does not compete with that one for a permit, so calls never wait for each other in a circle.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from crewlite.errors import ConfigError
from crewlite.lazy import asyncio, futures
from crewlite.system.forked import in_child, lock
from crewlite.system.steady_clock import steady

T = TypeVar("T")

VARIABLE = "CREWLITE_MAX_CONCURRENCY"
_DEFAULT = 32
_PATIENCE = 30.0  # if no call of a level has ended for so many seconds, one more of that level starts


def width() -> int:
    """Return the number of permits per level: CREWLITE_MAX_CONCURRENCY, or 32. Raises ConfigError for a bad number."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return _DEFAULT
    if not said.isascii() or not said.isdecimal() or int(said) < 1:
        raise ConfigError(f"{VARIABLE} is {said!r}; wanted a whole number, 1 or more")
    return int(said)


async def permitted(call: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Await `call` once a permit is free. A cancelled call frees its permit at once, while its thread may still run."""
    depth = _depth.get()
    level = _levels.get(depth) or _levels.setdefault(depth, _Level())
    permit = await level.take(width())
    token = _depth.set(depth + 1)
    try:
        return await call(*args, **kwargs)
    finally:
        level.give_back(permit)
        with contextlib.suppress(ValueError):  # a coroutine of a closed loop may end in another context
            _depth.reset(token)


class _Waiting(NamedTuple):
    """A call that waits for a permit. Once it has been given one, this object is the permit."""

    loop: asyncio.AbstractEventLoop
    given: futures.Future[None]


class _Level:
    """The permits of one level: of calls that are nested equally deep."""

    def __init__(self) -> None:
        self._lock = lock()  # calls are awaited on loops of several threads
        self._taken: dict[object, asyncio.AbstractEventLoop] = {}
        """The permits that are taken, each with the loop of the call. Those of a loop that was closed do not count."""
        self._most = _DEFAULT
        self._waiting: deque[_Waiting] = deque()
        self._given_back = steady()

    async def take(self, most: int) -> object:
        """Wait until fewer than `most` permits are taken, then take one and return it. First come, first served."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._most = most
            if self._is_free():
                permit = object()
                self._taken[permit] = loop
                return permit
            mine = _Waiting(loop, futures.Future())
            self._waiting.append(mine)
        given = asyncio.wrap_future(mine.given)
        try:
            while not (await asyncio.wait({given}, timeout=_PATIENCE))[0]:
                self._when_stuck()
        except (asyncio.CancelledError, GeneratorExit):  # GeneratorExit if the loop was closed
            if not mine.given.cancel():  # the permit was given meanwhile
                self.give_back(mine)
            raise
        return mine

    def give_back(self, permit: object) -> None:
        """Return a permit, and give it to the next call that waits. Does nothing for a permit that no longer counts."""
        with self._lock:
            if self._taken.pop(permit, None) is not None:
                self._given_back = steady()
            while self._waiting and self._is_free():
                self._next()

    def _is_free(self) -> bool:
        """Return whether a permit is left, once those of closed loops are not counted."""
        if len(self._taken) >= self._most:
            for permit in list(self._taken):  # the end of a call may give back its own at any moment
                if (loop := self._taken.get(permit)) and loop.is_closed():
                    self._taken.pop(permit, None)
        return len(self._taken) < self._most

    def _next(self) -> None:
        """Give a permit to the call that has waited longest, if any waits."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.loop.is_closed() and first.given.set_running_or_notify_cancel():
                self._taken[first] = first.loop
                first.given.set_result(None)
                return

    def _when_stuck(self) -> None:
        """Give the permits of closed loops to calls that wait; start one more call if none has ended for a while.

        The running calls may be waiting for it in a way that is not visible here, such as through a thread of the user.
        """
        with self._lock:
            while self._waiting and self._is_free():
                self._next()
            if steady() - self._given_back >= _PATIENCE:
                self._given_back = steady()
                self._next()


_levels: dict[int, _Level] = {}
_depth: ContextVar[int] = ContextVar("crewlite_depth", default=0)


@in_child
def _forget() -> None:
    _levels.clear()  # a child has none of the threads
    _depth.set(0)
