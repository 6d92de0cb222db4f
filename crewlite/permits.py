"""How many blocking calls of users run at once in this process.

A thread for every call that is asked for would be no good guest. A call inside another one is counted apart from it, so
each level of nesting has permits of its own: a call only ever waits for deeper ones, and none can wait in a circle.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from crewlite.errors import ConfigError
from crewlite.forked import in_child, lock
from crewlite.lazy import asyncio, futures

T = TypeVar("T")

VARIABLE = "CREWLITE_MAX_CONCURRENCY"
_DEFAULT = 32
_PATIENCE = 30.0  # seconds in which no call of a level has ended, after which one more of it begins


def width() -> int:
    """How many at once: CREWLITE_MAX_CONCURRENCY, else 32. Raises ConfigError for what is no such number."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return _DEFAULT
    if not said.isascii() or not said.isdecimal() or int(said) < 1:
        raise ConfigError(f"{VARIABLE} is {said!r}; wanted a whole number, 1 or more")
    return int(said)


async def permitted(call: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
    """Make a blocking call once a permit is free. A cancelled call returns its permit, though its thread goes on."""
    depth = _depth.get()
    level = _levels.get(depth) or _levels.setdefault(depth, _Level())
    await level.take(width())
    token = _depth.set(depth + 1)
    try:
        return await call(*args, **kwargs)
    finally:
        level.give_back()
        with contextlib.suppress(ValueError):  # a coroutine of a closed loop may end in another context
            _depth.reset(token)


class _Level:
    """The permits of the calls that are inside equally many others."""

    def __init__(self) -> None:
        self._lock = lock()  # calls are awaited on loops of several threads
        self._taken = 0
        self._most = _DEFAULT
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, futures.Future[None]]] = deque()
        self._given_back = time.monotonic()

    async def take(self, most: int) -> None:
        """Wait until fewer than `most` are taken; first come, first served."""
        with self._lock:
            self._most = most
            if self._taken < most:
                self._taken += 1
                return
            mine: futures.Future[None] = futures.Future()
            self._waiting.append((asyncio.get_running_loop(), mine))
        given = asyncio.wrap_future(mine)
        try:
            while not (await asyncio.wait({given}, timeout=_PATIENCE))[0]:
                self._when_stuck()
        except (asyncio.CancelledError, GeneratorExit):  # the latter when its loop was closed
            if not mine.cancel():  # it was given meanwhile
                self.give_back()
            raise

    def give_back(self) -> None:
        """One is free for the next."""
        with self._lock:
            self._taken -= 1
            self._given_back = time.monotonic()
            while self._taken < self._most and self._next():
                pass

    def _next(self) -> bool:
        """Give a permit to who waits longest; False if nobody does."""
        while self._waiting:
            loop, waits = self._waiting.popleft()
            if not loop.is_closed() and waits.set_running_or_notify_cancel():
                self._taken += 1
                waits.set_result(None)
                return True
        return False

    def _when_stuck(self) -> None:
        """Begin one more: those at work may wait for it in a way that nobody can see, as for a thread of their own."""
        with self._lock:
            if time.monotonic() - self._given_back >= _PATIENCE:
                self._given_back = time.monotonic()
                self._next()


_levels: dict[int, _Level] = {}
_depth: ContextVar[int] = ContextVar("crewlite_depth", default=0)


@in_child
def _forget() -> None:
    _levels.clear()  # a child has none of the threads
    _depth.set(0)
