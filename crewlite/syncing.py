"""Syncing files: many together from several threads, so that the disk can combine the requests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

try:
    import fcntl
except ImportError:  # Windows has another lock
    fcntl = None  # type: ignore[assignment]

_MANY = 4  # from so many syncs on, threads are faster
_SYNCERS = 8


def sync(handles: Sequence[int]) -> None:
    """Sync the open files with these handles. No thread is left when this returns."""
    if len(handles) < _MANY:
        for handle in handles:
            _sync(handle)
    else:
        with ThreadPoolExecutor(min(_SYNCERS, len(handles))) as threads:
            list(threads.map(_sync, handles))


def _sync(handle: int) -> None:
    os.fsync(handle)
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves data in the drive's cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
