"""Syncing files: many together from several threads, so that the disk can combine the requests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

try:
    import fcntl
except ImportError:  # Windows has another lock
    fcntl = None  # type: ignore[assignment]

_MANY = 4  # from so many syncs on, threads are faster
_SYNCERS = 8
_FULL = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves data in the drive's cache


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
    with ThreadPoolExecutor(_SYNCERS) as helpers:
        with contextlib.suppress(RuntimeError):  # no thread can start, as when the main thread has ended
            for _ in range(min(_SYNCERS, len(handles)) - 1):
                helping.append(helpers.submit(work))
        work()
    for each in helping:
        each.result()


def _sync(handle: int) -> None:
    os.fsync(handle)
    if _FULL is not None:
        fcntl.fcntl(handle, _FULL)
