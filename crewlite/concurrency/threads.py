"""Daemon threads for calls that block: one that has ended its call makes the next call of the same run.

There are as many as calls run at once, so calls that nest never wait for one another, and none delays the exit of the
process. Runs share none, so what a call leaves in a `threading.local` stays in its run.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from crewlite.errors import ProgramEnding, came_from
from crewlite.lazy import futures

Call = Callable[[], None]
Calls = queue.SimpleQueue[tuple[Call, str] | None]

_REFUSALS = " interpreter shutdown", " new futures after shutdown", " atexit after shutdown"
"""The last words of the errors with which Python refuses a thread because the program ends."""


def begin(call: Call, name: str) -> None:
    """Make a call that raises nothing, in a thread with this name that makes no other call meanwhile."""
    (_mine.get() or _Threads(over=True)).begin(call, name)


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises ProgramEnding if Python refuses it because the program ends."""
    try:
        thread.start()
    except RuntimeError as error:
        check_program_goes_on(error)
        raise


def check_program_goes_on(error: BaseException) -> None:
    """Raise ProgramEnding if an error is, or came from, Python's refusal of a thread because the program ends.

    Once the main thread has ended, the threads of asyncio and of executors are refused; by Python 3.12.1 all threads.
    """
    if isinstance(error, ProgramEnding):
        return
    for cause in (error, *came_from(error)):
        said = cause.args[0] if isinstance(cause, RuntimeError) and cause.args else None
        if isinstance(said, str) and said.endswith(_REFUSALS) and _are_refused():
            raise ProgramEnding(said) from error


def _are_refused() -> bool:
    """Return whether Python refuses a thread to a new executor. One that was shut down refuses all at any time."""
    try:
        with futures.ThreadPoolExecutor(1) as another:
            another.submit(int)
    except RuntimeError as error:
        return str(error).endswith(_REFUSALS)  # else the system has no more threads
    return False


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """During the block, calls reuse the threads of ended calls. A run has one block, with all that it kicks off."""
    if _mine.get():
        yield
        return
    mine = _Threads()
    token = _mine.set(mine)
    try:
        yield
    finally:
        mine.end()
        with contextlib.suppress(ValueError):  # a coroutine of a closed loop may end in another context
            _mine.reset(token)


class _Threads:
    """The threads of a run. Each waits at a queue of its own, which holds its next call, or None to end it."""

    def __init__(self, *, over: bool = False) -> None:
        self._over = over
        self._idle: list[Calls] = []
        self._process = os.getpid()

    def begin(self, call: Call, name: str) -> None:
        """Make the call in an idle thread, or in a new one."""
        if os.getpid() != self._process:  # a forked child, which has none of these threads
            self._process, self._idle = os.getpid(), []
        try:
            calls = self._idle.pop()
        except IndexError:
            calls = Calls()
            threading.Thread(target=self._work, args=(calls,), daemon=True).start()
        calls.put((call, name))

    def end(self) -> None:
        """End the idle threads now, and have each other one end after its call. Does not wait for them."""
        self._over = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().put(None)

    def _work(self, calls: Calls) -> None:
        me = threading.current_thread()
        while given := calls.get():
            call, me.name = given
            del given
            call()
            del call  # it holds its arguments and its result
            if self._over:
                return
            self._idle.append(calls)
            if self._over:  # `end` may have come before this thread was idle
                self.end()


_mine: ContextVar[_Threads | None] = ContextVar("crewlite_threads", default=None)
"""The threads of the run whose code this is."""
