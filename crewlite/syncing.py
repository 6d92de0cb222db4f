"""Syncing files: many together from several threads, so that the disk can combine the requests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from crewlite.forked import in_child, lock

try:
    import fcntl
except ImportError:  # Windows has another lock
    fcntl = None  # type: ignore[assignment]

_MANY = 4  # from so many syncs on, threads are faster
_SYNCERS = 8
_starting = lock()
_threads: ThreadPoolExecutor | None = None
"""The threads, once there were many files to sync together."""


def sync(handles: Sequence[int]) -> None:
    """Sync the open files with these handles."""
    if len(handles) < _MANY:
        for handle in handles:
            _sync(handle)
    else:
        _sync_many(handles)


def _sync_many(handles: Sequence[int]) -> None:
    """Sync from several threads, each of which takes the next file when it has synced one."""
    global _threads
    with _starting:
        threads = _threads = _threads or ThreadPoolExecutor(_SYNCERS, "crewlite-sync")
    left = iter(handles)  # shared: its `next` is atomic

    def work() -> None:
        for handle in left:
            _sync(handle)

    working = [threads.submit(work) for _ in range(min(_SYNCERS, len(handles)))]
    wait(working)  # the files stay open until the last is synced, also after an error
    for each in working:
        each.result()


@in_child
def _forget_threads() -> None:
    global _threads
    _threads = None


def _sync(handle: int) -> None:
    os.fsync(handle)
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
