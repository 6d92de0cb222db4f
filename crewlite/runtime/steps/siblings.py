"""Steps that run in parallel inside one step, which ends only when all of them have ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from crewlite.runtime.steps.handover import LOOP_TURNS, Handover

T = TypeVar("T")
OnEnd = Callable[[asyncio.Task[Any]], None]


class Siblings:
    """The steps that a running step has begun without awaiting them at once."""

    def __init__(self) -> None:
        self.handover = Handover()
        """The results to hand over: of these steps, and of recorded ones beside them."""
        self._running: dict[asyncio.Task[Any], OnEnd | None] = {}
        self._failed: dict[asyncio.Task[Any], str] = {}
        self._cut: list[str] = []
        self.is_cut = False
        self._left = False
        """Whether the code has failed, so that it receives no more results."""
        self._has_failed = False
        """Whether any of these steps has failed."""

    def begin(self, step: Coroutine[Any, Any, T], address: str, ended: OnEnd | None = None) -> asyncio.Task[T]:
        """Begin a step as a task, and return the task. After `cut`, a new task is cancelled at once.

        `ended` is called with the task once that has ended.
        """
        task = asyncio.create_task(step, name=address)  # `StepScope.hand_over` needs this name
        self._running[task] = ended
        task.add_done_callback(self._ended)
        if self.is_cut:  # requested by a thread or a task that outlived the step
            task.cancel()
        return task

    def mark_awaited(self, task: asyncio.Task[Any]) -> None:
        """Mark a task as awaited: its failure reaches the awaiter, so `join` does not raise it.

        No effect once the code of the running step has failed: `asyncio.gather` drops all failures but the first.
        """
        if not self._left:
            self._failed.pop(task, None)

    async def come_after_failures(self, address: str) -> None:
        """If a sibling has failed before, wait some turns of the loop, so that its failure reaches the code first.

        `asyncio.gather` raises the failure that comes first, and drops the others. The step that waits here has failed
        already, so it ignores a cancellation by an `asyncio.TaskGroup`: the group collects its failure too.
        """
        if self.handover.has(address):  # the queue keeps its order
            return
        if self._has_failed:
            with contextlib.suppress(asyncio.CancelledError):
                for _ in range(LOOP_TURNS):
                    await asyncio.sleep(0)
        self._has_failed = True

    def unobserved(self) -> list[str]:
        """Return the addresses of failed steps that nobody has awaited, and of all cancelled steps.

        A cancelled step may have failed: the cancellation may have come while its failure was being recorded.
        """
        return [*self._failed.values(), *self._cut]

    async def join(self) -> None:
        """Wait until all steps have ended. Raises the first failure of a step that nobody has awaited."""
        await self._all_ended()
        for task in self._failed:
            await task

    async def join_after_failure(self) -> None:
        """Wait until all steps have ended. Raises nothing, because another failure is about to be raised."""
        self._left = True
        await self._all_ended()

    async def _all_ended(self) -> None:
        while self._running or self.handover.busy:
            if self._running:
                await asyncio.wait(self._running)
            for _ in range(LOOP_TURNS):  # code that receives a result may request the next step
                await asyncio.sleep(0)

    def cut(self) -> None:
        """Cancel all steps, because the enclosing step was cancelled or its time is up."""
        self.is_cut = True
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        ended = self._running.pop(task)
        if task.cancelled():
            self._cut.append(task.get_name())
        elif task.exception() is not None:
            self._failed[task] = task.get_name()
        if ended:
            ended(task)
