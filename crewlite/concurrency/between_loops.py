"""Wait in one thread or event loop for work on another. An error of the work arrives there as it was raised.

Before Python 3.13, asyncio replaces a TimeoutError that passes between two loops by a new one, without its traceback,
notes, cause and fields.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from crewlite.concurrency.unawaited import mark_seen, shielded
from crewlite.lazy import asyncio, futures

T = TypeVar("T")
CLOSED = "the event loop that does this work was closed before the work had ended"
_LOOK = 0.5  # seconds between two looks whether a loop is closed


def uncancellable() -> futures.Future[Any]:
    """Return a future that nobody who waits for it can cancel, so that whoever answers it always can."""
    done = futures.Future[Any]()
    done.set_running_or_notify_cancel()
    return done


def begin_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
    """Start `work` on an event loop, from any thread, and return its future. Cancelling that cancels the work.

    Raises RuntimeError if the loop is closed.
    """
    future = futures.Future[T]()

    def begin() -> None:
        try:
            task = asyncio.ensure_future(work, loop=loop)
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            raise
        task.add_done_callback(end)
        future.add_done_callback(lambda _: future.cancelled() and loop.call_soon_threadsafe(task.cancel))

    def end(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        if (error := task.exception()) is None:
            future.set_result(task.result())
        else:
            future.set_exception(error)

    loop.call_soon_threadsafe(begin)
    return future


def result_of(future: futures.Future[T]) -> T:
    """Wait for a future and return its result, or raise its error, also one whose truth value is False."""
    error = future.exception()
    if error is None:
        return future.result()
    try:
        raise error
    finally:
        del error  # its traceback holds this frame


async def await_work(future: futures.Future[T]) -> T:
    """Await work of another thread or loop. Cancelling the caller cancels the work."""
    try:
        return await asyncio.wrap_future(future)
    except TimeoutError:  # a new one made by asyncio
        return result_of(future)


async def await_shielded(future: futures.Future[T], work_loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Await work of another thread or loop that goes on if the caller is cancelled.

    `work_loop`: the event loop of the work. Raises RuntimeError if it is closed before the work has ended.
    """
    work = asyncio.wrap_future(future)
    work.add_done_callback(mark_seen)
    try:
        while work_loop and not work.done():
            is_closed = work_loop.is_closed()
            await asyncio.wait({work}, timeout=_LOOK)
            if is_closed and not work.done():
                raise RuntimeError(CLOSED)
        return await shielded(work)
    except TimeoutError:  # as in `await_work`
        return result_of(future)
