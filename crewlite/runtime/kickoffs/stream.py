"""Stream a run while it happens: its events or its text one by one, and its result at the end.

A stream receives only the events of its own run, so the streams of concurrent runs do not mix. It stores the events
that were not read yet; the run never waits for a slow reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Any, Generic, Self, TypeVar

from crewlite import events, kinds
from crewlite.concurrency import background
from crewlite.errors import ConfigError, OnLoopThread
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.runtime.kickoffs.handle import RunHandle
from crewlite.runtime.kickoffs.request import Progress
from crewlite.runtime.main_thread.handlers import GRACE
from crewlite.state.format.addresses import outers
from crewlite.system.forked import lock

R = TypeVar("R")
T = TypeVar("T")


class RunStream(Generic[R]):
    """Iterates over the events of a run, with `for` or `async for`, until the run ends; then raises the run's error.

    `result` is the run's result. Each event is given once: a reader after a `break` gets the rest. To read beside
    another reader, or again after the end, raises ConfigError. As a context manager (in a coroutine: `async with`), the
    stream cancels a run that has not ended when the block ends, and waits until it has released its branch.

    Ctrl-C in blocking code that reads the stream ends the run and prints how to go on, as it does in `kickoff`; so does
    any other error that a signal handler raises there.
    """

    _all_in = "`for event in stream` gives the text too, in LLMStreamChunkEvent and LLMCallCompletedEvent"
    """Where a reader finds all that the stream gives, in words."""

    def __init__(self, begin: Callable[[], RunHandle[R]], progress: Progress) -> None:
        self._unread, self._interrupted = _UnreadEvents(), False
        subscription = event_bus.on(BaseEvent, partial(_hear, progress, self._unread))
        try:
            self.handle = begin()
            """The handle of the run, with its id, status and usage."""
        except BaseException:
            subscription.cancel()
            raise
        self.handle.when_ended(subscription.cancel)
        self.handle.when_ended(self._unread.end)
        self._streamed: set[str | None] = set()

    @property
    def result(self) -> R:
        """The value that `kickoff` would have returned. Waits for the run to end; in a coroutine, await the stream."""
        self.handle.check_may_wait("await the stream")
        with self._ended_by_signals():
            return self.handle.result()

    def __await__(self) -> Generator[Any, None, R]:
        return self.handle.__await__()

    def __iter__(self) -> Iterator[BaseEvent]:
        return _Reader(self, self._item_in)

    def __aiter__(self) -> AsyncIterator[BaseEvent]:
        return _Reader(self, self._item_in)

    def text(self) -> Iterator[str]:
        """Yield what the agents say: pieces if a model streams (`LLM(..., stream=True)`), else complete replies.

        Replies about the work are left out: plans, evaluations of steps, verdicts of guardrails, summaries.
        """
        return _Reader(self, self._text_in)

    def atext(self) -> AsyncIterator[str]:
        """Yield the same texts as `text`, for `async for`."""
        return _Reader(self, self._text_in)

    def cancel(self) -> None:
        """Cancel the run. A kickoff with its run_id resumes it."""
        self.handle.cancel()

    def __enter__(self) -> Self:
        if background.running_loop():  # here `__exit__` could not wait
            self.cancel()
            raise OnLoopThread("with stream", "write `async with crew.stream(...) as stream`")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Cancel the run if it has not ended, and wait until it has released its branch.

        In a generator that is closed, wait at most 2 seconds: garbage collection closes it on any thread.
        """
        if isinstance(error, KeyboardInterrupt):
            self._cut_short(error)
        elif self.handle.at_work:
            self.cancel()
            with contextlib.suppress(Exception):  # the block has ended, and needs no result
                self.handle.result(GRACE if kind is GeneratorExit else None)  # see `lock`

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.handle.at_work:
            self.cancel()
            with contextlib.suppress(Exception):  # as in `__exit__`
                await self.handle
            if not isinstance(error, Exception | None):
                self.handle.note_way_on(error)

    @contextlib.contextmanager
    def _ended_by_signals(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._unread.release()  # else the reader, in the traceback, would bar the next one
            self._cut_short(error)
            raise

    def _cut_short(self, error: BaseException) -> None:
        if not self._interrupted and self.handle.at_work:
            self._interrupted = True
            self.handle.cut_short(error)

    def _item_in(self, event: BaseEvent) -> Any:
        """Return what iteration gives for an event; None to leave it out."""
        return event

    def _text_in(self, event: BaseEvent) -> str:
        """Return the text in an event; "" for a complete reply whose pieces were returned already."""
        if not isinstance(event, events.LLMStreamChunkEvent | events.LLMCallCompletedEvent) or _is_aside(event.address):
            return ""
        if isinstance(event, events.LLMStreamChunkEvent):
            self._streamed.add(event.address)
            return event.chunk
        return "" if event.address in self._streamed else event.response


class _Reader(Generic[T]):
    """One pass over a stream. It is no generator, because an async one ends late if its reader leaves early."""

    def __init__(self, stream: RunStream[Any], take_from: Callable[[BaseEvent], T | None]) -> None:
        self._stream, self._take_from, self._ended = stream, take_from, False

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if background.running_loop() and not self._stream.handle.is_awaited:
            raise OnLoopThread("for event in stream", "write `async for event in stream`")
        self._check_is_alone()
        while not self._ended:
            with self._stream._ended_by_signals():
                event = self._stream._unread.take()
            if event is None:
                self._end()
                self._stream.handle.result()
            elif found := self._take_from(event):
                return found
        raise StopIteration

    async def __anext__(self) -> T:
        self._check_is_alone()
        while not self._ended:
            if (event := await self._stream._unread.atake()) is None:
                self._end()
                await self._stream.handle
            elif found := self._take_from(event):
                return found
        raise StopAsyncIteration

    def _check_is_alone(self) -> None:
        """Raise ConfigError if another reader has read the stream to its end, or is still reading it."""
        if not self._ended and (problem := self._stream._unread.give_to(self)):
            raise ConfigError(
                f"The stream {problem} already, and gives each thing once. Read it in one place: {self._stream._all_in}"
            )

    def _end(self) -> None:
        self._ended = self._stream._unread.is_read = True


def _is_aside(address: str | None) -> bool:
    """Return whether a call of a model is inside a step that judges, plans or summarises the work."""
    return any(kinds.at(around).is_aside for around in outers(address or ""))


def _hear(progress: Progress, unread: _UnreadEvents, source: object, event: BaseEvent) -> None:
    """Store an event if it belongs to this kickoff: others in the process emit events at the same time."""
    if event.run_id is None or (event.run_id, event.branch) != (progress.run_id, progress.branch):
        return
    step, at = progress.address, event.address or ""
    if not step or step in (at, *outers(at)):
        unread.put(event)


class _UnreadEvents:
    """A queue of the events that were not read yet. The run's threads fill it; any thread or loop may read it."""

    def __init__(self) -> None:
        self._events = deque[BaseEvent]()
        self._over = False
        self._lock = lock()
        self._waiting: list[Callable[[], object]] = []
        self._process = os.getpid()
        self._reader: weakref.ref[object] | None = None
        self.is_read = False
        """Whether a reader was told that no more events will come."""

    def give_to(self, reader: object) -> str:
        """Make `reader` the only reader. Returns "", or why it may not read, such as "is being read"."""
        with self._lock:
            other = self._reader() if self._reader else None
            if self.is_read or other not in (None, reader):
                return "was read to its end" if self.is_read else "is being read"
            self._reader = weakref.ref(reader)
        return ""

    def release(self) -> None:
        """End the turn of the present reader: another one may read the events that are left."""
        self._reader = None

    def put(self, event: BaseEvent) -> None:
        with self._lock:
            self._events.append(event)
        self._wake()

    def end(self) -> None:
        """Mark the queue as ended: no more events will come."""
        self._over = True
        self._wake()

    def take(self) -> BaseEvent | None:
        """Wait for the next event and return it; None if no more will come."""
        while True:
            more = queue.SimpleQueue[None]()
            found, over = self._next(partial(more.put, None))
            if found or over:
                return found
            background.next_of(more)

    async def atake(self) -> BaseEvent | None:
        """Do as `take`, without blocking the event loop."""
        while True:
            more = asyncio.Event()
            found, over = self._next(partial(_call_soon, asyncio.get_running_loop(), more.set))
            if found or over:
                return found
            await more.wait()

    def _next(self, wake: Callable[[], object]) -> tuple[BaseEvent | None, bool]:
        """Return (the next event or None, whether the queue has ended).

        If there is no event and the queue has not ended, `wake` is called at the next change.
        """
        with self._lock:
            if not (self._events or self._over):
                background.check_process(self._process, "The run of this stream")
                self._waiting.append(wake)
            return self._events.popleft() if self._events else None, self._over

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
