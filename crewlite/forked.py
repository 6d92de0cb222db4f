"""What this process has one of, made fit for use in a forked child.

A child has the memory of its parent and none of its threads. A lock that another thread held at that moment would stay
held for ever, so every lock of crewlite is made here.
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
    """A lock that is free in a forked child. A thread that holds it must not fork."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """A reentrant lock that is free in a forked child, unless the thread that forked holds it."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(act: _Act) -> _Act:
    """Call `act` in every forked child, when its locks are free. May decorate a function of a module."""
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
