"""Signal handlers of the process, and the main thread that installs them: Python lets no other thread do so.

There are handlers of ours only while a run listens, and what the program had installed comes back after it. A handler
does next to nothing, as it interrupts the main thread anywhere: it tells the listeners, each on its run's own loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any, Protocol, Self, TypeVar

from crewlite.forked import in_child, lock

T = TypeVar("T")
GRACE = 2.0  # seconds that an interrupted run has to leave its journal in order
_POLL = 0.5 if sys.platform == "win32" else None  # a blocking wait does not hear Ctrl-C on Windows

_listeners: tuple[Listener, ...] = ()  # never changed in place: a handler may look at it at any moment
_doors: list[Waiting] = []  # where the main thread waits, the innermost last
_before: dict[str, Any] = {}  # the handlers that were there before ours
_ending = ""  # the signal that is ending runs: another one does not wait
_standing = False  # a signal to stand still is being told: another one does not wait
_lock = lock()  # never taken by a handler


def listen(listener: Listener) -> None:
    """On the main thread: have it hear what it asks for. A signal that is ending other runs ends this one too."""
    global _listeners
    with _lock:
        _listeners = (*_alive(), listener)
        if listener.waiting:
            listener.waiting.quiet.clear()
    _install()
    if _ending in listener.asked:
        listener.end(_ending)


def leave(listener: Listener) -> bool:
    """Have it hear nothing more. False if it did not listen. Its handlers go on the main thread alone."""
    global _listeners
    with _lock:
        was = listener in _listeners
        _listeners = tuple(one for one in _alive() if one is not listener)
        if listener.waiting and not any(one.waiting is listener.waiting for one in _listeners):
            listener.waiting.quiet.set()
    if threading.current_thread() is threading.main_thread():
        _install()
    return was


def listeners() -> tuple[Listener, ...]:
    """Those that listen at this moment."""
    return _listeners


def heard(name: str) -> bool:
    """On the main thread: whether a handler of ours could hear a signal. One that is ignored stays ignored.

    Nor can it where the handler is not Python's own: it could not be put back.
    """
    return signal.getsignal(signal.Signals[name]) not in (signal.SIG_IGN, None)


def end_process(name: str) -> BaseException:
    """On the main thread, when the runs are in order: let the program's own handler hear of it. Returns what to raise.

    That is SystemExit with the status which shells give to this signal; for Ctrl-C, KeyboardInterrupt.
    """
    if name != "SIGINT":
        _pass_on(name)
    return _exit(name)


class Listener(Protocol):
    """Who hears signals: a run, on its own loop."""

    loop: asyncio.AbstractEventLoop
    asked: dict[str, Any]
    """By the names of the signals that it hears."""
    waiting: Waiting | None
    """The main thread, if it waits for the run."""
    ended_by: str
    """The signal that ends the run."""
    over: asyncio.Future[None]
    """Done when the run has ended and its journal is in order."""

    def end(self, name: str) -> None:
        """From any thread: end the run."""

    def report(self, name: str, then: Callable[[Self], None]) -> None:
        """From any thread: tell of a signal that does not end the run; then call `then` on the run's loop."""

    def on_main_thread(self, act: Callable[[], None]) -> None:
        """On the run's loop: have the main thread do something."""


class Waiting:
    """A thread that waits in the sync bridge. The main thread does meanwhile what only it can do."""

    def __init__(self) -> None:
        self.serves = threading.current_thread() is threading.main_thread()
        """Whether it can do anything for the run."""
        self.warned: set[str] = set()
        """What the log was told already: many runs may be waited for at once."""
        self.quiet = threading.Event()
        """Set while no run that is waited for listens."""
        self.quiet.set()
        self._ended_by = ""
        self._closed = False
        self._acts: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """What to do, in order; None ends the wait."""

    def __enter__(self) -> Waiting:
        self._token = _waiting.set(self)
        if self.serves:
            _doors.append(self)
        return self

    def wait(self, future: Future[T]) -> T:
        """The result. Raises KeyboardInterrupt or SystemExit when a signal that was asked for ends the run."""
        future.add_done_callback(lambda _: self._acts.put(None))
        while act := self._next():
            act()
        return future.result()

    def ask(self, act: Callable[[], None]) -> Future[None]:
        """From any thread: have the waiting thread do something. Nothing is done when it no longer waits."""
        done: Future[None] = Future()

        def answered() -> None:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - handed over whole to whoever asked
                done.set_exception(error)
            else:
                done.set_result(None)

        with _lock:
            if not self._closed:
                self._acts.put(answered)
                return done
        done.set_result(None)
        return done

    def end(self, name: str) -> None:
        """From a handler: have `wait` raise what ends the process."""
        self._ended_by = name

        def act() -> None:
            raise _exit(name)

        self._acts.put(act)

    def cut(self, future: Future[Any]) -> None:
        """Cancel what was waited for. Runs that heard a signal end by themselves, as they have something to tell."""
        global _ending
        if self.serves:
            _ending = self._ended_by or "SIGINT"
        if self._ended_by:
            self.quiet.wait(GRACE)
        future.cancel()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _waiting.reset(self._token)
        if not self.serves:
            return
        with _lock:
            self._closed = True
        _doors.remove(self)
        for listener in _listeners:
            if listener.waiting is self:
                leave(listener)
        _install()
        if self._ended_by:
            ending = end_process(self._ended_by)
            if error is None:  # the signal came when the run had its result
                raise ending

    def _next(self) -> Callable[[], None] | None:
        while True:
            try:
                return self._acts.get(timeout=_POLL)
            except queue.Empty:
                continue


_waiting: contextvars.ContextVar[Waiting | None] = contextvars.ContextVar("crewlite_waiting", default=None)


def waiting() -> Waiting | None:
    """The thread that waits in the sync bridge for the current code."""
    return _waiting.get()


def _caught(number: int, frame: FrameType | None) -> None:
    """The handler of all signals. On the main thread, between any two instructions of it."""
    name = signal.Signals(number).name
    hearing = [one for one in _alive() if name in one.asked]
    if not hearing:
        signal.signal(number, _before.pop(name, signal.SIG_DFL))
        signal.raise_signal(number)
    elif name == "SIGCONT":
        for listener in hearing:
            listener.report(name, lambda _: None)
        _pass_on(name)
    elif name == "SIGTSTP":
        _before_standing_still(hearing)
    else:
        _before_ending(hearing, name)


def _alive() -> tuple[Listener, ...]:
    """Without those that were abandoned, with their loop."""
    return tuple(one for one in _listeners if not one.loop.is_closed())


def _before_ending(hearing: list[Listener], name: str) -> None:
    global _ending
    if _ending:
        raise _exit(name)
    _ending = name
    for listener in hearing:
        listener.end(name)
    for door in _doors[-1:]:
        door.end(name)


def _before_standing_still(hearing: list[Listener]) -> None:
    global _standing
    if _standing:
        _stand_still()
        return
    _standing, left = True, set(hearing)

    def reported(listener: Listener) -> None:
        left.discard(listener)
        if not left:
            listener.on_main_thread(_stand_still)

    for listener in hearing:
        listener.report("SIGTSTP", reported)


def _stand_still() -> None:
    """On the main thread: do what the signal would have done without us."""
    global _standing
    if not _standing:
        return
    _standing = False
    if _pass_on("SIGTSTP"):
        return
    number = signal.Signals["SIGTSTP"]
    handler = signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)  # returns when the process is continued
    signal.signal(number, handler)


def _pass_on(name: str) -> bool:
    """Call the program's own handler, if it has one."""
    number = signal.Signals[name]
    handler = _before.get(name, signal.getsignal(number))
    if not callable(handler) or handler is _caught:
        return False
    handler(number, None)
    return True


def _exit(name: str) -> BaseException:
    return KeyboardInterrupt() if name == "SIGINT" else SystemExit(128 + signal.Signals[name])


def _install() -> None:
    """On the main thread: have a handler for what is listened to, and none of ours for anything else."""
    global _ending
    asked = {name for listener in _listeners for name in listener.asked}
    for name in asked - _before.keys():
        _before[name] = signal.signal(signal.Signals[name], _caught)
    for name in _before.keys() - asked:
        number = signal.Signals[name]
        if signal.getsignal(number) is _caught:  # else the program has installed another meanwhile
            signal.signal(number, _before[name])
        del _before[name]
    if not _listeners and not _doors:
        _ending = ""


@in_child
def _forget() -> None:
    """In a forked child, where no run is at work: what its parent installed must not keep it from being ended."""
    global _listeners, _ending, _standing
    _listeners, _ending, _standing = (), "", False
    _doors.clear()
    _install()
