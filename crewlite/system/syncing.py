"""Syncing files: many together from several threads, so that the disk can combine the requests."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future

from crewlite.lazy import futures

if sys.platform == "darwin":
    import fcntl

_MANY = 4  # from so many syncs on, threads are faster
_SYNCERS = 8


def sync(handles: Sequence[int]) -> None:
    """Sync the open files with these handles. No thread is left when this returns."""
    if len(handles) < _MANY:
        for handle in handles:
            _sync(handle)
        return
    left = iter(handles)  # shared: its `next` is atomic

    def work() -> None:
        for handle in left:
            _sync(handle)

    helping = list[Future[None]]()
    with contextlib.ExitStack() as ended:
        with contextlib.suppress(RuntimeError):  # no thread can start, as when the main thread has ended
            helpers = ended.enter_context(futures.ThreadPoolExecutor(_SYNCERS))
            for _ in range(min(_SYNCERS, len(handles)) - 1):
                helping.append(helpers.submit(work))
        work()
    for each in helping:
        each.result()


def _sync(handle: int) -> None:
    os.fsync(handle)
    if sys.platform == "darwin":  # fsync alone leaves data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
