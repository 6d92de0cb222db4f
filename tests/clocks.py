"""A clock for paces, with which nobody waits."""

from __future__ import annotations

import asyncio
import heapq
import threading

from crewlite.concurrency.pacing import WINDOW


class Turning:
    """A clock that stands until somebody sleeps; then it goes to where the first of the sleepers wakes up."""

    def __init__(self):
        self._now, self._waking, self._lock = 1000.0, list[float](), threading.Lock()
        self.slept = 0

    def now(self):
        return self._now

    async def sleep(self, seconds):
        self.slept += 1
        until = self._now + seconds
        with self._lock:
            heapq.heappush(self._waking, until)
        try:
            while self._now < until:
                await asyncio.sleep(0.003)  # all others who sleep have said so by then
                with self._lock:
                    if self._waking[0] == until:
                        self._now = max(self._now, until)
        finally:
            with self._lock:
                self._waking.remove(until)
                heapq.heapify(self._waking)


def most_within_a_minute(times):
    return max(sum(start <= at < start + WINDOW for at in times) for start in times)
