"""A run as it happens: its events and its text one by one, and its result at the end.

Each stream hears the events of its own run alone, so streams of runs side by side do not mix. It keeps what was not
taken yet, however slowly it is taken; the run never waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Any, Generic, Self, TypeVar

from crewlite import background, events
from crewlite.errors import OnLoopThread
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.forked import lock
from crewlite.runtime.handle import RunHandle
from crewlite.runtime.request import Progress

R = TypeVar("R")


class RunStream(Generic[R]):
    """The events of a run, with `for` or `async for`, until it ends; then `result`, or what it raised.

    An event is taken once, by whoever comes first. As a context manager it stops a run that is left before its end.
    """

    def __init__(self, begin: Callable[[], RunHandle[R]], progress: Progress) -> None:
        self._left = _Left()
        subscription = event_bus.on(BaseEvent, partial(_hear, progress, self._left))
        try:
            self.handle = begin()
            """The run itself: its id, status and usage, and how to cancel it."""
        except BaseException:
            subscription.cancel()
            raise
        self.handle.when_ended(subscription.cancel)
        self.handle.when_ended(self._left.end)
        self._streamed: set[str | None] = set()

    @property
    def result(self) -> R:
        """What `kickoff` would have returned; waits for the end of the run. In a coroutine: `await` the stream."""
        return self.handle.result()

    def __await__(self) -> Generator[Any, None, R]:
        return self.handle.__await__()

    def __iter__(self) -> Iterator[BaseEvent]:
        if background.running_loop():
            raise OnLoopThread("__iter__", "async for event in stream")
        while (event := self._left.take()) is not None:
            yield event
        self.handle.result()

    async def __aiter__(self) -> AsyncIterator[BaseEvent]:
        while (event := await self._left.atake()) is not None:
            yield event
        await self.handle

    def text(self) -> Iterator[str]:
        """What models say, piece by piece where a model streams (`LLM(..., stream=True)`), else reply by reply."""
        for event in self:
            if piece := self._said(event):
                yield piece

    async def atext(self) -> AsyncIterator[str]:
        """`text`, for `async for`."""
        async for event in self:
            if piece := self._said(event):
                yield piece

    def cancel(self) -> None:
        """Have the run stopped where it is; a kickoff with its run_id goes on."""
        self.handle.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.handle.status == "running":
            self.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()

    def _said(self, event: BaseEvent) -> str:
        """The text that an event brings; of a reply that came in pieces, its pieces alone."""
        if isinstance(event, events.LLMStreamChunkEvent):
            self._streamed.add(event.address)
            return event.chunk
        if isinstance(event, events.LLMCallCompletedEvent) and event.address not in self._streamed:
            return event.response
        return ""


def _hear(progress: Progress, left: _Left, source: object, event: BaseEvent) -> None:
    """Keep an event of this run. Others happen in the same process at the same time."""
    if event.run_id is not None and (event.run_id, event.branch) == (progress.run_id, progress.branch):
        left.put(event)


class _Left:
    """The events that were not taken yet. Put by the threads of the run, taken by any thread or loop."""

    def __init__(self) -> None:
        self._events = deque[BaseEvent]()
        self._over = False
        self._lock = lock()
        self._waiting: list[Callable[[], object]] = []

    def put(self, event: BaseEvent) -> None:
        """One more."""
        with self._lock:
            self._events.append(event)
        self._wake()

    def end(self) -> None:
        """There will be no more."""
        self._over = True
        self._wake()

    def take(self) -> BaseEvent | None:
        """The next one, as soon as there is one; None if there will be none."""
        while True:
            more = threading.Event()
            found, over = self._next(more.set)
            if found or over:
                return found
            more.wait()

    async def atake(self) -> BaseEvent | None:
        """`take`, for a coroutine."""
        while True:
            more = asyncio.Event()
            found, over = self._next(partial(_call_soon, asyncio.get_running_loop(), more.set))
            if found or over:
                return found
            await more.wait()

    def _next(self, wake: Callable[[], object]) -> tuple[BaseEvent | None, bool]:
        """The next one, and whether there will be none. If neither, `wake` is called when that has changed."""
        with self._lock:
            if self._events:
                return self._events.popleft(), False
            if not self._over:
                self._waiting.append(wake)
            return None, self._over

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call it on a loop, unless that has gone, and whoever waited with it."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
