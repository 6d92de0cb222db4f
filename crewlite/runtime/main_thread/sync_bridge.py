"""Call the async core from blocking code: the one place where a caller blocks until a run has ended."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from crewlite import durable, kinds
from crewlite.concurrency import background
from crewlite.errors import OnLoopThread, add_note
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.runtime.main_thread.handlers import GRACE, BlockingCall
from crewlite.runtime.steps.keyed import to_another_loop
from crewlite.system.steady_clock import is_true_within, steady
from crewlite.texts.tracebacks import INTERRUPTED

uncaught = lazy("crewlite.cli.uncaught")  # on a higher floor: how errors that end a program are printed

T = TypeVar("T")
ENDING = (KeyboardInterrupt, SystemExit)
"""The exceptions that end a program unless it catches them."""


class Cuttable:
    """Work on an event loop that any thread can cancel, even before it has begun."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        """The task of the work while it runs: a task that has ended would keep the frames of its error."""
        self.is_cut = False
        self.ended = threading.Event()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work. Raises CancelledError once it is cut."""
        self._task = asyncio.current_task()
        try:
            if self.is_cut:
                raise asyncio.CancelledError
            return await work()
        finally:
            self._task = None
            self.ended.set()

    def cut(self) -> None:
        """Cancel the work. Does nothing if it has ended."""
        self.is_cut = True
        if task := self._task:
            task.get_loop().call_soon_threadsafe(task.cancel)


def run_sync(kind: Kind, verb: str, work: Callable[[], Awaitable[T]], how_to_go_on: Callable[[], str]) -> T:
    """Run `work` on the background loop, wait for it and return its result. Works in notebooks beside their own loop.

    Ctrl-C cancels the run, waits at most 2 seconds until its journal is closed, prints `how_to_go_on()` and raises
    KeyboardInterrupt, which ends a script with status 130. A second Ctrl-C does not wait. A signal that `on_events`
    names, or a handler of the program that raises SystemExit, ends the run in the same way. So does any other error
    that a handler raises, such as the alarm of a time limit; that error is given the advice as a note.

    Raises OnLoopThread, naming the `verb` of this `kind` of definition, as `check_may_block` does, and what `work`
    raises.
    """
    check_may_block(verb, "" if kind is kinds.TRIAL else f"{kind}.a{verb}(...)")
    background.loop()  # raises if it gets no thread: there is nothing to cut then
    cuttable = Cuttable()
    with BlockingCall() as waiting:
        try:
            return waiting.wait(to_another_loop().run(background.submit, cuttable.run(work)))
        except BaseException as error:
            if isinstance(error, ENDING) or not cuttable.ended.is_set():  # otherwise the run itself raised the error
                cut = partial(waiting.cut, cuttable.cut, ending=isinstance(error, ENDING))
                cut_short(error, cut, cuttable.ended, how_to_go_on)
            raise


def cut_short(
    error: BaseException, cut: Callable[[], object], ended: threading.Event, how_to_go_on: Callable[[], str]
) -> None:
    """Cancel a run because of the error that ended the wait for it; wait at most 2 seconds until the run has ended.

    Then say how to go on: after Ctrl-C on stderr, else in a note to the error, as the program may catch that. A second
    Ctrl-C, or another error raised by a signal handler, ends the wait.
    """
    ending = isinstance(error, ENDING)
    second = (KeyboardInterrupt,) if ending else ()
    with contextlib.suppress(*second):
        until = steady() + GRACE
        cut()
        if not is_true_within(ended.is_set, until - steady()):
            _say("The run did not stop within 2 s; what it recorded is safe.")
    with contextlib.suppress(*second):
        print_briefly(error)
    advice = f"{INTERRUPTED}{how_to_go_on()}"
    if ending:
        _say(f"\n{advice}")
    else:
        add_note(error, advice)


def print_briefly(cuts: BaseException | None = None) -> None:
    """Have Python print errors of runs that end this program briefly, as `uncaught.install` says, if possible.

    In a process that cannot open one more file, `uncaught` cannot be imported, and Python prints the error as usual.
    """
    with contextlib.suppress(OSError, ImportError):
        uncaught.install(cuts)


def check_may_block(verb: str, instead: str) -> None:
    """Raise OnLoopThread if `verb` would block the loop it is called on: the background loop, or that of its run.

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
