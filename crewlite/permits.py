"""The limit on blocking calls of users that run at once in this process.

Each call takes a thread, and a process must not start any number of them. Each level of nesting has its own permits: a
call inside another call does not compete with that one for a permit, so calls never wait for each other in a circle.
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
_PATIENCE = 30.0  # if no call of a level has ended for so many seconds, one more of that level starts


def width() -> int:
    """Return the number of permits per level: CREWLITE_MAX_CONCURRENCY, or 32. Raises ConfigError for a bad number."""
    said = os.environ.get(VARIABLE)
    if said is None:
        return _DEFAULT
    if not said.isascii() or not said.isdecimal() or int(said) < 1:
        raise ConfigError(f"{VARIABLE} is {said!r}; wanted a whole number, 1 or more")
    return int(said)


async def permitted(call: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
    """Await `call` once a permit is free. A cancelled call frees its permit at once, while its thread may still run."""
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
    """The permits of one level: of calls that are nested equally deep."""

    def __init__(self) -> None:
        self._lock = lock()  # calls are awaited on loops of several threads
        self._taken = 0
        self._most = _DEFAULT
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, futures.Future[None]]] = deque()
        self._given_back = time.monotonic()

    async def take(self, most: int) -> None:
        """Wait until fewer than `most` permits are taken, then take one. First come, first served."""
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
        except (asyncio.CancelledError, GeneratorExit):  # GeneratorExit if the loop was closed
            if not mine.cancel():  # the permit was given meanwhile
                self.give_back()
            raise

    def give_back(self) -> None:
        """Return a permit, and give it to the next call that waits."""
        with self._lock:
            self._taken -= 1
            self._given_back = time.monotonic()
            while self._taken < self._most and self._next():
                pass

    def _next(self) -> bool:
        """Give a permit to the call that has waited longest. Returns False if none waits."""
        while self._waiting:
            loop, waits = self._waiting.popleft()
            if not loop.is_closed() and waits.set_running_or_notify_cancel():
                self._taken += 1
                waits.set_result(None)
                return True
        return False

    def _when_stuck(self) -> None:
        """Start one more call if none has ended for a while.

        The running calls may be waiting for it in a way that is not visible here, such as through a thread of the user.
        """
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
