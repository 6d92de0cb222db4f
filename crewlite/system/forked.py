"""Support for forked children: locks that are free in them, functions to call there, and work that no fork cuts.

A forked child has a copy of its parent's memory but none of its threads. A lock that another thread held during the
fork would stay locked in the child for ever, so all locks of crewlite are created here. Locks of SQLite and of Python's
imports cannot be freed, so a fork waits for work that may hold them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging  # noqa: F401 - it has a hook for forks too, and the one of the module imported first runs last
import os
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from weakref import WeakSet

_Act = TypeVar("_Act", bound=Callable[[], object])
_locks: WeakSet[Any] = WeakSet()
_acts: list[Callable[[], object]] = []
_PATIENCE = 15.0  # seconds that a fork waits for work; that is more than a commit waits for a busy database


def lock() -> threading.RLock:
    """Return a lock that is free in a forked child, unless the forking thread holds it. crewlite has no others.

    Garbage collection closes abandoned coroutines and generators on any thread, in the middle of any code, and on the
    way out they may need a lock. The thread may hold it, so it is reentrant, and its holder must expect changes at
    every call. Nor may another holder wait for that thread: with a lock that a way out needs, take no other lock, wait
    for no thread and start none, as `start` waits until it has begun. A way out waits for nothing without a limit.
    """
    made = threading.RLock()
    _locks.add(made)
    return made


class OwnLock:
    """An object whose copies have a lock of their own, as none can be copied, and lists and dicts of their own."""

    _lock: threading.RLock

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = {name: value.copy() if isinstance(value, list | dict) else value for name, value in state.items()}
        vars(self).update(own, _lock=lock())


if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class _Unlocked(functools.cached_property):
        """functools.cached_property without its lock, which it has in Python 3.11: all objects of a class share that.

        A child could not compute the property of any object if another thread computed one during the fork.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            super().__init__(compute)
            self.lock = contextlib.nullcontext()

    cached_property = _Unlocked


class Closable(Protocol):
    """What must not be open in a process that forks."""

    def close(self) -> None:
        """Close it. It is opened again when it is next used."""


class _Uncut:
    """A context manager for work that no fork may cut: one by another thread waits for its end, for at most 15 s.

    A thread may enter again inside.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(lock())
        self._inside: list[int] = []
        """The threads in a block, each as often as it has entered one."""
        self.forking: dict[int, bool] = {}
        """The threads that are about to fork, and whether no work is under way. Nobody enters until they have."""

    def __enter__(self) -> None:
        self._inside.append(get_ident())
        if self.forking:  # only now, so that either this thread sees the fork, or the fork sees this thread
            self._wait_for_forks()

    def __exit__(self, *exc: object) -> None:
        self._inside.remove(get_ident())
        if self.forking:
            with self._changed:
                self._changed.notify_all()

    @property
    def entered(self) -> bool:
        """Whether the calling thread is in a block."""
        return get_ident() in self._inside

    def _wait_for_forks(self) -> None:
        me = get_ident()
        if me in self.forking or self._inside.count(me) > 1:
            return
        with self._changed:
            self._inside.remove(me)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.forking)
            self._inside.append(me)

    def before_fork(self) -> None:
        me = get_ident()
        with self._changed:
            self.forking[me] = False
            ended = self._changed.wait_for(lambda: set(self._inside) <= {me}, _PATIENCE)
            self.forking[me] = ended and me not in self._inside

    def in_parent(self) -> None:
        """Let other threads go on."""
        with self._changed:
            self.forking.pop(get_ident(), None)
            self._changed.notify_all()

    def in_child(self) -> None:
        self._inside = [one for one in self._inside if one == get_ident()]
        self.forking.clear()


class _BetweenForks(_Uncut):
    """Work with databases, which are closed for a fork.

    If a fork has waited in vain, or the thread that does the work forks itself, the child cannot use databases:
    entering raises ConfigError there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle = WeakSet[Closable]()
        """What is open between blocks, and is closed before a fork."""
        self.carried: tuple[object, ...] = ()
        """What was open or at work at the fork that made this process, and is never closed here."""

    def __enter__(self) -> None:
        if self.carried:
            errors = importlib.import_module("crewlite.errors")  # which imports this module by way of crewlite.lazy
            raise errors.ConfigError(
                "This process was forked while its parent was using a database, so SQLite cannot be used here. Start "
                "the process with the method 'spawn' or 'forkserver' of multiprocessing, or keep the runs in a "
                "directory of JSON files"
            )
        super().__enter__()

    def before_fork(self) -> None:
        """Wait until no other thread uses a database, and close those that are open."""
        with self._changed:
            super().before_fork()
            for one in list(self.idle) if self.forking[get_ident()] else ():
                one.close()

    def in_child(self) -> None:
        """Forget the other threads, and note whether one of them was using a database."""
        if not self.forking.get(get_ident()):
            self.carried = (*self.carried, *self.idle, *self._inside)
        super().in_child()


between_forks = _BetweenForks()
imports = _Uncut()
"""Imports of modules at their first use, as a child could never import what its parent was importing at the fork."""
_uncut: tuple[_Uncut, ...] = between_forks, imports  # in this order, as work with a database may import modules


def in_child(act: _Act) -> _Act:
    """Register `act` to be called in every forked child, once the locks are free. Can be used as a decorator."""
    _acts.append(act)
    return act


def end_child(error: BaseException | None = None) -> NoReturn:
    """End a forked child that has come to the end of its own work, as the end of a program does.

    Python ends one that was forked in a thread with the code 0, whatever was raised.
    """
    code = 0
    try:
        if isinstance(error, SystemExit):
            code = _exit_code(error)
        elif error is not None:
            code = 1
            sys.excepthook(type(error), error, error.__traceback__)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


def _begin() -> None:
    for one in list(_locks):
        if not (hasattr(one, "_is_owned") and one._is_owned()):
            one._at_fork_reinit()  # as logging and concurrent.futures do
    for work in _uncut:
        work.in_child()
    for act in _acts:
        act()


def _wait() -> None:
    for work in _uncut:
        work.before_fork()


def _go_on() -> None:
    for work in _uncut:
        work.in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_begin)


def _exit_code(error: SystemExit) -> int:
    """Return the code with which Python ends a program for this. What is no code is printed, as Python does."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
