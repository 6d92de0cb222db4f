"""Calls that other threads make to a run. They are made on the run's own thread; after the run's end, on the caller's.

So nobody waits for a loop that stands still, or for a run that is over.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Makes calls on the thread that created it, in order. Each call checks itself whether the run has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._acts = deque[Callable[[], None]]()
        self._closed = False

    def do(self, act: Callable[[], None]) -> None:
        """Make a call; at once if this is the run's thread. Raises RuntimeError if the loop was closed."""
        if threading.get_ident() == self._thread:
            act()
            return
        self._acts.append(act)
        self._loop.call_soon_threadsafe(self._serve)
        if self._closed:  # the loop may stand still
            self._serve()

    def close(self) -> None:
        """Make the calls that are left. From here on, callers make theirs on their own thread."""
        self._closed = True
        self._serve()

    def _serve(self) -> None:
        while self._acts:
            try:
                act = self._acts.popleft()
            except IndexError:  # another thread took the last one
                return
            act()
