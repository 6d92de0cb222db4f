"""The central bus: which handlers receive which event, in which order, and what happens when a handler fails.

One blinker signal for each event class holds the subscriptions and their sources. The bus adds what blinker does not
have: order of registration, strong references, isolation of errors, ordered queues for async handlers, and emits inside
handlers that wait their turn. The receivers of an event class are cached, so an event without receivers costs almost
nothing. Handlers are only ever added to a signal; to remove one, the signal is replaced. So an emit on another thread,
or the garbage collection of a source at that moment, never sees a half-made change.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import itertools
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any, NamedTuple, TypeVar, overload

from blinker import Signal

from crewlite import durable
from crewlite.coming_from import Hinting
from crewlite.concurrency import background
from crewlite.definitions.callables import is_async
from crewlite.errors import OnLoopThread
from crewlite.events.base import BaseEvent
from crewlite.events.delivery import (
    Delivery,
    Handler,
    Lane,
    Receiver,
    event_chain,
    let_go_of,
    log,
    masking,
    report,
    takes_state,
    within_lanes,
)
from crewlite.lazy import first_use
from crewlite.system.forked import in_child, lock

E = TypeVar("E", bound=BaseEvent)
H = TypeVar("H", bound=Handler)


class Hearing(NamedTuple):
    """Who hears a class of events."""

    receivers: tuple[Receiver, ...]
    """In the order of registration."""
    signals: tuple[Signal, ...]
    """Those of the class and its bases, if a receiver has a source; else ()."""


_LONGEST_CHAIN = 64  # events that handlers may emit one inside the other
_MOST_IN_TURN = 10_000  # events that one emit may lead to


class Subscription:
    """The subscription of one handler. As a context manager, it is cancelled at the end of the block."""

    def __init__(self, bus: EventBus, receiver: Receiver) -> None:
        self._bus, self._receiver = bus, receiver
        self.event, self.handler = receiver.event, receiver.handler

    def cancel(self) -> None:
        """End the subscription. May be called twice."""
        self._bus._drop(self.event, lambda receiver: receiver is self._receiver)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()


class EventBus(Hinting):
    """Delivers typed events to handlers. Handlers take `(source, event)` or `(source, event, state)`.

    Sync handlers run inside `emit`, in the order of registration. Each async handler has an ordered queue of its own on
    the loop that emits. An error in a handler is logged with the handler's name and affects nothing else.
    """

    def __init__(self) -> None:
        self._signals: dict[type[BaseEvent], Signal] = {}
        self.hearing = _Hearings(self._found)
        """Who hears each class of events. Every change of the subscriptions begins a new mapping."""
        self._lanes: dict[tuple[Receiver, asyncio.AbstractEventLoop], Lane] = {}
        self._order = itertools.count()
        self._changes = 0
        self._lock = lock()
        self._bereft = deque[type[BaseEvent]]()  # event classes with a handler whose source no longer exists
        self._local = threading.local()

    @overload
    def on(self, event: type[BaseEvent], *, source: object = None) -> Callable[[H], H]: ...
    @overload
    def on(self, event: type[BaseEvent], handler: Handler, *, source: object = None) -> Subscription: ...
    def on(self, event: type[BaseEvent], handler: Handler | None = None, *, source: object = None) -> Any:
        """Subscribe a handler to a class of events and its subclasses.

        `@bus.on(TaskCompletedEvent)` decorates a function and returns it unchanged; `bus.on(cls, handler)` returns a
        Subscription, usable with `with`. Raises TypeError for a wrong argument.

        With `source` the handler receives only the events of that crew, task, agent, tool or model. The bus holds the
        source weakly: when the source no longer exists, its subscriptions end.
        """
        if not (isinstance(event, type) and issubclass(event, BaseEvent)):
            raise TypeError(f"on() was given {event!r} as event; wanted an event class, such as TaskCompletedEvent")
        if handler is not None and not callable(handler):
            raise TypeError(f"on() was given {handler!r} as handler; wanted a function")
        where = None if source is None else self._watched(event, source)
        if handler is None:

            def decorate(fn: H) -> H:
                self._add(event, fn, where)
                return fn

            return decorate
        return Subscription(self, self._add(event, handler, where))

    def off(self, event: type[BaseEvent], handler: Handler, *, source: object = None) -> None:
        """End every subscription, if any, of a handler to a class, or with `source` only the one to that source."""
        self._drop(event, lambda one: (source is None or one.sender is source) and bool(one.handler == handler))

    def hears(self, event: type[BaseEvent], source: object = None) -> bool:
        """Return whether a handler receives events of this class (from `source`). If none does, no event is needed."""
        receivers, signals = self.hearing[event]
        return bool(receivers if source is None or not signals else _of(source, receivers, signals))

    def emit(self, source: object, event: BaseEvent, state: Any = None) -> None:
        """Deliver an event to every subscribed handler. Handlers that take three arguments also get `state`.

        If it is called inside a handler, the event waits until the current one was delivered to all handlers.
        """
        receivers, signals = self.hearing[type(event)]
        if signals:
            receivers = _of(source, receivers, signals)
        if not receivers:
            return
        types = (*event_chain.get(), event.type)
        if len(types) > _LONGEST_CHAIN:
            log.error("Events emit each other without end; stopped after %d: %s", len(types), " -> ".join(types[-8:]))
            return
        event.emitted_by(source)
        delivery = Delivery(receivers, source, event, state, types, masking.get())
        queue: deque[Delivery] | None = getattr(self._local, "queue", None)
        if queue is not None:
            queue.append(delivery)
            return
        self._local.queue = queue = deque((delivery,))
        heard = 0
        try:
            while queue and heard < _MOST_IN_TURN:
                self._deliver(queue.popleft())
                heard += 1
            if queue:
                log.error(
                    "Events emit each other without end; stopped after %d: %s", heard, " -> ".join(queue[0].chain)
                )
        finally:
            self._local.queue = None

    async def aflush(self, timeout: float = 30.0) -> list[str]:
        """Wait until the async handlers of this loop have handled all events emitted so far.

        A handler that calls this does not wait for itself. Returns the names of the handlers that took longer than
        `timeout` seconds; a warning is logged for these, and they are not cancelled.
        """
        here = asyncio.get_running_loop()
        marks = {}
        for lane in list(self._lanes.values()):
            if lane.loop is here and lane.busy and lane not in within_lanes.get():
                mark: asyncio.Future[None] = here.create_future()
                lane.put(mark)
                marks[mark] = lane.receiver.name
        if not marks:
            return []
        try:
            _, late = await asyncio.wait(marks, timeout=timeout)
        finally:
            for mark in marks:
                mark.cancel()  # nobody waits any more
        names = sorted(marks[mark] for mark in late)
        if names:
            log.warning("Event handlers still busy after %g s: %s", timeout, ", ".join(names))
        return names

    def flush(self, timeout: float = 30.0) -> bool:
        """Block until the async handlers on all other loops have handled all events emitted so far.

        Returns whether they have done so within about `timeout` seconds. Raises OnLoopThread on crewlite's own loop.
        """
        if background.on_loop_thread():
            raise OnLoopThread("flush")
        here = background.running_loop()
        loops = {one.loop for one in list(self._lanes.values()) if background.runs(one.loop) and one.loop is not here}
        waits = [asyncio.run_coroutine_threadsafe(self.aflush(timeout), loop) for loop in loops]
        done, blocked = wait(waits, timeout + 1)  # on a loop that a handler blocks, aflush cannot time out
        return not blocked and not any(flushed.result() for flushed in done)

    @contextlib.contextmanager
    def scoped(self) -> Iterator[EventBus]:
        """End, after the block, all subscriptions made inside it."""
        start = next(self._order)
        try:
            yield self
        finally:
            for event in list(self._signals):
                self._drop(event, lambda receiver: receiver.order > start)

    scoped_handlers = scoped
    """The name that CrewAI has for it."""

    def _add(self, event: type[BaseEvent], handler: Handler, source: weakref.ref[Any] | None) -> Receiver:
        receiver = Receiver(
            handler,
            event,
            next(self._order),
            is_async=is_async(handler),
            wants_state=takes_state(handler),
            source=source,
        )
        with self._lock:
            signal = None
            while signal is not (signal := self._signals.setdefault(event, Signal())):  # `_drop` may replace it here
                _connect(signal, receiver)
            self._changed()
        self._let_go()
        return receiver

    def _drop(self, event: type[BaseEvent], gone: Callable[[Receiver], bool]) -> None:
        with self._lock:
            seen = -1
            while seen != self._changes:  # a finalizer that runs meanwhile may change the subscriptions too
                seen, left, before = self._changes, Signal(), _receivers(self._signals.get(event))
                for receiver in before:
                    if not gone(receiver):
                        _connect(left, receiver)
            if len(_receivers(left)) < len(before):
                self._signals[event] = left
                self._changed()
                here = {receiver for signal in self._signals.values() for receiver in _receivers(signal)}
                let_go_of(self._lanes, lambda lane: not lane.busy and lane.receiver not in here)
        self._let_go()

    def _changed(self) -> None:
        self._changes += 1
        self.hearing = _Hearings(self._found)

    def _watched(self, event: type[BaseEvent], source: object) -> weakref.ref[Any]:
        """Return a weak reference to a source, whose end may come at any moment and on any thread."""
        bus = weakref.ref(self)

        def gone(_: object) -> None:
            if here := bus():
                here._bereft.append(event)
                here._let_go()

        try:
            return weakref.ref(source, gone)
        except TypeError:
            raise TypeError(
                f"on() was given {source!r} as source; wanted the object that emits the events, such as a crew"
            ) from None

    def _let_go(self) -> None:
        """Drop handlers whose source no longer exists. If another thread holds the lock, that thread drops them."""
        while self._bereft and self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(IndexError):
                    self._drop(self._bereft.popleft(), lambda receiver: receiver.sender is None)
            finally:
                self._lock.release()

    def _found(self, cls: type[BaseEvent]) -> Hearing:
        with self._lock:
            signals = tuple(signal for base in cls.__mro__ if (signal := self._signals.get(base)))
            found = sorted((r for signal in signals for r in _receivers(signal)), key=lambda receiver: receiver.order)
        self._let_go()
        return Hearing(tuple(found), signals if any(one.source is not None for one in found) else ())

    def _deliver(self, delivery: Delivery) -> None:
        source, event, state = delivery.source, delivery.event, delivery.state
        token = event_chain.set(delivery.chain)
        inside = durable.detach()  # a kickoff inside a handler is a new run
        try:
            for receiver in delivery.receivers:
                try:
                    if receiver.is_async:
                        self._enqueue(receiver, delivery)
                    elif receiver.wants_state:
                        receiver.handler(source, event, state)
                    else:
                        receiver.handler(source, event)
                except BaseException as error:  # the border: an error in a handler affects nothing else
                    if isinstance(error, KeyboardInterrupt | SystemExit) and not background.on_loop_thread():
                        raise  # on the background loop's thread it would end the loop, and callers would wait for ever
                    report(receiver, delivery, error)
        finally:
            durable.reattach(inside)
            event_chain.reset(token)

    def _enqueue(self, receiver: Receiver, delivery: Delivery) -> None:
        here = background.running_loop()
        loop = here or background.loop()
        key = (receiver, loop)
        lane = self._lanes.get(key)
        if lane is None:
            with self._lock:
                if not self._lanes:
                    atexit.register(_at_exit, self)
                let_go_of(self._lanes, lambda lane: lane.loop.is_closed())
                lane = self._lanes.setdefault(key, Lane(receiver, loop))
        item = delivery, contextvars.copy_context()  # a handler finds the variables of the run whose event it hears
        if here:
            lane.put(item)
        else:
            loop.call_soon_threadsafe(lane.put, item)


class _Hearings(dict[type[BaseEvent], Hearing]):
    """Finds who hears a class of events when the class is first looked up."""

    def __init__(self, find: Callable[[type[BaseEvent]], Hearing]) -> None:
        self._find = find

    def __missing__(self, cls: type[BaseEvent]) -> Hearing:
        hearing = self[cls] = self._find(cls)
        return hearing


def _of(source: object, receivers: tuple[Receiver, ...], signals: tuple[Signal, ...]) -> tuple[Receiver, ...]:
    hearing = {receiver for signal in signals for receiver in signal.receivers_for(source)}
    return tuple(receiver for receiver in receivers if receiver.source is None or receiver in hearing)


def _connect(signal: Signal, receiver: Receiver) -> None:
    if (sender := receiver.sender) is not None:
        signal.connect(receiver, sender, weak=False)


def _receivers(signal: Signal | None) -> list[Receiver]:
    return [one for one in list(signal.receivers.values()) if isinstance(one, Receiver)] if signal else []


@in_child
def _after_fork() -> None:
    event_bus._lanes.clear()  # the loops that serve them do not run in a forked child


def _at_exit(bus: EventBus) -> None:
    if not bus.flush(timeout=2.0):
        log.warning("The program ended before all async event handlers had finished")


event_bus = EventBus()
"""The central bus: all crews, flows, agents, models and tools of this process emit their events here."""

crewlite_event_bus = crewai_event_bus = event_bus
CrewAIEventsBus = EventBus  # the class, by which listeners of CrewAI annotate their argument
_missing = first_use("crewlite.events.event_bus", {}, complete=False)[1]


def __getattr__(name: str) -> Any:
    if hasattr(EventBus, name):
        raise AttributeError("crewlite.events.event_bus is a module; the bus in it: from crewlite import event_bus")
    return _missing(name)


class BaseEventListener(ABC):
    """Subclass it and subscribe in `setup_listeners`, which is called when an instance is made.

    ```python
    from crewlite.events import BaseEventListener, TaskCompletedEvent

    class Count(BaseEventListener):
        tasks = 0

        def setup_listeners(self, bus):
            @bus.on(TaskCompletedEvent)
            def count(source, event):
                self.tasks += 1
    ```
    """

    def __init__(self) -> None:
        self.setup_listeners(event_bus)

    @abstractmethod
    def setup_listeners(self, bus: EventBus, /) -> None:
        """Subscribe handlers: `@bus.on(TaskCompletedEvent)`."""
