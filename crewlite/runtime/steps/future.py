"""Results of steps that may still be running: the futures of `submit`, `map` and `product`, and awaitable calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from functools import partial
from types import CoroutineType
from typing import Any, Generic, TypeVar, overload

from crewlite import durable
from crewlite.concurrency import background
from crewlite.concurrency.between_loops import await_shielded, begin_on, uncancellable
from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.durable import Scope, Step
from crewlite.encoding import codec
from crewlite.errors import ConfigError, OnLoopThread
from crewlite.runtime.steps.keyed import to_another_loop
from crewlite.texts.tracebacks import shortened

T = TypeVar("T")


@methods_with_known_keywords("a future", constructed=False)
class StepFuture(Generic[T]):
    """The result of a step that was begun. `await` it; outside a coroutine, call `result()`."""

    def __init__(self, scope: Scope, step: Step[T]) -> None:
        self._scope, self._name = scope, f"{step.kind.title.capitalize()} {step.name!r}"
        self._task: asyncio.Task[T] | None = None
        self._done: concurrent.futures.Future[T] | None = None
        """The result, if the task did not begin here and now: until it begins, and if it cannot begin."""
        self._process = os.getpid()
        assert scope.loop
        self._loop, start = scope.loop, scope.start_inside()
        if runs_here(self._loop):
            self._begin(step, start)
        else:  # the loop runs these callbacks in the order of the requests
            self._done = uncancellable()
            self._loop.call_soon_threadsafe(self._begin, step, start, context=to_another_loop())

    def result(self, timeout: float | None = None) -> T:
        """Wait for the step to end and return its value.

        Raises what the step raised; TimeoutError after `timeout` seconds, while the step continues; OnLoopThread on
        the run's own loop, which it would block: await the future there; ConfigError in a process forked meanwhile.
        """
        loop = self._loop
        if not self.done():
            if runs_here(loop):
                raise OnLoopThread("result", "await the future itself")
            background.check_process(self._process, self._name)
        try:
            with shortened():
                noted = durable.scope().waiting_for(self._scope) if timeout is None else None
                if noted and not self.done():
                    background.wait(begin_on(loop, self._end(noted)), work_loop=loop)
                return background.wait(self._elsewhere(), timeout, self._name, "Wait longer with result()", loop)
        finally:
            self._hand_over()
            self._be_marked()

    def done(self) -> bool:
        """Return whether the step has ended, successfully or not."""
        return self._done.done() if self._done else self._task is not None and self._task.done()

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        here = runs_here(self._loop)
        if here and not self._task:
            await asyncio.sleep(0)  # a thread has just requested the step, which begins in the next turn of the loop
        task = self._task if here else None  # only the run's own loop can await the task
        try:
            with shortened():
                part = asyncio.shield(task) if task else await_shielded(self._elsewhere(), self._loop)
                noted = durable.scope().waiting_for(self._scope) if task else None
                with noted(task.get_name()) if task and noted else contextlib.nullcontext():
                    return await (self._scope.result_in_commit_order(task, part) if task else part)
        finally:
            self._hand_over()
            if here:
                self._mark_awaited()
            else:
                self._be_marked()

    async def _end(self, noted: Callable[[str], contextlib.AbstractContextManager[None]]) -> None:
        """Wait for the step to end, for a thread. Raises StepDeadlock if it can never end: see Scope.waiting_for."""
        if self._task:  # None if the step could not begin
            with noted(self._task.get_name()):
                await asyncio.wait({self._task})

    def _elsewhere(self) -> concurrent.futures.Future[T]:
        """Return the result for other threads and other loops, which cannot wait for the task."""
        if self._done:
            return self._done
        assert self._task  # the step was begun above
        done = uncancellable()
        if self._task.done():
            _settle(done, self._task)
        else:
            self._loop.call_soon_threadsafe(self._task.add_done_callback, partial(_settle, done))
        return done

    def _begin(self, step: Step[T], start: Any) -> None:
        try:
            self._task = self._scope.spawn(step, start)
        except Exception as error:  # raised where the future is awaited
            self._done = self._done or uncancellable()
            self._done.set_exception(error)
        else:
            if self._done:
                self._task.add_done_callback(partial(_settle, self._done))

    def _hand_over(self) -> None:
        """Show the step's changes of the state to the code that requested it, and to no other reader of this future."""
        if self._task and self._task.done() and durable.scope() is self._scope:
            self._scope.hand_over(self._task)

    def _be_marked(self) -> None:
        """Have the loop of the run call `_mark_awaited`."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._mark_awaited)

    def _mark_awaited(self) -> None:
        """Mark the step as awaited: its failure was raised to the waiter, so the enclosing step need not raise it."""
        if self._task and self._task.done():  # if not, the waiter timed out and no failure reached it
            self._scope.mark_awaited(self._task)


def _settle(done: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        done.set_exception(concurrent.futures.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def requested(scope: Scope, step: Step[T], call: str, then: Callable[[T], Any] = durable.same) -> Any:
    """Request a step for code of users. In a coroutine, return an awaitable of `then(result)`; elsewhere, that result.

    `call`: the user's call, for error messages. In a coroutine, `then` may return an Awaited, which is awaited too.
    """
    if scope.loop is None or runs_here(scope.loop):
        asked = scope.step(step)
    elif background.running_loop():  # another loop: the user's, or that of a function on its own loop
        asked = StepFuture(scope, step)._awaited()
    else:
        return then(StepFuture(scope, step).result())
    return Awaited(call, asked, None if then is durable.same else partial(_after, then))


async def _after(then: Callable[[T], Any], asked: Awaitable[T]) -> Any:
    value = then(await asked)
    return await value if isinstance(value, Awaited) else value


@methods_with_known_keywords("futures", constructed=False)
class StepFutures(Sequence[StepFuture[T]]):
    """The futures of steps that were begun together, in the order of their arguments."""

    def __init__(self, futures: list[StepFuture[T]]) -> None:
        self._futures = futures

    def result(self, timeout: float | None = None) -> list[T]:
        """Wait for each step in turn, at most `timeout` seconds for each, and return all values.

        Raises the failure that comes first in this order.
        """
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
    """A coroutine that raises when it is used as a truth value: `if ask(...)` without await would always be true."""

    __slots__ = ("_asked", "_call", "_work")

    def __init__(
        self, call: str, asked: Awaitable[Any], then: Callable[[Awaitable[Any]], Coroutine[Any, Any, T]] | None = None
    ) -> None:
        assert isinstance(asked, CoroutineType)
        self._call = call
        """The call, as error messages write it."""
        self._asked = asked
        self._work: Coroutine[Any, Any, T] = then(asked) if then else asked

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Resume the coroutine with a value, as Coroutine.send does."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside the coroutine, as Coroutine.throw does."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End the coroutine, as Coroutine.close does."""
        self._work.close()
        self._asked.close()  # closing `_work` does not close this if `_work` was never started

    def __bool__(self) -> bool:
        self.close()  # else Python would warn as well that it was never awaited
        raise ConfigError(f"{self._call} was called in a coroutine without await: wanted `await {self._call}`")


def settled(value: Any, what: str) -> Any:
    """Return `value`. Raises ConfigError if it is, or directly contains, a future of a step or a coroutine.

    `what` names the value in the error.
    """
    if isinstance(value, codec.IMMUTABLE):
        return value
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set | deque) else ()
    )
    for item in (value, *inner):
        if isinstance(item, StepFuture | StepFutures):
            raise ConfigError(
                f"{what} is, or contains, the future of a step; wanted the step's value: call .result() on the future, "
                f"or await it in a coroutine"
            )
        if isinstance(item, Awaited | CoroutineType):
            item.close()  # else Python would warn later, far from here, that it was never awaited
            raise ConfigError(f"{what} is, or contains, a coroutine; wanted its value: await it")
    return value


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the caller runs on this loop."""
    return background.running_loop() is loop
