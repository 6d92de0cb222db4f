"""The process's signal handlers. Only the main thread can install them: Python allows it in no other thread.

crewlite's handlers are installed only while a run listens; afterwards the program's own are restored. A handler does as
little as possible, because it interrupts the main thread anywhere: it notifies each listener on its run's loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, Self, TypeVar

from crewlite.concurrency import background
from crewlite.concurrency.between_loops import result_of
from crewlite.system.forked import in_child, lock
from crewlite.system.steady_clock import is_true_within

T = TypeVar("T")
GRACE = 2.0  # seconds that an interrupted run has to close its journal


@dataclass(slots=True)
class _Ending:
    """The state of the end of runs by a signal. Only the main thread changes it."""

    signal: str = ""  # the signal that is ending runs: a further one ends the process without waiting
    telling: bool = False  # its handler is running: a further signal waits until all listeners are notified
    further: str = ""  # a signal that came while the handler ran


@dataclass(slots=True)
class _Stop:
    """The state of a stop of the process by SIGTSTP. Only the main thread changes it."""

    is_reported: bool = False  # whether runs are recording the signal: a further one stops the process without waiting
    handler: Any = None  # the handler to restore as soon as the stopped process is continued


_listeners: tuple[SignalListener, ...] = ()  # replaced, never changed: a handler may read it at any moment
_on_main_thread: list[BlockingCall] = []  # the main thread's nested waits, the innermost last
_before: dict[str, Any] = {}  # the handlers that were installed before crewlite's
_ending = _Ending()
_stop = _Stop()
_lock = lock()  # never acquired by a signal handler


def listen(listener: SignalListener) -> None:
    """Let a listener receive the signals it asks for. Call it on the main thread.

    A signal that is ending other runs at this moment ends the listener's run too.
    """
    global _listeners
    with _lock:
        _listeners = (*_alive(), listener)
    _install()
    if _ending.signal in listener.asked:
        listener.end(_ending.signal)


def leave(listener: SignalListener) -> bool:
    """Stop a listener. Returns whether it was listening. On any other thread than the main one, handlers stay."""
    global _listeners
    with _lock:
        was = listener in _listeners
        _listeners = tuple(one for one in _alive() if one is not listener)
    if threading.current_thread() is threading.main_thread():
        _install()
    return was


def listeners() -> tuple[SignalListener, ...]:
    """Return the listeners that receive signals at this moment."""
    return _listeners


def may_handle(name: str) -> bool:
    """Return whether crewlite may install its own handler for a signal, such as SIGTERM. Call it on the main thread.

    Not if the process ignores the signal, or if its handler was not installed by Python code and so cannot be restored.
    """
    return signal.getsignal(signal.Signals[name]) not in (signal.SIG_IGN, None)


def end_process(name: str) -> BaseException:
    """Call the program's own handler of a signal, and return the error to raise. Call it on the main thread.

    All runs are closed by then. The error is SystemExit with the status that shells give to the signal. For SIGINT it
    is KeyboardInterrupt, and no handler is called.
    """
    if name != "SIGINT":
        _pass_on(name)
    return _exit(name)


class SignalListener(Protocol):
    """Receives signals for a run, on the run's own loop."""

    loop: asyncio.AbstractEventLoop
    asked: dict[str, Any]
    """A mapping whose keys are the names of the signals to receive."""
    waiting: BlockingCall | None
    """The main thread's wait for the run; None if the run is on the main thread's own loop."""
    ended_by: str
    """The signal that ends the run; "" if there is none."""
    over: asyncio.Future[None]
    """Done when the run has ended and its journal is closed."""

    def end(self, name: str) -> None:
        """End the run, because of this signal. Callable from any thread."""

    def report(self, name: str, then: Callable[[Self], None]) -> None:
        """Record a signal that does not end the run; then call `then` on the run's loop. Callable from any thread."""

    def on_main_thread(self, act: Callable[[], None]) -> None:
        """Have the main thread call `act`. Call it on the run's loop."""


class BlockingCall:
    """A thread's wait in the sync bridge. Meanwhile the main thread installs signal handlers, if a run asks for it."""

    def __init__(self) -> None:
        self.serves = threading.current_thread() is threading.main_thread()
        """Whether the waiting thread is the main thread."""
        self.blocks = background.running_loop()
        """The event loop of the waiting thread, which stands still meanwhile; None if there is none."""
        self.warned: set[str] = set()
        """Warnings that were logged already. One wait may be for many runs."""
        self._ended_by = ""
        self._closed = False
        self._acts: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """The calls to make, in order; None ends the wait."""

    def __enter__(self) -> BlockingCall:
        self._token = _waiting.set(self)
        if self.serves:
            _on_main_thread.append(self)
        return self

    def wait(self, future: Future[T]) -> T:
        """Wait for a future and return its result. Meanwhile, make the calls that other threads request with `ask`.

        Raises KeyboardInterrupt or SystemExit when a signal that a listener receives ends the run.
        """
        future.add_done_callback(lambda _: self._acts.put(None))
        while act := background.next_of(self._acts):
            act()
        return result_of(future)

    def ask(self, act: Callable[[], None]) -> Future[None]:
        """Have the waiting thread call `act`, unless it has stopped waiting. Callable from any thread.

        The future is done when the call has returned or raised.
        """
        done: Future[None] = Future()

        def answered() -> None:
            try:
                act()
            except Exception as error:  # raised where the future is awaited
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
        """Make `wait` raise the error that ends the process. Called by a signal handler."""
        self._ended_by = name

        def act() -> None:
            raise _exit(name)

        self._acts.put(act)

    def cut(self, cancel: Callable[[], object], *, ending: bool) -> None:
        """Cancel the runs of this call. If a signal is ending them, first give them time to record that and end.

        `ending`: the program ends, so runs that begin later are ended too.
        """
        if self.serves and ending:
            _ending.signal = self._ended_by or "SIGINT"
        if self._ended_by:
            if _ending.further:
                raise _exit(_ending.further)
            is_true_within(lambda: all(one.waiting is not self for one in _alive()), GRACE)
        cancel()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _waiting.reset(self._token)
        self.blocks = None
        if not self.serves:
            return
        with _lock:
            self._closed = True
        _on_main_thread.remove(self)
        for listener in _listeners:
            if listener.waiting is self:
                leave(listener)
        _install()
        _stop_process()  # for a SIGTSTP that came as the run ended and was not handled yet
        if self._ended_by:
            ending = end_process(self._ended_by)
            if error is None:  # the signal came after the run had its result
                raise ending


_waiting: contextvars.ContextVar[BlockingCall | None] = contextvars.ContextVar("crewlite_waiting", default=None)


def waiting() -> BlockingCall | None:
    """Return the `BlockingCall` of the blocking call inside which this code runs; None outside of such a call."""
    return _waiting.get()


def blocked_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that the blocking call blocks inside which this code runs; None if it blocks none."""
    call = waiting()
    return call.blocks if call else None


def _caught(number: int, frame: FrameType | None) -> None:
    """Handle any signal that crewlite handles. It runs on the main thread, between any two instructions of it."""
    name = signal.Signals(number).name
    hearing = [one for one in _alive() if name in one.asked]
    if not hearing:
        signal.signal(number, _before.pop(name, signal.SIG_DFL))
        signal.raise_signal(number)
    elif name == "SIGCONT":
        _put_handler_back()  # before listeners are notified, who may stop the process again
        for listener in hearing:
            listener.report(name, lambda _: None)
        _pass_on(name)
    elif name == "SIGTSTP":
        _report_stop(hearing)
    else:
        _end_runs(hearing, name)


def _alive() -> tuple[SignalListener, ...]:
    return tuple(one for one in _listeners if not one.loop.is_closed())


def _end_runs(hearing: list[SignalListener], name: str) -> None:
    if _ending.telling:
        _ending.further = name
        return
    if _ending.signal:
        raise _exit(name)
    _ending.signal, _ending.telling = name, True
    try:
        for listener in hearing:
            listener.end(name)
        for innermost in _on_main_thread[-1:]:
            innermost.end(name)
    finally:
        _ending.telling = False
    if _ending.further and not _on_main_thread:  # if there is a call, the innermost one raises it
        raise _exit(_ending.further)


def _report_stop(hearing: list[SignalListener]) -> None:
    if _stop.is_reported:
        _stop_process()
        return
    _stop.is_reported, left = True, set(hearing)

    def reported(listener: SignalListener) -> None:
        left.discard(listener)
        if not left:
            listener.on_main_thread(_stop_process)

    for listener in hearing:
        listener.report("SIGTSTP", reported)


def _stop_process() -> None:
    """Stop the process, as SIGTSTP would have done without crewlite. Call it on the main thread."""
    if not _stop.is_reported:
        return
    _stop.is_reported = False
    if _pass_on("SIGTSTP"):
        return
    number = signal.Signals["SIGTSTP"]
    _stop.handler = signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)  # returns when the process is continued
    _put_handler_back()


def _put_handler_back() -> None:
    """Restore the handler that SIGTSTP had before the process was stopped. The handler of SIGCONT may have done so."""
    if _stop.handler is not None:
        signal.signal(signal.Signals["SIGTSTP"], _stop.handler)
        _stop.handler = None


def _pass_on(name: str) -> bool:
    """Call the program's own handler of a signal. Returns whether it has one."""
    number = signal.Signals[name]
    handler = _before.get(name, signal.getsignal(number))
    if not callable(handler) or handler is _caught:
        return False
    handler(number, None)
    return True


def _exit(name: str) -> BaseException:
    return KeyboardInterrupt() if name == "SIGINT" else SystemExit(128 + signal.Signals[name])


def _install() -> None:
    """Install handlers for the signals that listeners ask for, and restore the program's own for all others.

    Call it on the main thread.
    """
    alive = _alive()
    asked = {name for listener in alive for name in listener.asked}
    for name in asked - _before.keys():
        _before[name] = signal.signal(signal.Signals[name], _caught)
    for name in _before.keys() - asked:
        number = signal.Signals[name]
        if signal.getsignal(number) is _caught:  # not if the program has installed another handler meanwhile
            signal.signal(number, _before[name])
        del _before[name]
    if not alive and not _on_main_thread:
        _ending.signal = _ending.further = ""


@in_child
def _forget() -> None:
    """In a forked child, where no run is running, remove the parent's handlers, so that signals can end the child."""
    global _listeners
    _listeners, _stop.is_reported = (), False
    _ending.signal, _ending.telling, _ending.further = "", False, ""
    _on_main_thread.clear()
    _install()
