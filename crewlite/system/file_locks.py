"""Advisory locks of files, which threads and processes hold against each other, and a forked child does not have.

The lock of a file is held by all processes that have it open. So a forked child closes the files that are locked.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import IO

from crewlite.errors import StoreBusy
from crewlite.system.forked import in_child
from crewlite.system.steady_clock import steady

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PATIENCE = 10.0  # seconds to wait for a process that has a lock and is stopped
BINARY = getattr(os, "O_BINARY", 0)  # Windows has it
UNBLOCKED = getattr(os, "O_NONBLOCK", 0)  # the others have it: a pipe is opened at once; regular files do not heed it
_locked: set[IO[bytes]] = set()
"""Files that this process has locked or is locking."""
_LOCK_AT = 2**31 - 2  # on Windows a locked byte cannot be read, so this locks one beyond the end of any journal


def take_lock(file: IO[bytes], path: Path | str, *, shared: bool = False) -> None:
    """Take the advisory lock of an open file, waiting for it. A forked child does not have it.

    A slow process is waited for as long as it takes. Raises StoreBusy if the lock belongs to one that is stopped, as by
    SIGSTOP or Ctrl-Z, for `PATIENCE` seconds of this wait, where the system tells (Linux).
    """
    if sys.platform == "win32":
        file.seek(_LOCK_AT)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        return
    _locked.add(file)
    how = fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    pauses: Iterator[None] | None = None
    while True:
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            pauses = pauses or _pauses(file, path)
        else:
            return
        next(pauses)


def _pauses(file: IO[bytes], path: Path | str) -> Iterator[None]:
    """Sleep between two attempts at a lock. Raises StoreBusy as `take_lock` does."""
    began = looked = moved = steady()
    while True:
        now = steady()
        if now - looked >= PATIENCE / 10:
            looked, stopped = now, _stopped_holder(file)
            if stopped is None:
                moved = now
            elif now - moved >= PATIENCE:
                raise StoreBusy(str(path), PATIENCE, stopped)
        time.sleep(min(0.0005 + (now - began) / 50, 0.01))  # most locks are held for milliseconds
        yield


def _stopped_holder(file: IO[bytes]) -> int | None:
    """Return the number of a stopped process that has the lock of a file; None if there is none, or nobody can tell."""
    there = os.fstat(file.fileno())
    name = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            kind, *_, pid, where, _, _ = line.split()[1:]  # of one that waits, `kind` is "->"
            if kind == "FLOCK" and where == name and _is_stopped(pid):
                return int(pid)
    return None


def _is_stopped(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "Tt"
    except OSError:  # it has ended, or lives in another container
        return False


def close_locked(file: IO[bytes]) -> None:
    """Give up the lock of a file, if this process holds it, and close the file."""
    try:
        if sys.platform == "win32":
            file.seek(_LOCK_AT)
            with contextlib.suppress(OSError):  # it was not locked yet
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
            return
        _locked.discard(file)
        if not file.closed:  # a forked child has closed it
            fcntl.flock(file, fcntl.LOCK_UN)  # closing alone does not: a forked child has the file open as well
    finally:
        file.close()


@contextlib.contextmanager
def locked(paths: Iterable[Path], *, shared: bool = False, mode: int = 0o600) -> Iterator[None]:
    """Lock several lock files against other threads and processes, in the order of their names, for the block.

    A lock file is separate from the files that it guards and is never renamed or removed, so those may be, on Windows
    too. A missing lock file is created with this `mode`, and so is its directory, whose parent must exist. A `shared`
    lock creates nothing, and skips lock files that do not exist.
    """
    with contextlib.ExitStack() as closing:
        for path in sorted(set(map(str, paths))):
            if file := _lock_file(path, mode, shared=shared):
                closing.callback(close_locked, file)
                take_lock(file, path, shared=shared)
        yield


def _lock_file(path: str, mode: int, *, shared: bool) -> FileIO | None:
    flags = UNBLOCKED | (os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT)
    try:
        handle = os.open(path, flags, mode)
    except FileNotFoundError:
        if shared:
            return None
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), 0o700)
        handle = os.open(path, flags, mode)
    return FileIO(handle, "rb" if shared else "r+b")


@in_child
def _let_go() -> None:
    """Close locked files in a forked child, as a lock lasts until the last process closes the file."""
    for file in _locked:
        file.close()
    _locked.clear()
