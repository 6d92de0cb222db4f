"""The handle of a run that was begun with `submit`: wait for it, inspect it, cancel it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Literal, TypeVar

from crewlite import background
from crewlite.errors import OnLoopThread, RunCancelled, Suspended
from crewlite.runtime.kickoffs.request import Progress
from crewlite.runtime.main_thread.sync_bridge import cut_short
from crewlite.runtime.steps.future import wait_for
from crewlite.tracebacks import shortened
from crewlite.usage import Usage

R = TypeVar("R")
Status = Literal["running", "waiting", "finished", "failed", "cancelled"]
_TO_BEGIN = 0.02  # seconds that `submit` may block a running loop to learn whether the run has begun


class RunHandle(Generic[R]):
    """A run that was begun with `submit`. `await` it; outside a coroutine, call `result()`."""

    def __init__(self, name: str, progress: Progress, kickoff: Callable[[], Awaitable[R]], given: str = "") -> None:
        self._name, self._progress, self._given = name, progress, given
        self._task: asyncio.Task[R] | None = None
        known = progress.known = threading.Event()
        self._future = background.submit(self._run(kickoff))
        self._future.add_done_callback(lambda _: known.set())
        if known.wait(_TO_BEGIN if background.running_loop() else None) and self._progress.run_id is None:
            self._future.result()

    @property
    def run_id(self) -> str:
        """The run's id; "" while a run that was submitted on a running loop without a run_id has not begun."""
        return self._progress.run_id or self._given

    @property
    def status(self) -> Status:
        """The status: "running" until the run has released its branch. "waiting": for people to answer."""
        if not self._future.done():
            return "running"
        error = self._future.exception()
        if isinstance(error, Suspended):
            return "waiting"
        return "cancelled" if isinstance(error, RunCancelled) else "failed" if error else "finished"

    @property
    def usage(self) -> Usage:
        """Tokens, requests and cost of the run so far, including earlier kickoffs of it."""
        return self._progress.usage

    def result(self, timeout: float | None = None) -> R:
        """Wait until the run has ended and released its branch, and return what `kickoff` would have returned.

        Raises what the run raised; RunCancelled if it was cancelled; TimeoutError after `timeout` seconds, while the
        run continues; OnLoopThread on the thread of a running loop, which it would block: await the handle there.
        """
        if background.running_loop() and not self._future.done():
            raise OnLoopThread("result", "await the handle itself")
        what = f"Run {self.run_id!r} of {self._name}"
        with shortened():
            return wait_for(self._future, timeout, what, "Wait longer with result(), or stop it with cancel()")

    def __await__(self) -> Generator[Any, None, R]:
        return self._awaited().__await__()

    async def _awaited(self) -> R:
        with shortened():
            return await asyncio.shield(asyncio.wrap_future(self._future))

    def when_ended(self, call: Callable[[], object]) -> None:
        """Call `call` when the run has released its branch, at once if it has. The call may be on any thread."""
        self._future.add_done_callback(lambda _: call())

    def cancel(self) -> None:
        """Cancel the run. It can be resumed after its `result()` has raised. Does nothing if the run has ended."""
        self._progress.cancelled = True
        self._cut()  # if the run has not begun, `_run` sees the flag when it does

    def cut_short(self, how_to_go_on: Callable[[], str]) -> None:
        """End the run because of Ctrl-C, without a mark in its record, and print how to go on."""
        ended = threading.Event()
        self.when_ended(ended.set)
        cut_short(self._cut, ended, how_to_go_on)

    def _cut(self) -> None:
        if self._task:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _run(self, kickoff: Callable[[], Awaitable[R]]) -> R:
        self._task = asyncio.current_task()
        try:
            if self._progress.cancelled:
                raise asyncio.CancelledError
            return await kickoff()
        except asyncio.CancelledError:
            raise RunCancelled(self.run_id, self._progress.branch) from None
