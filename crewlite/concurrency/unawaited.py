"""Work that goes on when nobody waits for it any more, and whose error nobody may look at.

asyncio logs the error of a future that nobody has looked at. `asyncio.shield` leaves such a future behind when its
caller is cancelled, even if another caller that awaits the same work gets the error and handles it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, TypeVar

from crewlite.lazy import asyncio, futures

T = TypeVar("T")


def mark_seen(done: asyncio.Future[Any]) -> None:
    """Mark the error of work that has ended as seen. For `add_done_callback`."""
    if not done.cancelled():
        done.exception()


async def shielded(work: asyncio.Future[T]) -> T:
    """Await work that goes on if the caller is cancelled. In that case asyncio does not log the error of the work."""
    work.add_done_callback(mark_seen)
    await asyncio.wait({work})
    return work.result()


async def of_thread(work: futures.Future[T], loop: asyncio.AbstractEventLoop) -> T:
    """Await the work of a thread, in code that runs on `loop`.

    Raises GeneratorExit if the loop was closed and Python closes its coroutines: nothing can be awaited then.
    """
    if asyncio._get_running_loop() is not loop:
        raise GeneratorExit
    return await asyncio.wrap_future(work)


def close_unbegun(work: Awaitable[Any]) -> None:
    """Close a coroutine whose task was cancelled before it began: Python would warn that nobody awaited it."""
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()
