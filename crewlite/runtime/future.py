"""What `submit`, `map` and `product` return, and every call on a loop: results on their way, as plain values."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from types import CoroutineType
from typing import Any, Generic, TypeVar, overload

from crewlite import codec
from crewlite.durable import Scope, Step
from crewlite.errors import ConfigError, OnLoopThread
from crewlite.tracebacks import shortened

T = TypeVar("T")


def wait_for(future: concurrent.futures.Future[T], timeout: float | None, what: str, advice: str) -> T:
    """The result of work that goes on elsewhere. Raises what it raised, or TimeoutError after `timeout` seconds."""
    try:
        return future.result(timeout)
    except TimeoutError:
        if future.done():  # the work itself has raised it
            raise
    raise TimeoutError(f"{what} has not ended within {timeout:g} s; it goes on. {advice}")


class StepFuture(Generic[T]):
    """The result of a step that was begun: `await` it, or, in code that is no coroutine, ask for its `result()`."""

    def __init__(self, scope: Scope, step: Step[T]) -> None:
        self._scope, self._name = scope, f"{step.kind.title.capitalize()} {step.name!r}"
        self._done: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._done.set_running_or_notify_cancel()  # whoever waits may be cancelled, and the step goes on
        self._task: asyncio.Task[T] | None = None
        assert scope.loop
        if on(scope.loop):
            self._begin(step)
        else:  # in the order of the calls, as the loop takes them up in that order
            scope.loop.call_soon_threadsafe(self._begin, step, context=contextvars.copy_context())

    def result(self, timeout: float | None = None) -> T:
        """The value, as soon as it is there. Raises what the step raised, or TimeoutError after `timeout` seconds."""
        loop = self._scope.loop
        assert loop
        if on(loop) and not self._done.done():
            raise OnLoopThread("result", "await the future itself")
        try:
            with shortened():
                return wait_for(self._done, timeout, self._name, "Wait longer with result()")
        finally:
            loop.call_soon_threadsafe(self._mark_awaited)

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.done()

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        loop = self._scope.loop
        task = self._task if loop and on(loop) else None  # a loop of somebody's own cannot await it
        try:
            with shortened():
                return await asyncio.shield(task or asyncio.wrap_future(self._done))
        finally:
            if loop and on(loop):
                self._mark_awaited()
            elif loop:
                loop.call_soon_threadsafe(self._mark_awaited)

    def _begin(self, step: Step[T]) -> None:
        try:
            self._task = self._scope.spawn(step)
        except Exception as error:  # noqa: BLE001 - handed over whole to whoever waits
            self._done.set_exception(error)
        else:
            self._task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._done.set_exception(concurrent.futures.CancelledError())
        elif error := task.exception():
            self._done.set_exception(error)
        else:
            self._done.set_result(task.result())

    def _mark_awaited(self) -> None:
        """Whoever waited for it was told of its failure, so nobody else has to be."""
        if self._task and self._task.done():  # else nobody has been told yet
            self._scope.mark_awaited(self._task)


class StepFutures(Sequence[StepFuture[T]]):
    """Futures of steps that were begun together, in the order of what they were begun with."""

    def __init__(self, futures: list[StepFuture[T]]) -> None:
        self._futures = futures

    def result(self, timeout: float | None = None) -> list[T]:
        """All values. Raises the first failure, in order."""
        return [future.result(timeout) for future in self._futures]

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    async def _all(self) -> list[T]:
        return [await future for future in self._futures]

    @overload
    def __getitem__(self, index: int) -> StepFuture[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepFuture[T]]: ...
    def __getitem__(self, index: int | slice) -> StepFuture[T] | list[StepFuture[T]]:
        return self._futures[index]

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[StepFuture[T]]:
        return iter(self._futures)


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that cannot be taken for its result: `if ask(...)` would be true whatever the answer."""

    __slots__ = ("_asked", "_call", "_work")

    def __init__(
        self, call: str, asked: Awaitable[Any], then: Callable[[Awaitable[Any]], Coroutine[Any, Any, T]] | None = None
    ) -> None:
        assert isinstance(asked, Coroutine)
        self._call = call
        """What to await, as an error says it."""
        self._asked = asked
        self._work: Coroutine[Any, Any, T] = then(asked) if then else asked

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """As of any coroutine."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """As of any coroutine."""
        return self._work.throw(*error)

    def close(self) -> None:
        """As of any coroutine."""
        self._work.close()
        self._asked.close()  # of work that was never begun, it is not closed with that

    def __bool__(self) -> bool:
        self.close()  # else Python would warn of it as well
        raise ConfigError(f"{self._call} was called in a coroutine without await: wanted `await {self._call}`")


def settled(value: Any, what: str) -> Any:
    """`value`, unless it is, or holds, what is still on its way. Raises ConfigError, which says what to write."""
    if isinstance(value, codec.IMMUTABLE):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    for item in (value, *inner):
        if isinstance(item, StepFuture | StepFutures):
            raise ConfigError(
                f"{what} is, or holds, the future of a step; wanted its value: call .result() of it, or, in a "
                f"coroutine, await it"
            )
        if isinstance(item, Awaited | CoroutineType):
            item.close()  # else Python would warn of it later, and far from here
            raise ConfigError(f"{what} is, or holds, a coroutine; wanted its value: await it")
    return value


def on(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs on this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
