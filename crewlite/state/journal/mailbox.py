"""Calls between threads: from any thread to a run, and from the thread that writes to those who wait for a commit.

Calls to a run execute on the run's thread; after its end, also on the caller's thread. So after the end of a run no
caller waits for an event loop that has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable

from crewlite.texts.logs import logger

log = logger("crewlite.state")
Done = Callable[[BaseException | None], None]
"""Called with None once all is written, or with the error if it was not."""


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


def call_back(waiting: Iterable[tuple[Done, asyncio.AbstractEventLoop | None]], error: BaseException | None) -> None:
    """Call each: on its event loop, or on this thread if it has none."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Done]] = {}
    here: list[Done] = []  # list[Done]() takes as long as the rest of this
    for done, loop in waiting:
        (by_loop.setdefault(loop, []) if loop else here).append(done)
    for its_loop, dones in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nothing awaits them
            its_loop.call_soon_threadsafe(_call_all, dones, error)
    if here:
        _call_all(here, error)  # last, as it may take time


def _call_all(dones: list[Done], error: BaseException | None) -> None:
    for done in dones:
        try:
            done(error)
        except Exception:  # a mistake of crewlite: the other runs, which wait for theirs, hear of their commits
            log.exception("what was to follow a commit has failed")
