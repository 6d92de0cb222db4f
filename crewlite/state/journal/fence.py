"""A fence: tells the loop of a run that another process has acquired its branch, or cancelled the run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


def from_any_thread(
    loop: asyncio.AbstractEventLoop, fenced: asyncio.Future[BaseException]
) -> Callable[[BaseException], None]:
    """Return a function that sets `fenced`, a future of this loop, once. The function may be called in any thread."""

    def fence(error: BaseException) -> None:
        if not fenced.done():
            fenced.set_result(error)

    def on_fenced(error: BaseException) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nothing awaits it
            loop.call_soon_threadsafe(fence, error)

    return on_fenced
