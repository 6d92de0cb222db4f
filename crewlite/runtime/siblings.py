"""Steps that run side by side inside one step: begun at once, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class Siblings:
    """The steps that a running step began and does not wait for on the spot."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], str] = {}
        self._failed: dict[asyncio.Task[Any], str] = {}
        self._over = False

    def begin(self, step: Awaitable[T], address: str = "") -> asyncio.Task[T]:
        """Have a step begin."""
        task: asyncio.Task[T] = asyncio.ensure_future(step)
        task.set_name(address)  # by which it is known what its step has changed
        self._running[task] = address
        task.add_done_callback(self._ended)
        if self._over:  # a thread or a task that outlived its step goes on begging for more
            task.cancel()
        return task

    def mark_awaited(self, task: asyncio.Task[Any]) -> None:
        """Mark a task as awaited: `end` need not raise its failure."""
        self._failed.pop(task, None)

    def unobserved(self) -> list[str]:
        """The steps whose failures nobody awaited."""
        return list(self._failed.values())

    async def end(self) -> None:
        """Wait until all have ended. Raises the first failure that nobody awaited."""
        while self._running:
            await asyncio.wait(self._running)
        for task in self._failed:
            await task

    async def ended(self) -> None:
        """Wait until all have ended, when another failure is about to be told."""
        with contextlib.suppress(Exception):
            await self.end()

    def cut(self) -> None:
        """Cancel all: what encloses them was cancelled, or its time is up."""
        self._over = True
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        address = self._running.pop(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed[task] = address
