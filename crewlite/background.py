"""The process-wide background loop, and threads for code that blocks.

One loop for all sync verbs, so that runs started from plain code share nothing but a thread. Blocking user code gets
a daemon thread of its own, never a shared pool: a pool starves when steps nest, and delays the exit.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from crewlite.errors import StepTimeout
from crewlite.forked import in_child, lock
from crewlite.lazy import asyncio, futures
from crewlite.permits import permitted

T = TypeVar("T")

_PATIENCE = 0.25  # seconds that timed-out work has to end after it was cancelled
_lock = lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The background loop; started at the first call, and anew in a forked child."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="crewlite-loop", daemon=True)
            _thread.start()
        return _loop


def on_loop_thread() -> bool:
    """Whether the caller runs on the background loop's own thread."""
    return threading.current_thread() is _thread


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, and stands still while the thread waits; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def submit(work: Coroutine[Any, Any, T]) -> futures.Future[T]:
    """Start `work` on the background loop, from any other thread."""
    return asyncio.run_coroutine_threadsafe(work, loop())


async def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` on the background loop, whichever loop awaits it. If the caller is cancelled, so is the work."""
    return await work if on_loop_thread() else await asyncio.wrap_future(submit(work))


async def within(work: Awaitable[T], limit: float | None, what: str | Exception) -> T:
    """Await `work` for at most `limit` seconds. Work that does not stop when cancelled is left behind.

    Raises StepTimeout, or what is given instead of a name, and RuntimeError for code that tries to exit: it would end
    the loop of everybody.
    """
    if limit is None:
        return await guarded(work)
    task = asyncio.ensure_future(guarded(work))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # of work that is left behind, unheard
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if done:
        return task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=_PATIENCE)
    raise StepTimeout(what, limit) if isinstance(what, str) else what


async def guarded(work: Awaitable[T]) -> T:
    """Await `work`. Raises RuntimeError for code that tries to exit, or to cancel itself."""
    try:
        return await work
    except asyncio.CancelledError:
        me = asyncio.current_task()
        if me and me.cancelling():
            raise
        raise RuntimeError("it raised CancelledError, though nobody cancelled it") from None
    except Exception:
        raise
    except BaseException as error:
        raise _ended_by(error) from error


def _ended_by(error: BaseException) -> RuntimeError:
    """What to raise for an exception that ends programs, such as that of sys.exit: it tells the code that was given."""
    return RuntimeError(f"it raised {type(error).__name__}({', '.join(map(repr, error.args))})")


async def acquire(open_: Callable[[], T], release: Callable[[T], object]) -> T:
    """Open something in a thread. If the caller is cancelled meanwhile, it is released as soon as it is open."""

    def undo(opening: asyncio.Future[T]) -> None:
        if not opening.cancelled() and not opening.exception():
            release(opening.result())

    opening = asyncio.ensure_future(in_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(undo)
        raise


async def in_thread(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call blocking `fn` in a daemon thread of its own, with the caller's context variables.

    If the caller is cancelled, the thread is abandoned: Python cannot kill it, and its result is dropped.
    """
    here = asyncio.get_running_loop()
    done: asyncio.Future[T] = here.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(fn, *args, **kwargs)
        except StopIteration as stop:  # a future cannot carry it
            error = RuntimeError(f"it raised StopIteration({stop.value!r})")
        except Exception as raised:  # noqa: BLE001 - handed over whole to whoever awaits
            error = raised
        except BaseException as raised:  # noqa: BLE001 - on a loop it would end more than this call
            error = _ended_by(raised)
        try:
            here.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop was closed: nobody is left to hear the result

    threading.Thread(target=work, name=f"crewlite-{getattr(fn, '__name__', 'call')}", daemon=True).start()
    return await done


async def blocking(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """`in_thread` for code of users: only so many of these calls run at once in this process (`permits.width`)."""
    return await permitted(in_thread, fn, *args, **kwargs)


@in_child
def _forget() -> None:
    """A child inherits the loop's memory but not its thread."""
    global _loop, _thread
    _loop = _thread = None
