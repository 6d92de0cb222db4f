"""The central bus: who hears which event, in which order, and what happens when a handler fails.

A blinker signal per event class remembers who subscribed; around it stands what blinker leaves open: order of
registration, strong references, isolation of errors, ordered queues for async handlers, re-entrant emits that wait
their turn. What an event class is heard by is worked out once and cached, so that emitting to nobody costs nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import inspect
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from blinker import Signal

from crewlite import background, durable
from crewlite.errors import OnLoopThread
from crewlite.events.base import BaseEvent

log = logging.getLogger("crewlite.events")

E = TypeVar("E", bound=BaseEvent)
Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

_LONGEST_CHAIN = 64
_MOST_IN_TURN = 10_000  # events that one emit may lead to
_chain: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("crewlite_event_chain", default=())


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Receiver:
    handler: Handler
    event: type[BaseEvent]
    order: int
    is_async: bool
    wants_state: bool

    def __call__(self, *args: Any) -> Any:  # what a blinker signal can hold
        return self.handler(*args)

    @property
    def name(self) -> str:
        return f"{getattr(self.handler, '__module__', '?')}.{getattr(self.handler, '__qualname__', repr(self.handler))}"


@dataclass(frozen=True, slots=True)
class _Delivery:
    receivers: tuple[_Receiver, ...]
    source: object
    event: BaseEvent
    state: Any
    chain: tuple[str, ...]


class Subscription:
    """One handler's place on the bus. As a context manager, it ends with the block."""

    def __init__(self, bus: EventBus, receiver: _Receiver) -> None:
        self._bus, self._receiver = bus, receiver
        self.event, self.handler = receiver.event, receiver.handler

    def cancel(self) -> None:
        """Stop hearing. May be called twice."""
        self._bus._drop(self.event, lambda receiver: receiver is self._receiver)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()


@dataclass(eq=False)
class _Lane:
    """The ordered queue of one async handler on one loop. Its task lives only while there is something to do."""

    receiver: _Receiver
    loop: asyncio.AbstractEventLoop
    waiting: deque[_Delivery | Future[None]] = field(default_factory=deque)
    busy: bool = False

    def put(self, item: _Delivery | Future[None]) -> None:
        """Called on the lane's own loop."""
        self.waiting.append(item)
        if not self.busy:
            self._start()

    def _start(self) -> None:
        self.busy = True
        context = contextvars.copy_context()
        context.run(durable.leave)  # a kickoff inside a handler is a new run
        context.run(_within.set, (*_within.get(), self))
        task = self.loop.create_task(self._work(), context=context)
        _alive.add(task)
        task.add_done_callback(_alive.discard)

    async def _work(self) -> None:
        try:
            while self.waiting:
                item = self.waiting.popleft()
                if isinstance(item, Future):
                    item.set_result(None)
                    continue
                _chain.set(item.chain)
                try:
                    args = (
                        (item.source, item.event, item.state)
                        if self.receiver.wants_state
                        else (item.source, item.event)
                    )
                    await self.receiver.handler(*args)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # noqa: BLE001 - the border: a handler ends neither its lane nor a loop
                    _report(self.receiver, item.event, error)
        finally:
            self.busy = False
            if self.waiting and not self.loop.is_closed():  # the handler was cancelled: the next events still come
                self._start()


_within: contextvars.ContextVar[tuple[_Lane, ...]] = contextvars.ContextVar("crewlite_lanes", default=())
"""The lanes whose handlers are running the current code: they cannot end before it."""
_alive: set[asyncio.Task[None]] = set()  # a loop holds its tasks weakly; their owner must not


class EventBus:
    """Typed events to ordered handlers. Handlers take `(source, event)` or `(source, event, state)`.

    Sync handlers run inline, in order of registration. Each async handler has an ordered queue of its own on the
    loop that emitted. An error in a handler is logged with its name and breaks nothing.
    """

    def __init__(self) -> None:
        self._signals: dict[type[BaseEvent], Signal] = {}
        self._cache: dict[type[BaseEvent], tuple[_Receiver, ...]] = {}
        self._lanes: dict[tuple[_Receiver, asyncio.AbstractEventLoop], _Lane] = {}
        self._order = itertools.count()
        self._lock = threading.RLock()
        self._local = threading.local()

    def on(self, event: type[BaseEvent], handler: Handler | None = None) -> Any:
        """Subscribe to a class of events and all below it.

        As `@bus.on(TaskCompletedEvent)` it decorates a function and gives it back; as `bus.on(cls, handler)` it
        returns a Subscription, usable with `with`.
        """
        if not (isinstance(event, type) and issubclass(event, BaseEvent)):
            raise TypeError(f"on() wants an event class such as TaskCompletedEvent, not {event!r}")
        if handler is not None and not callable(handler):
            raise TypeError(f"on() wants a function as handler, not {handler!r}")
        if handler is None:

            def decorate(fn: H) -> H:
                self._add(event, fn)
                return fn

            return decorate
        return Subscription(self, self._add(event, handler))

    def off(self, event: type[BaseEvent], handler: Handler) -> None:
        """End every subscription of a handler to a class. One that does not exist is no error."""
        self._drop(event, lambda receiver: bool(receiver.handler == handler))

    def hears(self, event: type[BaseEvent]) -> bool:
        """Whether anybody subscribed to events of this class: one that nobody hears need not be made."""
        return bool(self._receivers(event))

    def emit(self, source: object, event: BaseEvent, state: Any = None) -> None:
        """Tell everybody who subscribed. `state` is given to handlers that take three arguments.

        Called from inside a handler, the event waits until the current one has been heard by all.
        """
        receivers = self._receivers(type(event))
        if not receivers:
            return
        chain = (*_chain.get(), event.type)
        if len(chain) > _LONGEST_CHAIN:
            log.error("Events emit each other without end; stopped after %d: %s", len(chain), " -> ".join(chain[-8:]))
            return
        delivery = _Delivery(receivers, source, event, state, chain)
        queue: deque[_Delivery] | None = getattr(self._local, "queue", None)
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
            if lane.loop is here and lane.busy and lane not in _within.get():
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
            with self._lock:
                for signal in self._signals.values():
                    for receiver in list(signal.receivers.values()):
                        if isinstance(receiver, _Receiver) and receiver.order > start:
                            signal.disconnect(receiver)
                self._tidy()

    def _add(self, event: type[BaseEvent], handler: Handler) -> _Receiver:
        receiver = _Receiver(
            handler,
            event,
            next(self._order),
            is_async=inspect.iscoroutinefunction(handler)
            or inspect.iscoroutinefunction(getattr(handler, "__call__", None)),  # noqa: B004 - objects may be async too
            wants_state=_wants_state(handler),
        )
        with self._lock:
            self._signals.setdefault(event, Signal()).connect(receiver, weak=False)
            self._cache = {}
        return receiver

    def _drop(self, event: type[BaseEvent], gone: Callable[[_Receiver], bool]) -> None:
        with self._lock:
            signal = self._signals.get(event)
            for receiver in list(signal.receivers.values()) if signal else []:
                if signal and isinstance(receiver, _Receiver) and gone(receiver):
                    signal.disconnect(receiver)
            self._tidy()

    def _tidy(self) -> None:
        """Forget what was worked out from the subscriptions, and the idle lanes of those that are gone."""
        self._cache = {}
        here = {receiver for signal in self._signals.values() for receiver in signal.receivers.values()}
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.busy or key[0] in here}

    def _receivers(self, cls: type[BaseEvent]) -> tuple[_Receiver, ...]:
        if (known := self._cache.get(cls)) is not None:
            return known
        with self._lock:
            found: list[_Receiver] = []
            for base in cls.__mro__:
                if signal := self._signals.get(base):
                    found += [r for r in signal.receivers.values() if isinstance(r, _Receiver)]
            self._cache[cls] = tuple(sorted(found, key=lambda receiver: receiver.order))
            return self._cache[cls]

    def _deliver(self, delivery: _Delivery) -> None:
        source, event, state = delivery.source, delivery.event, delivery.state
        token = _chain.set(delivery.chain)
        inside = durable.leave()  # a kickoff inside a handler is a new run
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
                    _report(receiver, event, error)
        finally:
            durable.back(inside)
            _chain.reset(token)

    def _enqueue(self, receiver: _Receiver, delivery: _Delivery) -> None:
        here = background.running_loop()
        loop = here or background.loop()
        key = (receiver, loop)
        lane = self._lanes.get(key)
        if lane is None:
            with self._lock:
                if not self._lanes:
                    atexit.register(_at_exit, self)
                self._lanes = {k: v for k, v in self._lanes.items() if not v.loop.is_closed()}
                lane = self._lanes.setdefault(key, _Lane(receiver, loop))
        if here:
            lane.put(delivery)
        else:
            loop.call_soon_threadsafe(lane.put, delivery)


def _after_fork() -> None:
    event_bus._lanes.clear()  # a child inherits none of the loops that would serve them


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _at_exit(bus: EventBus) -> None:
    if not bus.flush(timeout=2.0):
        log.warning("The program ended before all async event handlers did")


def _wants_state(handler: Handler) -> bool:
    """Whether a handler takes a third argument. Counts parameters; never looks at annotations.

    A third parameter with a default counts only if it is called `state`: a default is how a closure binds its own.
    """
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 3 and (positional[2].default is inspect.Parameter.empty or positional[2].name == "state")


def _report(receiver: _Receiver, event: BaseEvent, error: BaseException) -> None:
    log.error("Handler %s failed on %s: %r", receiver.name, event.type, error, exc_info=error)


event_bus = EventBus()
"""The central bus: crews, agents, models and tools of this process all speak here."""

crewlite_event_bus = event_bus
