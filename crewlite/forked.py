"""Support for forked child processes: locks that are free in the child, and functions to call there.

A forked child has a copy of its parent's memory but none of its threads. A lock that another thread held during the
fork would stay locked in the child for ever, so all locks of crewlite are created here. The lock of a file is held by
all processes that have it open.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # Windows has another lock
    fcntl = None  # type: ignore[assignment]
    import msvcrt

_Act = TypeVar("_Act", bound=Callable[[], object])
_locks: WeakSet[Any] = WeakSet()
_acts: list[Callable[[], object]] = []
_locked: set[IO[bytes]] = set()
"""Files that this process has locked or is locking."""
_LOCK_AT = 2**31 - 2  # on Windows a locked byte cannot be read, so this locks one beyond the end of any journal


def lock() -> threading.Lock:
    """Return a lock that is free in a forked child. A thread must not fork while it holds the lock."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """Return a reentrant lock that is free in a forked child, unless the forking thread holds it."""
    made = threading.RLock()
    _locks.add(made)
    return made


@contextlib.contextmanager
def file_lock(file: IO[bytes], *, shared: bool = False) -> Iterator[None]:
    """Hold the advisory lock of an open file during the block. A forked child does not have it."""
    if fcntl:
        _locked.add(file)
        try:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            _locked.discard(file)
            fcntl.flock(file, fcntl.LOCK_UN)  # closing alone does not: a forked child has the file open as well
        return
    file.seek(_LOCK_AT)
    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
    try:
        yield
    finally:
        file.seek(_LOCK_AT)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]


def in_child(act: _Act) -> _Act:
    """Register `act` to be called in every forked child, once the locks are free. Can be used as a decorator."""
    _acts.append(act)
    return act


def _begin() -> None:
    for one in list(_locks):
        if not (hasattr(one, "_is_owned") and one._is_owned()):
            one._at_fork_reinit()  # as logging and concurrent.futures do
    for act in _acts:
        act()


@in_child
def _let_go() -> None:
    """Close locked files in a forked child, as a lock lasts until the last process closes the file."""
    for file in _locked:
        file.close()
    _locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
