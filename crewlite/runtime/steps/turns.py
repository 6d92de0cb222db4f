"""Hand over recorded results to concurrent coroutines in the order in which they were committed.

So the coroutines read and write the state in the same order as when the steps ran, and code that goes on with the
result that comes first goes on as it did.
"""

from __future__ import annotations

import asyncio
import heapq

from crewlite.state.format.kept import Order


class Turns:
    """The queue of recorded results that are about to be handed over."""

    def __init__(self) -> None:
        self._queue: list[tuple[Order, str]] = []
        self._entered: dict[str, Order] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}

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
        """Wait until all results requested in this turn of the loop are queued, and this one is the first."""
        await asyncio.sleep(0)
        while self._first() != address:
            self._waiting[address] = asyncio.get_running_loop().create_future()
            await self._waiting[address]

    def leave(self, address: str) -> None:
        """Remove a result that was handed over or is not needed. Does nothing if it is not in the queue."""
        self._entered.pop(address, None)
        if (waiting := self._waiting.pop(self._first(), None)) and not waiting.done():
            waiting.set_result(None)

    def _first(self) -> str:
        """Return the address of the first result in the queue; "" if it is empty."""
        while self._queue and self._entered.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)  # it has left, perhaps to enter again at another place
        return self._queue[0][1] if self._queue else ""
