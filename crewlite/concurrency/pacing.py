"""Pacing: at most so many model calls begin within a minute, over all runs, tasks and threads that share a pace.

A call reserves a turn with each pace that applies to it, and begins once it has all turns. A reserved turn counts until
it is given back, so no minute ever has more calls than a pace allows, whatever the call waits for.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol

from crewlite.lazy import asyncio
from crewlite.system.forked import in_child, lock
from crewlite.system.steady_clock import steady

WINDOW = 60.0
"""Seconds in which at most `max_rpm` calls begin."""

_numbers = itertools.count()
_all: weakref.WeakSet[Pace] = weakref.WeakSet()


class Clock(Protocol):
    """The clock that paces use."""

    def now(self) -> float:
        """Return the seconds since some moment; they never decrease."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class _Real:
    def now(self) -> float:
        return steady()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


_REAL = _Real()
_clock: ContextVar[Clock] = ContextVar("crewlite_clock", default=_REAL)


@contextlib.contextmanager
def paced_by(clock: Clock) -> Iterator[None]:
    """Have paces use another clock inside the block, for tests that do not wait."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)


class Pace:
    """The calls that began within the last minute, and those that wait for their turn, first come, first served.

    A definition has one, which its copies share. A copy for another process has a new, empty one.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        """Calls reserve turns in this order, so that no two calls wait for each other."""
        self._lock = lock()  # calls are made on loops of several threads
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Forget all calls."""
        self._begun: deque[float] = deque()
        self._reserved = 0
        self._waiting: dict[object, None] = {}

    async def reserve(self, per_minute: int) -> None:
        """Wait for a turn. The caller begins the call then, or gives the turn back."""
        clock, me = _clock.get(), object()
        with self._lock:
            self._waiting[me] = None
        try:
            while (wait := self._wait(me, per_minute, clock.now())) > 0:
                await clock.sleep(wait)
        finally:
            with self._lock:
                self._waiting.pop(me, None)

    def begin(self) -> None:
        """Count the call with a reserved turn as one that begins now."""
        now = _clock.get().now()
        with self._lock:
            self._reserved -= 1
            self._begun.append(now)

    def give_back(self) -> None:
        """Give back a reserved turn: its call is not made."""
        with self._lock:
            self._reserved -= 1

    def due(self, per_minute: int) -> float:
        """Return the seconds that a new call would have to wait at least; 0 if it need not wait."""
        with self._lock:
            return self._due(len(self._waiting), per_minute, _clock.get().now())

    def _wait(self, me: object, per_minute: int, now: float) -> float:
        """Return the seconds after which to call this again; 0 if it has reserved a turn."""
        with self._lock:
            due = self._due(list(self._waiting).index(me), per_minute, now)
            if not due:
                del self._waiting[me]
                self._reserved += 1
            return due

    def _due(self, ahead: int, per_minute: int, now: float) -> float:
        """Return the seconds until a call may get its turn while `ahead` others wait before it."""
        while self._begun and self._begun[0] <= now - WINDOW:
            self._begun.popleft()
        behind = ahead - (per_minute - len(self._begun) - self._reserved)
        if behind < 0:
            return 0.0
        return (self._begun[behind] if behind < len(self._begun) else now) + WINDOW - now

    def __reduce__(self) -> Any:
        return Pace, ()


@in_child
def _forget() -> None:
    for pace in list(_all):  # a child has none of the threads in which calls wait
        pace.forget()
