"""The background event loop of the process, and threads for code that blocks.

All blocking verbs run on one loop, in one thread. Blocking calls of users are made in daemon threads, on which no other
call runs meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Never, TypeVar

from crewlite.concurrency import threads
from crewlite.concurrency.between_loops import CLOSED, await_work, begin_on, result_of
from crewlite.concurrency.blocked_loops import LoopWatch
from crewlite.concurrency.permits import permitted
from crewlite.concurrency.unawaited import close_unbegun, mark_seen, shielded
from crewlite.errors import ConfigError, StepTimeout, repr_of
from crewlite.lazy import asyncio, futures
from crewlite.system.forked import end_child, in_child, lock
from crewlite.system.steady_clock import is_true_within, new_loop, steady
from crewlite.texts.logs import logger

T = TypeVar("T")
log = logger("crewlite.run")

_PATIENCE = 0.25  # seconds that timed-out work is given to end after its cancellation
_LOOK = 0.5
"""How often, in seconds, a wait looks for signals: none ends it on Windows, nor one that comes just before it."""
_GRACE = 2.0  # seconds that a cancelled `acquire` waits for its release, and the end of the process for each work
_IMPORT = 30.0  # seconds that the end of the process waits for the loop if that imports a module
_FORKED_ON_LOOP = (
    "This process was forked by a coroutine, and the event loop is at work in its parent. End the process where its "
    "own work is done, with os._exit(), or fork in a plain function"
)
_home: contextvars.ContextVar[int] = contextvars.ContextVar("crewlite_home", default=0)
"""The id of the thread in which `in_thread` called the running code; 0 if it did not call it."""
_lock = lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def loop() -> asyncio.AbstractEventLoop:
    """Return the background loop. The first call starts it, and so does the first call in a forked child."""
    global _loop, _thread
    if _loop:
        return _loop
    made, decided = new_loop(), queue.SimpleQueue[None]()
    thread = threading.Thread(target=_turn, args=(made, decided), name="crewlite-loop", daemon=True)
    try:
        threads.start(thread)
        with _lock:
            if _loop is None:
                _loop, _thread = made, thread
    finally:
        if _loop is not made:  # another thread was faster, the system or Python refuses the thread, or Ctrl-C came
            made.close()
        decided.put(None)
    return _loop or made  # None as the process ends


def _turn(loop: asyncio.AbstractEventLoop, decided: queue.SimpleQueue[None]) -> None:
    """Run the loop for ever, also after SystemExit and KeyboardInterrupt, which make asyncio leave `run_forever`."""
    decided.get()
    if loop.is_closed():
        return None
    while True:
        try:
            return loop.run_forever()
        except (SystemExit, KeyboardInterrupt):  # it has ended its task, and reaches whoever awaits that
            log.exception("code on the event loop tried to end the program, and has ended its own task only")


@atexit.register
def _halt() -> None:
    """Halt the loop between two callbacks, for ever. Waits until it has halted: 2 s, or 30 s if it imports a module.

    As the process ends, Python stops daemon threads wherever they are. If that is inside an import, as with litellm,
    the thread keeps Python's import lock, and a later import waits for ever. The thread is not ended, because that
    would destroy the pending tasks of the loop, with a complaint for each. Ctrl-C ends the wait.
    """
    global _loop, _thread
    with _lock:
        ending, thread, _loop, _thread = _loop, _thread, None, None
    if ending is not None and not ending.is_closed():
        halted = threading.Event()

        def halt() -> None:
            halted.set()
            threading.Event().wait()

        ending.call_soon_threadsafe(halt)
        until = steady() + _IMPORT
        with contextlib.suppress(KeyboardInterrupt):
            while not is_true_within(halted.is_set, _GRACE) and _imports(thread) and steady() < until:
                pass


def at_end(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Await `work()` on the background loop as the process ends, for at most 2 s, if the process has used that loop.

    Comes before the loop halts, and before what was registered with `atexit` earlier. Ctrl-C ends the wait.
    """

    @atexit.register
    def end() -> None:
        if _loop is not None:
            with contextlib.suppress(TimeoutError, KeyboardInterrupt):
                wait(submit(work()), _GRACE)


def _imports(thread: threading.Thread | None) -> bool:
    frame = thread and sys._current_frames().get(thread.ident or 0)
    while frame:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def on_loop_thread() -> bool:
    """Return whether the caller runs on the thread of the background loop."""
    return threading.current_thread() is _thread


def runs(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop runs, or is the background loop, whose thread may have yet to begin."""
    return loop is _loop or loop.is_running()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread, which a blocking call here would stop; None if none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_process(pid: int, what: str) -> None:
    """Raise ConfigError in a forked child of process `pid`: the child has no threads that could end the work `what`."""
    if os.getpid() != pid:
        raise ConfigError(
            f"{what} is at work in process {pid}, from which this process was forked: it cannot be followed from here. "
            f"Wait in that process; or here, if a store keeps the run, with kickoff(run_id=..., wait=True)"
        )


def submit(work: Coroutine[Any, Any, T]) -> futures.Future[T]:
    """Start `work` on the background loop, from any thread, and return its future."""
    try:
        return begin_on(loop(), work)
    except RuntimeError:  # the loop gets no thread
        work.close()  # else Python complains that nobody has awaited it
        raise


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the background loop, from blocking code, and return its result. Ctrl-C cancels the work."""
    future = submit(work)
    try:
        return wait(future)
    except BaseException:  # above all Ctrl-C: what the work has opened is to be closed
        future.cancel()
        raise


def wait(
    future: futures.Future[T],
    timeout: float | None = None,
    what: str = "",
    advice: str = "",
    work_loop: asyncio.AbstractEventLoop | None = None,
) -> T:
    """Wait for work in another thread and return its result.

    Raises what the work raised, or TimeoutError, with `what` and `advice` in its message. `work_loop`: see `next_of`.
    """
    if not future.done():
        ended = queue.SimpleQueue[Any]()
        future.add_done_callback(ended.put)
        try:
            next_of(ended, timeout, work_loop)
        except queue.Empty:
            late = f"{what} has not ended within {timeout:g} s and continues to run. {advice}"
            raise TimeoutError(late) from None
    return result_of(future)


def next_of(
    items: queue.SimpleQueue[T], timeout: float | None = None, work_loop: asyncio.AbstractEventLoop | None = None
) -> T:
    """Wait for the next item of a queue and return it. Raises queue.Empty after `timeout` seconds.

    An exception that a signal handler raises ends the wait. `work_loop`: the event loop that has to deliver the item;
    None is the background loop. Logs a warning while code blocks this loop. Raises RuntimeError if the loop was closed
    or has halted: the item never comes.
    """
    watch: LoopWatch | None = None
    until = math.inf if timeout is None else steady() + timeout
    while True:
        is_gone, left = work_loop.is_closed() if work_loop else _loop is None, until - steady()
        try:
            return items.get(timeout=max(0.0, min(left, _LOOK)))
        except queue.Empty:
            if left <= _LOOK:
                raise
        if is_gone:
            halted = "the event loop that does this work has halted, as the process is ending"
            raise RuntimeError(CLOSED if work_loop else halted)
        watch = watch or LoopWatch(work_loop or loop())
        watch.look()


async def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the background loop, from a coroutine of any loop. Cancelling the caller cancels the work."""
    return await work if on_loop_thread() else await await_work(submit(work))


async def within(work: Awaitable[T], limit: float | None, what: str | Exception, *, once: bool = False) -> T:
    """Await `work` for at most `limit` seconds, then cancel it. Work that does not stop when cancelled is abandoned.

    Raises StepTimeout with the name `what`, or `what` itself if that is an exception. Raises RuntimeError if the work
    raises SystemExit or the like, which would end the loop for all runs on it. `once`: see StepTimeout.
    """
    if limit is None:
        return await guarded(work)
    until = steady() + limit
    late = StepTimeout(what, limit, once=once) if isinstance(what, str) else what
    return await while_left(work, lambda: until - steady(), lambda: late)


async def while_left(work: Awaitable[T], left: Callable[[], float], late: Callable[[], Exception]) -> T:
    """Await `work` as `within` does, as long as `left()` returns more than 0 seconds; then raise what `late()` returns.

    It calls `left` again when the seconds that `left` returned have passed.
    """
    task = asyncio.ensure_future(guarded(work))
    task.add_done_callback(mark_seen)
    task.add_done_callback(lambda _: close_unbegun(work))
    try:
        while not task.done() and (seconds := left()) > 0:
            await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=_PATIENCE)
    raise late()


async def guarded(work: Awaitable[T]) -> T:
    """Await `work`. RuntimeError replaces SystemExit and the like, and a CancelledError that nobody caused."""
    try:
        return await work
    except Exception as error:
        threads.check_program_goes_on(error)
        raise
    except BaseException as error:  # what would end more than this call
        confine(error)


def confine(error: BaseException) -> Never:
    """Raise `error` if it is to end the current task; otherwise a RuntimeError in its place.

    For code that, like `guarded`, awaits code of users, in which an error must end no more than this call.
    """
    if ends_task(error):
        raise error
    if not isinstance(error, asyncio.CancelledError):
        raise ordinary(error)
    raise RuntimeError("the function raised CancelledError, though nobody cancelled it") from error


def ends_task(error: BaseException) -> bool:
    """Return whether an error is to end the current task: the task's cancellation, or Ctrl-C on a loop of the user's.

    With Python's own SIGINT handler, only KeyboardInterrupt tells of Ctrl-C. asyncio.run's handler cancels the task.
    """
    if isinstance(error, asyncio.CancelledError):
        return is_cancelled()
    in_main = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
    return in_main and (is_cancelled() or signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled. If not, its code has raised the CancelledError itself."""
    me = asyncio.current_task()
    return me is not None and me.cancelling() > 0


def ordinary(error: BaseException) -> Exception:
    """Return an error that a future can carry and that ends no more than one call: `error`, or a RuntimeError.

    The RuntimeError has `error` as its cause. It replaces exceptions that end programs, tasks or iterations.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    made = RuntimeError(f"it raised {repr_of(error)}")
    made.__cause__ = error
    return made


async def acquire(open_: Callable[[], T], release: Callable[[T], object]) -> T:
    """Call `open_` in a thread and return its result. If the caller is cancelled meanwhile, release the result.

    A cancelled caller waits at most 2 seconds for the release, and no longer once it is cancelled again.
    """
    opened: futures.Future[T] = futures.Future()

    def work() -> None:
        result = open_()
        try:
            opened.set_result(result)
        except futures.InvalidStateError:  # the caller waits no more; the loop may be closed
            release(result)

    opening = _begun_in_thread(work)
    try:
        await shielded(opening)
    except BaseException as error:  # GeneratorExit too, if the loop is closed before the caller has gone on
        if isinstance(error, asyncio.CancelledError):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({opening}, timeout=_GRACE)
        if not opened.cancel():
            release(opened.result())
        raise
    return opened.result()


async def in_thread(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call blocking `fn` in a daemon thread that makes no other call meanwhile, with the caller's context variables.

    If the caller is cancelled, the thread is abandoned, because Python cannot kill it, and its result is dropped.
    """
    return await _begun_in_thread(fn, *args, **kwargs)


def _begun_in_thread(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> asyncio.Future[T]:
    """Begin the call that `in_thread` makes."""
    here = asyncio.get_running_loop()
    done: asyncio.Future[T] = here.create_future()
    context = contextvars.copy_context()

    def settle(ended: Callable[[], None]) -> None:
        if not done.done():
            ended()

    def work() -> None:
        process = os.getpid()
        context.run(_home.set, threading.get_ident())
        try:
            ended = partial(done.set_result, context.run(fn, *args, **kwargs))
        except BaseException as raised:  # raised again where the call is awaited
            ended = partial(done.set_exception, ordinary(raised))
            if os.getpid() != process:
                end_child(raised)
        if os.getpid() != process:  # `fn` has forked, and the loop that waits for the result is in the parent
            end_child()
        try:
            here.call_soon_threadsafe(settle, ended)
        except RuntimeError:
            return  # the loop was closed, so nothing awaits the result

    threads.begin(work, f"crewlite-{getattr(fn, '__name__', 'call')}")
    return done


def in_foreign_thread() -> bool:
    """Return whether code of users started this thread. It may have the context variables of a step all the same."""
    return _home.get() != threading.get_ident()


async def blocking(fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call blocking code of users as `in_thread` does, with the limit on such calls that `permits` describes."""
    return await permitted(in_thread, fn, *args, **kwargs)


@in_child
def _forget() -> None:
    """Forget the loop in a forked child, which has the memory of the loop but not its thread.

    If a coroutine on the loop forked the child, the child does have that thread, and ends when the coroutine next
    awaits: the loop's other tasks are at work in the parent.
    """
    global _loop, _thread
    if _loop and on_loop_thread():
        _loop.call_soon(end_child, ConfigError(_FORKED_ON_LOOP))
    _loop = _thread = None
