"""Warn when code blocks an event loop on which another thread depends: if each waits for the other, both wait for ever.

The usual cause is a coroutine that waits for threads without `await`, as the end of a `with ThreadPoolExecutor()` does.
This module also keeps a run from holding up the loop of its caller.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable
from types import FrameType

from crewlite.lazy import asyncio
from crewlite.system.steady_clock import steady
from crewlite.texts import tracebacks
from crewlite.texts.logs import logger

log = logger("crewlite.run")
_PATIENCE = 5.0  # seconds that a loop may be busy with one piece of code
_TURN = 0.01  # seconds of work after which a run gives its loop a turn
_warned_about = set[str]()
"""The code that a warning has named already, so that each is named once."""


class LoopWatch:
    """Watches an event loop for a thread that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_asked, self._until = False, 0.0

    def look(self) -> None:
        """Schedule a callback on the loop every 5 seconds, and log a warning if the last one has not run."""
        now = steady()
        if now < self._until:
            return
        self._until = now + _PATIENCE
        if not self._is_asked:
            self._is_asked = True
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed: nothing blocks it
                self._is_asked = False
        elif (place := _place(self._loop)) not in _warned_about:
            _warned_about.add(place)
            log.warning(
                "%s has blocked an event loop for %g s, and this thread waits for that loop. If the code there waits "
                "for this thread, neither goes on: wait with `await` there, or take `async` from its `def`",
                place,
                _PATIENCE,
            )

    def _answer(self) -> None:
        self._is_asked = False


def _place(loop: asyncio.AbstractEventLoop) -> str:
    """Return the code that runs on a loop at this moment, such as "app.py:12 in collect".

    It is found by the stack frame of the loop or, for a loop that is not written in Python, by that of its task.
    """
    task = asyncio.current_task(loop)
    coroutine = getattr(task and task.get_coro(), "cr_frame", None)
    for frame in sys._current_frames().values():
        outer: FrameType | None = frame
        while outer is not None:
            turns = outer.f_code.co_name == "run_forever" and outer.f_locals.get("self") is loop
            if turns or outer is coroutine:
                return tracebacks.users_place(frame)
            outer = outer.f_back
    return "Other code"


def has_ready(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether tasks or callbacks wait for the next turn of this loop, on its own thread.

    True also for a loop whose queue cannot be read: only those of asyncio have the attribute.
    """
    return bool(getattr(loop, "_ready", True))


class Turns:
    """The turns that a run gives its event loop where it waits for nothing, so that it does not hold up other code."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = time.perf_counter() + _TURN

    def due(self) -> Awaitable[None] | None:
        """Return an awaitable that gives the loop a turn; None if it had one lately."""
        now = time.perf_counter()
        if now < self._due:
            return None
        self._due = now + _TURN
        return asyncio.sleep(0)
