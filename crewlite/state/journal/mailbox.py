"""Calls from other threads to a run: they execute on the run's thread; after its end, also on the caller's thread.

So after the end of a run no caller waits for an event loop that has stopped.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Executes the calls of other threads on the thread that created it, in the order in which they were made.

    A call made on that thread itself executes at once, ahead of calls that are queued. After `close()`, a queued call
    executes on whichever thread comes first, the caller's or the creator's, so calls may overlap. Every call has to
    check for itself whether the run has ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._acts = deque[Callable[[], None]]()
        self._closed = False

    def do(self, act: Callable[[], None]) -> None:
        """Execute a call on the run's thread: at once if this is that thread, otherwise queued.

        Does not wait for a queued call, unless the mailbox is closed. Raises RuntimeError if the loop is closed; the
        call then stays queued until `close()`.
        """
        if threading.get_ident() == self._thread:
            act()
            return
        self._acts.append(act)
        if not self._closed:
            self._loop.call_soon_threadsafe(self._serve)
        if self._closed:  # the loop may stand still
            self._serve()

    def close(self) -> None:
        """Execute the queued calls. From now on, `do` executes calls on the caller's thread as well."""
        self._closed = True
        self._serve()

    def forget(self) -> None:
        """Drop the queued calls, and close: in a forked child nobody waits for them."""
        self._acts.clear()
        self._closed = True

    def _serve(self) -> None:
        while self._acts:
            try:
                act = self._acts.popleft()
            except IndexError:  # another thread took the last one
                return
            act()
