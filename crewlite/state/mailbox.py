"""What other threads ask of a run: it is done on the run's own thread, or, once the run has ended, refused on theirs.

So nobody waits for a loop that stands still, or for a run that is over.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Acts for the thread that makes it, in the order they are asked for. Each looks by itself if it is too late."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._acts = deque[Callable[[], None]]()
        self._closed = False

    def do(self, act: Callable[[], None]) -> None:
        """Have something done; at once, on the thread itself. Raises RuntimeError if the loop was closed too early."""
        if threading.get_ident() == self._thread:
            act()
            return
        self._acts.append(act)
        self._loop.call_soon_threadsafe(self._serve)
        if self._closed:  # the loop may stand still
            self._serve()

    def close(self) -> None:
        """From here on the loop is not waited for; what is left is done now."""
        self._closed = True
        self._serve()

    def _serve(self) -> None:
        while self._acts:
            try:
                act = self._acts.popleft()
            except IndexError:  # another thread took the last one
                return
            act()
