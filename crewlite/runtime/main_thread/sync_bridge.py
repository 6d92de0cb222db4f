"""Call the async core from blocking code: the one place where a caller blocks until a run has ended."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from crewlite import background, durable, kinds
from crewlite.errors import OnLoopThread
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.runtime.main_thread.handlers import GRACE, Waiting

uncaught = lazy("crewlite.cli.uncaught")  # on the roof: how errors that end a program are printed

T = TypeVar("T")


def run_sync(kind: Kind, verb: str, work: Callable[[], Coroutine[Any, Any, T]], how_to_go_on: Callable[[], str]) -> T:
    """Run `work` on the background loop, wait for it and return its result. Works in notebooks beside their own loop.

    Ctrl-C cancels the run, waits at most 2 seconds until its journal is closed, prints `how_to_go_on()` and raises
    KeyboardInterrupt, which ends a script with status 130. A second Ctrl-C does not wait. A signal that `on_events`
    names, or a handler of the program that raises SystemExit, ends the run in the same way.

    Raises OnLoopThread, naming the `verb` of this `kind` of definition, as `check_may_block` does, and what `work`
    raises.
    """
    check_may_block(verb, "" if kind is kinds.TRIAL else f"{kind}.a{verb}(...)")
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
            cut_short(partial(waiting.cut, future), ended, how_to_go_on)
            raise


def cut_short(cut: Callable[[], object], ended: threading.Event, how_to_go_on: Callable[[], str]) -> None:
    """Cut a run after Ctrl-C, wait at most 2 seconds until it has ended, and print how to go on.

    A second Ctrl-C does not wait.
    """
    uncaught.install()
    with contextlib.suppress(KeyboardInterrupt):
        until = time.monotonic() + GRACE
        cut()
        if not ended.wait(max(0.0, until - time.monotonic())):
            _say("The run did not stop within 2 s; what it recorded is safe.")
    _say(f"\nInterrupted. {how_to_go_on()}")


def check_may_block(verb: str, instead: str) -> None:
    """Raise OnLoopThread for `verb` on the background loop, or on the loop of the run around it, which it would block.

    `instead`: the call to await there; "" if there is none.
    """
    run_loop = durable.scope().loop
    in_run = run_loop is not None and run_loop is background.running_loop()
    if not in_run and not background.on_loop_thread():
        return
    ways = [f"write `await {instead}`"] if instead else []
    if in_run:
        ways.append("take `async` from the `def` in which it is called, which then runs in a thread of its own")
    raise OnLoopThread(verb, ", or ".join(ways) or "call it in a thread of its own")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal itself may be gone
        print(text, file=sys.stderr)
