"""Recorded results that coroutines side by side take up: in the order in which they were committed once.

So what these coroutines see of the state, and write to it, comes in the order that it had when the steps were done.
"""

from __future__ import annotations

import asyncio
import heapq

from crewlite.state.format.kept import Order


class Turns:
    """Recorded results that are about to be handed over."""

    def __init__(self) -> None:
        self._queue: list[tuple[Order, str]] = []
        self._entered = set[str]()
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def enter(self, address: str, order: Order) -> None:
        """A recorded result was asked for. `leave` follows in any case."""
        heapq.heappush(self._queue, (order, address))
        self._entered.add(address)

    def has(self, address: str) -> bool:
        """Whether it has entered, and not left."""
        return address in self._entered

    async def come(self, address: str) -> None:
        """Wait until all that was asked for in this turn of the loop has entered, and no earlier result is to come."""
        await asyncio.sleep(0)
        while self._queue[0][1] != address:
            self._waiting[address] = asyncio.get_running_loop().create_future()
            await self._waiting[address]

    def leave(self, address: str) -> None:
        """The result was handed over, or is none that counts; no harm if it never entered."""
        self._entered.discard(address)
        while self._queue and self._queue[0][1] not in self._entered:
            heapq.heappop(self._queue)
        if self._queue and (waiting := self._waiting.pop(self._queue[0][1], None)) and not waiting.done():
            waiting.set_result(None)
