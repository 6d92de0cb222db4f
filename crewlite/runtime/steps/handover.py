"""Hand over results to concurrent coroutines one after another, in the order in which they were committed.

A resume has many results at once. It hands them over in the order of the first run, so that the coroutines read and
write the state in the same order, and code that uses the first result to come gets the same one. Between two results
pass a few turns of the event loop, so that the code can go on in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Awaitable
from typing import TypeVar

from crewlite.state.format.kept import Order

T = TypeVar("T")
LOOP_TURNS = 8
"""The most turns of the event loop until a result or an error reaches the code that awaits it. A task that awaits
`asyncio.wait` goes on after two turns; each `gather`, `wait_for` or task in between takes two more."""


class Handover:
    """The queue of results that are about to be handed over. A result is handed over once it is the first."""

    def __init__(self) -> None:
        self._queue: list[tuple[Order, str]] = []
        self._entered: dict[str, Order] = {}
        self._expected: set[str] = set()
        """Addresses of steps that run, whose results enter the queue when they are committed."""
        self._run_again: set[str] = set()
        """Addresses of steps that run although their results are recorded: those do not enter the queue."""
        self._waiting: dict[str, asyncio.Event] = {}
        self._handed_over = 0
        """How many results have left the queue so far."""

    @property
    def busy(self) -> bool:
        """Whether a result is in the queue, or a running step will add one."""
        return bool(self._entered or self._expected)

    async def hand_over(
        self, task: asyncio.Task[T], part: Awaitable[T], recorded: Order | None, *, expected: bool
    ) -> T:
        """Await the task of a step, and return its result or raise its failure in its turn.

        `part`: the task, or a shield around it. `recorded`: the position of its recorded outcome or failure; None if it
        has none yet. `expected`: whether the result of a step that still runs enters the queue too, when the step ends.
        """
        address = task.get_name()
        if recorded and address not in self._run_again:
            self.enter(address, recorded)
        if expected:
            self._expected.add(address)
        try:
            with contextlib.suppress(Exception):  # the task keeps its error, which is raised below, in its turn
                await part
            await self.wait_for_turn(address, LOOP_TURNS)
        except asyncio.CancelledError:
            if not _has_failed(task):  # a step that has failed cannot be cancelled any more
                raise
        finally:
            self.leave(address)
        if (error := task.exception()) is None:
            return task.result()
        try:
            raise error  # not by `task.result()`, which would drop its traceback
        finally:
            del error

    def has(self, address: str) -> bool:
        """Return whether a result is in the queue."""
        return address in self._entered

    def committed(self, address: str, order: Order) -> None:
        """Add the result of an expected step when it is committed. Does nothing for other steps."""
        if address in self._expected:
            self.enter(address, order)

    def enter(self, address: str, order: Order) -> None:
        """Add a result. The caller must call `leave` for it in any case."""
        heapq.heappush(self._queue, (order, address))
        self._entered[address] = order

    async def wait_for_turn(self, address: str, loop_turns: int = 1) -> None:
        """Wait until this result is the first, and the code has gone on with the results handed over before it.

        `loop_turns`: the fewest turns of the loop to wait, as an earlier result may enter the queue meanwhile.
        """
        while address in self._entered:
            if self._first() != address:
                await self._waiting.setdefault(address, asyncio.Event()).wait()
                loop_turns = LOOP_TURNS
                continue
            handed_over = self._handed_over
            for _ in range(loop_turns):
                await asyncio.sleep(0)
            if self._first() == address and self._handed_over == handed_over:
                return
            loop_turns = LOOP_TURNS

    def run_again(self, address: str) -> None:
        """Note that a step runs again, so that its recorded result does not enter the queue."""
        self._run_again.add(address)
        self._withdraw(address)

    def leave(self, address: str) -> None:
        """Remove a step whose result was handed over, or that has no result. Does nothing if it is not in the queue."""
        self._expected.discard(address)
        self._withdraw(address)

    def _withdraw(self, address: str) -> None:
        if self._entered.pop(address, None) is not None:
            self._handed_over += 1
        for one in (address, self._first()):
            if waiting := self._waiting.pop(one, None):
                waiting.set()

    def _first(self) -> str:
        """Return the address of the first result in the queue; "" if it is empty."""
        while self._queue and self._entered.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)  # an entry of a result that has left, and may have entered again elsewhere
        return self._queue[0][1] if self._queue else ""


def _has_failed(task: asyncio.Task[object]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
