"""The one door from plain code into the async core."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, TimeoutError as Late
from typing import Any, TypeVar

from crewlite import background
from crewlite.errors import OnLoopThread

T = TypeVar("T")
_GRACE = 2.0  # seconds that an interrupted run has to leave its journal in order
_POLL = 0.5 if sys.platform == "win32" else None  # a blocking wait does not hear Ctrl-C on Windows


def run_sync(verb: str, work: Callable[[], Coroutine[Any, Any, T]], how_to_go_on: Callable[[], str]) -> T:
    """Do `work` on the background loop and wait for it. Usable in notebooks: the caller's loop plays no part.

    Ctrl-C cancels the run, waits at most 2 seconds until its journal is in order, says how to go on and raises
    KeyboardInterrupt, which ends a script with status 130. A second Ctrl-C does not wait.
    """
    if background.on_loop_thread():
        raise OnLoopThread(verb)
    ended = threading.Event()

    async def whole() -> T:
        try:
            return await work()
        finally:
            ended.set()

    future = background.submit(whole())
    try:
        return _wait(future)
    except KeyboardInterrupt:
        future.cancel()
        if not ended.wait(_GRACE):
            print("The run did not stop within 2 s; what it recorded is safe.", file=sys.stderr)
        print(f"\nInterrupted. {how_to_go_on()}", file=sys.stderr)
        raise


def _wait(future: Future[T]) -> T:
    while True:
        try:
            return future.result(_POLL)
        except Late:
            if future.done():
                raise
