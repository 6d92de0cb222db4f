"""Call the async core from blocking code: the one place where a caller blocks until a run has ended."""

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
    """Run `work` on the background loop, wait for it and return its result. Works in notebooks beside their own loop.

    Ctrl-C cancels the run, waits at most 2 seconds until its journal is closed, prints `how_to_go_on()` and raises
    KeyboardInterrupt, which ends a script with status 130. A second Ctrl-C does not wait. A signal that `on_events`
    names, or a handler of the program that raises SystemExit, ends the run in the same way.

    Raises OnLoopThread, naming `verb`, if called on the background loop itself, and what `work` raises.
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
            with contextlib.suppress(KeyboardInterrupt):  # a second one: do not wait
                until = time.monotonic() + GRACE
                waiting.cut(future)
                if not ended.wait(max(0.0, until - time.monotonic())):
                    _say("The run did not stop within 2 s; what it recorded is safe.")
            _say(f"\nInterrupted. {how_to_go_on()}")
            raise


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal itself may be gone
        print(text, file=sys.stderr)
