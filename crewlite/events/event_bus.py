"""The central bus: who hears which event, in which order, and what happens when a handler fails.

A blinker signal per event class remembers who subscribed, and to which source; around it stands what blinker leaves
open: order of registration, strong references, isolation of errors, ordered queues for async handlers, re-entrant emits
that wait their turn. What an event class is heard by is worked out once and cached, so that emitting to nobody costs
nothing. A signal is never changed but by a further handler: whenever one goes, another signal takes its place, so an
emit on another thread, or a source that the garbage collector takes at that moment, meets no half-made change.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from blinker import Signal

from crewlite import background, durable
from crewlite.errors import OnLoopThread
from crewlite.events.base import BaseEvent
from crewlite.events.delivery import (
    Delivery,
    Handler,
    Lane,
    Receiver,
    event_chain,
    log,
    report,
    takes_state,
    within_lanes,
)
from crewlite.forked import in_child, rlock

E = TypeVar("E", bound=BaseEvent)
H = TypeVar("H", bound=Handler)

_Hearing = tuple[tuple[Receiver, ...], tuple[Signal, ...]]
"""Who hears events of a class; and its signals and those of its bases, if some hear one source alone."""
_LONGEST_CHAIN = 64
_MOST_IN_TURN = 10_000  # events that one emit may lead to


class Subscription:
    """One handler's place on the bus. As a context manager, it ends with the block."""

    def __init__(self, bus: EventBus, receiver: Receiver) -> None:
        self._bus, self._receiver = bus, receiver
        self.event, self.handler = receiver.event, receiver.handler

    def cancel(self) -> None:
        """Stop hearing. May be called twice."""
        self._bus._drop(self.event, lambda receiver: receiver is self._receiver)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()


class EventBus:
    """Typed events to ordered handlers. Handlers take `(source, event)` or `(source, event, state)`.

    Sync handlers run inline, in order of registration. Each async handler has an ordered queue of its own on the
    loop that emitted. An error in a handler is logged with its name and breaks nothing.
    """

    def __init__(self) -> None:
        self._signals: dict[type[BaseEvent], Signal] = {}
        self._cache: dict[type[BaseEvent], _Hearing] = {}
        self._lanes: dict[tuple[Receiver, asyncio.AbstractEventLoop], Lane] = {}
        self._order = itertools.count()
        self._changes = 0
        self._lock = rlock()
        self._bereft = deque[type[BaseEvent]]()  # classes with a handler whose source is gone
        self._local = threading.local()

    def on(self, event: type[BaseEvent], handler: Handler | None = None, *, source: object = None) -> Any:
        """Subscribe to a class of events and all below it.

        As `@bus.on(TaskCompletedEvent)` it decorates a function and gives it back; as `bus.on(cls, handler)` it
        returns a Subscription, usable with `with`.

        With `source` only the events of that crew, task, agent, tool or model are heard. The bus does not keep it
        alive: when it goes, its handlers go.
        """
        if not (isinstance(event, type) and issubclass(event, BaseEvent)):
            raise TypeError(f"on() wants an event class such as TaskCompletedEvent, not {event!r}")
        if handler is not None and not callable(handler):
            raise TypeError(f"on() wants a function as handler, not {handler!r}")
        where = None if source is None else self._watched(event, source)
        if handler is None:

            def decorate(fn: H) -> H:
                self._add(event, fn, where)
                return fn

            return decorate
        return Subscription(self, self._add(event, handler, where))

    def off(self, event: type[BaseEvent], handler: Handler, *, source: object = None) -> None:
        """End every subscription of a handler to a class, or only that to `source`. None to end is no error."""
        self._drop(
            event,
            lambda receiver: (source is None or receiver.sender is source) and bool(receiver.handler == handler),
        )

    def hears(self, event: type[BaseEvent], source: object = None) -> bool:
        """Whether anybody hears events of this class (from `source`): one that nobody hears need not be made."""
        receivers, signals = self._cache.get(event) or self._hearing(event)
        return bool(receivers if source is None or not signals else _of(source, receivers, signals))

    def emit(self, source: object, event: BaseEvent, state: Any = None) -> None:
        """Tell everybody who subscribed. `state` is given to handlers that take three arguments.

        Called from inside a handler, the event waits until the current one has been heard by all.
        """
        receivers, signals = self._cache.get(type(event)) or self._hearing(type(event))
        if signals:
            receivers = _of(source, receivers, signals)
        if not receivers:
            return
        types = (*event_chain.get(), event.type)
        if len(types) > _LONGEST_CHAIN:
            log.error("Events emit each other without end; stopped after %d: %s", len(types), " -> ".join(types[-8:]))
            return
        delivery = Delivery(receivers, source, event, state, types)
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
        """Wait until async handlers of this loop have heard everything emitted so far, except those that wait for this.

        Returns the names of those that took longer than `timeout` seconds; they are warned about, not cancelled.
        """
        here = asyncio.get_running_loop()
        marks = {}
        for lane in list(self._lanes.values()):
            if lane.loop is here and lane.busy and lane not in within_lanes.get():
                mark: Future[None] = Future()
                lane.put(mark)
                marks[asyncio.wrap_future(mark)] = lane.receiver.name
        if not marks:
            return []
        _, late = await asyncio.wait(marks, timeout=timeout)
        names = sorted(marks[mark] for mark in late)
        if names:
            log.warning("Event handlers still busy after %g s: %s", timeout, ", ".join(names))
        return names

    def flush(self, timeout: float = 30.0) -> bool:
        """Block until all async handlers, on every other loop, have heard everything emitted so far.

        True if they have; False after `timeout` seconds.
        """
        if background.on_loop_thread():
            raise OnLoopThread("flush")
        here = background.running_loop()
        loops = {lane.loop for lane in list(self._lanes.values()) if lane.loop.is_running() and lane.loop is not here}
        waits = [asyncio.run_coroutine_threadsafe(self.aflush(timeout), loop) for loop in loops]
        done, blocked = wait(waits, timeout + 1)  # a loop that a handler blocks cannot even look at its watch
        return not blocked and not any(flushed.result() for flushed in done)

    @contextlib.contextmanager
    def scoped(self) -> Iterator[EventBus]:
        """Handlers subscribed inside the block are gone after it."""
        start = next(self._order)
        try:
            yield self
        finally:
            for event in list(self._signals):
                self._drop(event, lambda receiver: receiver.order > start)

    def _add(self, event: type[BaseEvent], handler: Handler, source: weakref.ref[Any] | None) -> Receiver:
        receiver = Receiver(
            handler,
            event,
            next(self._order),
            is_async=inspect.iscoroutinefunction(handler)
            or inspect.iscoroutinefunction(getattr(handler, "__call__", None)),  # noqa: B004 - objects may be async too
            wants_state=takes_state(handler),
            source=source,
        )
        with self._lock:
            _connect(self._signals.setdefault(event, Signal()), receiver)
            self._changed()
        self._let_go()
        return receiver

    def _drop(self, event: type[BaseEvent], gone: Callable[[Receiver], bool]) -> None:
        with self._lock:
            seen = -1
            while seen != self._changes:  # a finalizer that runs meanwhile may change them too
                seen, left, before = self._changes, Signal(), _receivers(self._signals.get(event))
                for receiver in before:
                    if not gone(receiver):
                        _connect(left, receiver)
            if len(_receivers(left)) < len(before):
                self._signals[event] = left
                self._changed()
                here = {receiver for signal in self._signals.values() for receiver in _receivers(signal)}
                self._lanes = {key: lane for key, lane in self._lanes.items() if lane.busy or key[0] in here}
        self._let_go()

    def _changed(self) -> None:
        self._changes += 1
        self._cache = {}

    def _watched(self, event: type[BaseEvent], source: object) -> weakref.ref[Any]:
        """A reference to a source, which tells when it is gone: at any moment, on any thread."""
        bus = weakref.ref(self)

        def gone(_: object) -> None:
            if here := bus():
                here._bereft.append(event)
                here._let_go()

        try:
            return weakref.ref(source, gone)
        except TypeError:
            raise TypeError(
                f"on() wants as source the object that events come from, such as a crew, not {source!r}"
            ) from None

    def _let_go(self) -> None:
        """Drop handlers whose source is gone. If another thread is at work on the subscriptions, it does so after."""
        while self._bereft and self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(IndexError):
                    self._drop(self._bereft.popleft(), lambda receiver: receiver.sender is None)
            finally:
                self._lock.release()

    def _hearing(self, cls: type[BaseEvent]) -> _Hearing:
        with self._lock:
            cache = self._cache  # another one if something changes meanwhile
            signals = tuple(signal for base in cls.__mro__ if (signal := self._signals.get(base)))
            found = sorted((r for signal in signals for r in _receivers(signal)), key=lambda receiver: receiver.order)
            by_source = any(receiver.source is not None for receiver in found)
            cache[cls] = hearing = (tuple(found), signals if by_source else ())
        self._let_go()
        return hearing

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
                except BaseException as error:  # the border: a handler breaks nothing but itself
                    if isinstance(error, KeyboardInterrupt | SystemExit) and not background.on_loop_thread():
                        raise  # there it would end the loop of everybody, and those who wait for it would wait for ever
                    report(receiver, event, error)
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
                self._lanes = {k: v for k, v in self._lanes.items() if not v.loop.is_closed()}
                lane = self._lanes.setdefault(key, Lane(receiver, loop))
        if here:
            lane.put(delivery)
        else:
            loop.call_soon_threadsafe(lane.put, delivery)


def _of(source: object, receivers: tuple[Receiver, ...], signals: tuple[Signal, ...]) -> tuple[Receiver, ...]:
    """Those of the receivers that hear this source."""
    hearing = {receiver for signal in signals for receiver in signal.receivers_for(source)}
    return tuple(receiver for receiver in receivers if receiver.source is None or receiver in hearing)


def _connect(signal: Signal, receiver: Receiver) -> None:
    if (sender := receiver.sender) is not None:
        signal.connect(receiver, sender, weak=False)


def _receivers(signal: Signal | None) -> list[Receiver]:
    return [one for one in list(signal.receivers.values()) if isinstance(one, Receiver)] if signal else []


@in_child
def _after_fork() -> None:
    event_bus._lanes.clear()  # a child inherits none of the loops that would serve them


def _at_exit(bus: EventBus) -> None:
    if not bus.flush(timeout=2.0):
        log.warning("The program ended before all async event handlers did")


event_bus = EventBus()
"""The central bus: crews, agents, models and tools of this process all speak here."""

crewlite_event_bus = crewai_event_bus = event_bus
