"""The handle of a run that was begun with `submit`: wait for it, inspect it, cancel it."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Literal, TypeVar

from crewlite.concurrency import background
from crewlite.concurrency.between_loops import await_shielded, result_of
from crewlite.concurrency.threads import check_program_goes_on
from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.errors import CONTROL_FLOW, OnLoopThread, ProgramEnding, RunCancelled, Suspended, add_note, repr_of
from crewlite.lazy import futures
from crewlite.runtime.kickoffs.left_behind import is_finished, named, sentence_about, submitted
from crewlite.runtime.kickoffs.request import Progress
from crewlite.runtime.main_thread.sync_bridge import Cuttable, cut_short
from crewlite.texts.logs import logger
from crewlite.texts.tracebacks import INTERRUPTED, shortened
from crewlite.usage import Usage

R = TypeVar("R")
log = logger("crewlite.run")
HandleStatus = Literal["running", "waiting", "finished", "failed", "unfinished", "cancelled"]
_TO_BEGIN = 0.02  # seconds that `submit` may block a running loop to learn whether the run has begun


@methods_with_known_keywords("a handle", constructed=False)
class RunHandle(Generic[R]):
    """A run that was begun with `submit`. `await` it; outside a coroutine, call `result()`."""

    def __init__(
        self,
        name: str,
        progress: Progress,
        kickoff: Callable[[], Awaitable[R]],
        how_to_go_on: Callable[[], str],
        given: str = "",
    ) -> None:
        self._name, self._progress, self._given, self._how_to_go_on = name, progress, given, how_to_go_on
        end, self._cuttable = _End(), Cuttable()
        self._end = end
        self._process = os.getpid()
        known = progress.known = queue.SimpleQueue()
        self._future = background.submit(_run(self._cuttable, kickoff, progress, given))
        self._unasked = weakref.finalize(self, end.tell_failure)
        ended = submitted(self._left_behind)
        self._future.add_done_callback(lambda run: end.note(run, name, progress.run_id or given))
        self._future.add_done_callback(lambda _: end.has_stopped_with_program or ended())
        self._future.add_done_callback(lambda _: known.put(None))
        try:
            background.next_of(known, _TO_BEGIN if background.running_loop() else None)
        except queue.Empty:
            return
        except BaseException as error:  # raised by a signal handler: the caller will not get this handle
            self._unasked.detach()
            self.cut_short(error)
            raise
        if self._progress.run_id is None:
            self._unasked.detach()
            result_of(self._future)

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r}{'' if self.branch == 'main' else f', branch={self.branch!r}'})"

    @property
    def run_id(self) -> str:
        """The run's id; "" until the run begins, if it was submitted on a running loop and without a run_id."""
        return self._progress.run_id or self._given

    @property
    def branch(self) -> str:
        """The branch of the run: "main", or the name of a fork. A fork without a name gets one when it begins."""
        return self._progress.branch

    @property
    def status(self) -> HandleStatus:
        """The status: "running" until the run has released its branch, then that of `RunHistory.status`.

        "waiting": for people to answer. "unfinished": it was stopped without having failed, such as by a budget, by the
        end of the program, or by another process that has taken it. Raises ConfigError in a process that was forked
        while the run was at work.
        """
        if not self._future.done():
            background.check_process(self._process, self._what)
            return "running"
        self._unasked.detach()
        error = self._future.exception()
        if isinstance(error, Suspended):
            return "waiting"
        if isinstance(error, RunCancelled):
            return "cancelled"
        return "finished" if error is None else "unfinished" if isinstance(error, CONTROL_FLOW) else "failed"

    @property
    def is_awaited(self) -> bool:
        """Whether it was handed out when its kickoff had ended, so that nothing of it blocks an event loop."""
        return False

    @property
    def at_work(self) -> bool:
        """Whether this process is at work on the run."""
        return not self._future.done() and self._process == os.getpid()

    @property
    def usage(self) -> Usage:
        """Tokens, requests and cost of the run so far, including earlier kickoffs of it."""
        return self._progress.usage

    def result(self, timeout: float | None = None) -> R:
        """Wait until the run has ended and released its branch, and return what `kickoff` would have returned.

        Raises what the run raised; RunCancelled if it was cancelled; TimeoutError after `timeout` seconds, while the
        run continues; OnLoopThread on the thread of a running loop, which it would block: await the handle there;
        ConfigError in a process that was forked while the run was at work. Ctrl-C ends the wait; the run continues.
        """
        self.check_may_wait()
        self._unasked.detach()
        with shortened():
            return background.wait(
                self._future, timeout, self._what, "Wait longer with result(), or stop it with cancel()"
            )

    def check_may_wait(self, instead: str = "await the handle itself") -> None:
        """Raise OnLoopThread or ConfigError if `result` would. `instead`: what to do on an event loop."""
        if self._future.done():
            return
        background.check_process(self._process, self._what)
        if background.running_loop():
            raise OnLoopThread("result", instead)

    def __await__(self) -> Generator[Any, None, R]:
        return self._awaited().__await__()

    async def _awaited(self) -> R:
        if not self._future.done():
            background.check_process(self._process, self._what)
        self._unasked.detach()
        with shortened():
            return await await_shielded(self._future)

    def when_ended(self, call: Callable[[], object]) -> None:
        """Have `call` called once the run has released its branch, at once if it has. It may be on any thread."""
        self._future.add_done_callback(lambda _: call())

    def cancel(self) -> None:
        """Cancel the run. It can be resumed after its `result()` has raised. Does nothing if the run has ended."""
        self._progress.cancelled = True
        self._cuttable.cut()

    def cut_short(self, error: BaseException) -> None:
        """End the run because of Ctrl-C, or a similar error, without recording a cancellation, and say how to go on."""
        ended = threading.Event()
        self.when_ended(ended.set)
        cut_short(error, self._cuttable.cut, ended, self._how_to_go_on)

    def note_way_on(self, error: BaseException) -> None:
        """Add a note to the cancellation or Ctrl-C that has ended the run: how to go on."""
        add_note(error, f"{INTERRUPTED}{self._how_to_go_on()}")

    def _left_behind(self) -> str:
        """Return how to go on with the run if the program ends now; "" if the run has ended, or is being ended."""
        is_left = self.at_work or self._end.has_stopped_with_program
        if not is_left or self._cuttable.is_cut or is_finished(self._progress):
            return ""
        self._unasked.detach()
        return sentence_about(self._what, self._progress, self._how_to_go_on)

    @property
    def _what(self) -> str:
        return named(self._name, self.run_id)


class AwaitedHandle(RunHandle[R]):
    """The handle of a kickoff that somebody else waits for, such as a step of another run: `ended` gets its result.

    Whoever waits hands it out when the kickoff has ended.
    """

    is_awaited = True

    def __init__(self, name: str, progress: Progress, ended: futures.Future[R]) -> None:
        self._name, self._progress, self._given, self._how_to_go_on = name, progress, "", str
        self._end, self._cuttable, self._process, self._future = _End(), Cuttable(), os.getpid(), ended
        self._unasked = weakref.finalize(self, self._end.tell_failure)


async def _run(cuttable: Cuttable, kickoff: Callable[[], Awaitable[R]], progress: Progress, given: str) -> R:
    try:
        return await cuttable.run(kickoff)
    except asyncio.CancelledError:
        raise RunCancelled(progress.run_id or given, progress.branch) from None
    except RuntimeError as error:
        check_program_goes_on(error)
        raise


class _End:
    """How a run ended. It does not refer to the handle, so that a handle nobody refers to is destroyed."""

    def __init__(self) -> None:
        self.has_stopped_with_program = False  # whether a thread was refused because the main thread has ended
        self._failure: tuple[str, str, str] | None = None
        """The name of the definition, the id of the run, and the error; None unless the run has failed."""

    def note(self, run: futures.Future[R], name: str, run_id: str) -> None:
        """Note how the run has ended, before its handle can be destroyed."""
        error = None if run.cancelled() else run.exception()
        self.has_stopped_with_program = isinstance(error, ProgramEnding)
        if error is not None and not isinstance(error, RunCancelled | Suspended | ProgramEnding):
            self._failure = name, run_id, repr_of(error)

    def tell_failure(self) -> None:
        """Log the error of the run: nobody has asked for it, and the handle is destroyed or the program ends."""
        if self._failure:
            name, run_id, error = self._failure
            message = "%s failed, and nobody has asked its handle for the result: %s"
            log.error(message, named(name, run_id), error, extra={"run_id": run_id})
