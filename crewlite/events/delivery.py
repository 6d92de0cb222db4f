"""Deliver an event to one handler: directly, or, if the handler is async, through an ordered queue on its loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from blinker import ANY

from crewlite.concurrency.background import ends_task
from crewlite.definitions.callables import is_generator
from crewlite.errors import repr_of
from crewlite.events.base import BaseEvent
from crewlite.texts import tracebacks
from crewlite.texts.logs import logger
from crewlite.texts.secrets import Secrets

log = logger("crewlite.events")

Handler = Callable[..., Any]

masking: contextvars.ContextVar[Callable[[str], str]] = contextvars.ContextVar(
    "crewlite_masking", default=lambda text: Secrets.of().mask(text)
)
"""Masks the secrets that the run of the current event knows; without a run, those of the environment."""

event_chain: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("crewlite_event_chain", default=())
"""The types of the events whose handlers led to the current event, and its own type last."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Receiver:
    """A handler and its subscription."""

    handler: Handler
    event: type[BaseEvent]
    order: int
    is_async: bool
    wants_state: bool
    source: weakref.ref[Any] | None = None
    """The object whose events it receives; None for every object."""

    @property
    def sender(self) -> Any:
        """The sender as blinker takes it; None once the source no longer exists."""
        return ANY if self.source is None else self.source()

    def __call__(self, *args: Any) -> Any:
        """Call the handler. blinker requires receivers to be callable."""
        return self.handler(*args)

    @property
    def name(self) -> str:
        """The name of the handler in log lines."""
        return f"{getattr(self.handler, '__module__', '?')}.{getattr(self.handler, '__qualname__', repr(self.handler))}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event to deliver, with all its receivers."""

    receivers: tuple[Receiver, ...]
    source: object
    event: BaseEvent
    state: Any
    chain: tuple[str, ...]
    mask: Callable[[str], str]
    """Masks the secrets that the run of the event knows."""


@dataclass(eq=False)
class Lane:
    """The ordered queue of one async handler on one loop: each delivery is a task, in the context of its emitter.

    If a task is cancelled, above all by the end of its loop, what waits is delivered once a flush waits for it, or
    with the next delivery.
    """

    receiver: Receiver
    loop: asyncio.AbstractEventLoop
    waiting: deque[tuple[Delivery, contextvars.Context] | asyncio.Future[None]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    """The task that delivers; None between deliveries. The loop itself holds its tasks only weakly."""

    @property
    def busy(self) -> bool:
        """Whether there is anything left to deliver, on a loop that may still deliver it."""
        return bool(self.task or self.waiting) and not self.loop.is_closed()

    def put(self, item: tuple[Delivery, contextvars.Context] | asyncio.Future[None]) -> None:
        """Add a delivery, or a future to resolve once all before it is delivered. To be called on the lane's loop."""
        self.waiting.append(item)
        if self.task is None or self.task.done():  # cancelled before it began
            self._go_on()

    def _go_on(self) -> None:
        """Begin the next delivery, and resolve the futures before it."""
        self.task = None
        while self.waiting:
            item = self.waiting[0]
            if isinstance(item, tuple):
                delivery, context = item
                context.run(within_lanes.set, (*context.get(within_lanes, ()), self))
                self.task = self.loop.create_task(self._deliver(delivery), context=context)
                self.task.add_done_callback(self._ended)
                return
            self.waiting.popleft()
            if not item.done():
                item.set_result(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self.task is not task:
            return
        if not task.cancelled() or any(isinstance(item, asyncio.Future) and not item.done() for item in self.waiting):
            self._go_on()  # also after a cancellation, if a flush waits
        else:
            self.task = None

    async def _deliver(self, delivery: Delivery) -> None:
        self.waiting.popleft()  # only now: a task that is cancelled before it begins leaves it here
        try:
            state = (delivery.state,) if self.receiver.wants_state else ()
            await self.receiver.handler(delivery.source, delivery.event, *state)
        except BaseException as error:  # the border: a handler ends neither its queue nor a loop
            if ends_task(error):
                raise
            report(self.receiver, delivery, error)


def let_go_of(lanes: dict[tuple[Receiver, asyncio.AbstractEventLoop], Lane], is_idle: Callable[[Lane], bool]) -> None:
    """Take the lanes for which `is_idle` is true out of `lanes`, which finalizers may change meanwhile."""
    for key in list(lanes):
        if (lane := lanes.get(key)) and is_idle(lane):
            lanes.pop(key, None)


within_lanes: contextvars.ContextVar[tuple[Lane, ...]] = contextvars.ContextVar("crewlite_lanes", default=())
"""The lanes whose handlers run the current code. They cannot become empty before it ends."""


def takes_state(handler: Handler) -> bool:
    """Return whether a handler takes the state as third argument. Counts parameters and ignores annotations.

    A third parameter with a default counts only if its name is `state`, as defaults are also used to bind values.
    Raises TypeError if the handler takes neither two arguments nor three.
    """
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return False
    parameters = list(signature.parameters.values())
    name = getattr(handler, "__qualname__", repr(handler))
    if not any(_fits(signature, count) for count in (2, 3)):
        raise TypeError(f"on() was given {name}{signature} as handler; wanted a function of (source, event)")
    if is_generator(handler):
        raise TypeError(f"on() was given the generator {name} as handler, none of whose code would run: do not yield")
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 3 and (positional[2].default is inspect.Parameter.empty or positional[2].name == "state")


def _fits(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def report(receiver: Receiver, delivery: Delivery, error: BaseException) -> None:
    """Log an error that a handler raised, with the secrets of the run masked."""
    trace = tracebacks.text(error)
    shown, said = delivery.mask(trace), delivery.mask(repr_of(error))
    about = {"exc_info": error} if shown == trace else {"extra": {"traceback": shown}}
    log.error("Handler %s failed on %s: %s", receiver.name, delivery.event.type, said, **about)
