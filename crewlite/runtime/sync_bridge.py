"""From plain code into the async core: the one place where a caller blocks until a run has ended."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from crewlite import background
from crewlite.errors import OnLoopThread
from crewlite.runtime.handlers import GRACE, Waiting

T = TypeVar("T")


def run_sync(verb: str, work: Callable[[], Coroutine[Any, Any, T]], how_to_go_on: Callable[[], str]) -> T:
    """Do `work` on the background loop and wait for it. Usable in notebooks: the caller's loop plays no part.

    Ctrl-C cancels the run, waits at most 2 seconds until its journal is in order, says how to go on and raises
    KeyboardInterrupt, which ends a script with status 130. A second Ctrl-C does not wait. So does whatever else ends
    the program: a signal that `on_events` names, or a handler of its own that raises SystemExit.
    """
    if background.on_loop_thread():
        raise OnLoopThread(verb, f"await a{verb.removesuffix('_for_each')}()")
    ended = threading.Event()

    async def in_full() -> T:
        try:
            return await work()
        finally:
            ended.set()

    with Waiting() as waiting:
        future = background.submit(in_full())
        try:
            return waiting.wait(future)
        except (KeyboardInterrupt, SystemExit):
            until = time.monotonic() + GRACE
            waiting.cut(future)
            if not ended.wait(max(0.0, until - time.monotonic())):
                _say("The run did not stop within 2 s; what it recorded is safe.")
            _say(f"\nInterrupted. {how_to_go_on()}")
            raise


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be what has gone
        print(text, file=sys.stderr)
