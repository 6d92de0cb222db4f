"""Support for forked child processes: locks that are free in the child, and functions to call there.

A forked child has a copy of its parent's memory but none of its threads. A lock that another thread held during the
fork would stay locked in the child for ever, so all locks of crewlite are created here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

_Act = TypeVar("_Act", bound=Callable[[], object])
_locks: WeakSet[Any] = WeakSet()
_acts: list[Callable[[], object]] = []


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
