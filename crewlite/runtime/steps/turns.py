"""Hand over recorded results to concurrent coroutines in the order in which they were committed.

So the coroutines read and write the state in the same order as when the steps ran, and code that goes on with the
result that comes first goes on as it did. Between two results pass a few turns of the event loop, in which that code
can go on: `asyncio.wait` gives it all results that have come by then.
"""

from __future__ import annotations

import asyncio
import heapq

from crewlite.state.format.kept import Order

TURNS = 8
"""Turns of the loop that a result or an error takes at most to reach the code that goes on with it. A task that awaits
`asyncio.wait` goes on after two turns; each `gather`, `wait_for` or task in between takes two more."""


class Turns:
    """The queue of recorded results that are about to be handed over."""

    def __init__(self) -> None:
        self._queue: list[tuple[Order, str]] = []
        self._entered: dict[str, Order] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._handed_over = 0
        """The number of results that have left the queue."""

    def __bool__(self) -> bool:
        """Whether any result is in the queue."""
        return bool(self._entered)

    def enter(self, address: str, order: Order) -> None:
        """Add a result that was requested. The caller must call `leave` for it in any case."""
        heapq.heappush(self._queue, (order, address))
        self._entered[address] = order

    def has(self, address: str) -> bool:
        """Return whether a result is in the queue."""
        return address in self._entered

    async def come(self, address: str) -> None:
        """Wait until all results requested in this turn of the loop are queued, and this one is the first.

        If another one was handed over meanwhile, the code goes on with that before this one may come.
        """
        gone_on_with = self._handed_over
        await asyncio.sleep(0)
        while self._first() != address or gone_on_with != self._handed_over:
            if self._first() != address:
                self._waiting[address] = asyncio.get_running_loop().create_future()
                await self._waiting[address]
            gone_on_with = self._handed_over
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def leave(self, address: str) -> None:
        """Remove a result that was handed over or is not needed. Does nothing if it is not in the queue."""
        if self._entered.pop(address, None) is not None:
            self._handed_over += 1
        if (waiting := self._waiting.pop(self._first(), None)) and not waiting.done():
            waiting.set_result(None)

    def _first(self) -> str:
        """Return the address of the first result in the queue; "" if it is empty."""
        while self._queue and self._entered.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)  # it has left, perhaps to enter again at another place
        return self._queue[0][1] if self._queue else ""
