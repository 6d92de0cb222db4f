"""Not too many steps at a time: a step has its slots with all that is inside it, and none waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from crewlite.durable import Limit
from crewlite.errors import StepDeadlock


class Pool:
    """The slots under one limit of one run."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.free = asyncio.Semaphore(limit.width)
        self.holders: set[Slots] = set()


class Pools:
    """All limits of one run, and who waits under one of them while holding a slot under another."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self.waiting: dict[Slots, Pool] = {}

    def pool(self, limit: Limit) -> Pool:
        """The slots under a limit."""
        if limit.key not in self._pools:
            self._pools[limit.key] = Pool(limit)
        return self._pools[limit.key]

    def stuck(self) -> dict[Slots, Pool]:
        """Those who could never go on: each waits for slots whose holders have one of them inside."""
        stuck = dict(self.waiting)
        while stuck:
            inside = {holder for one in stuck for holder in _outwards(one)}
            moving = {pool for pool in set(stuck.values()) if not _kept(pool, inside)}
            if not moving:
                break
            stuck = {one: pool for one, pool in stuck.items() if pool not in moving}
        return stuck


class Slots:
    """What one step holds while an attempt at it runs. Those of the steps around it are `outer`."""

    def __init__(self, pools: Pools, address: str, limits: Sequence[Limit], outer: Slots | None) -> None:
        around = {pool.limit.key for one in _outwards(outer) for pool in one.held}
        self.address, self.outer = address, outer
        self.held: list[Pool] = []
        self._pools = pools
        self._limits = [limit for limit in limits if limit.key not in around]

    async def take(self) -> None:
        """Wait for a slot under each limit. Raises StepDeadlock if there can never be one."""
        for limit in self._limits:
            pool = self._pools.pool(limit)
            if pool.free.locked() and any(one.held for one in _outwards(self)):
                await self._wait(pool)
            else:
                await pool.free.acquire()
            self.held.append(pool)
            pool.holders.add(self)

    def leave(self) -> None:
        """Give up all slots; no harm if there are none."""
        while self.held:
            pool = self.held.pop()
            pool.holders.discard(self)
            pool.free.release()

    async def _wait(self, pool: Pool) -> None:
        self._pools.waiting[self] = pool
        try:
            stuck = self._pools.stuck()
            if self in stuck:
                raise StepDeadlock({one.address: wanted.limit.key for one, wanted in stuck.items()})
            await pool.free.acquire()
        finally:
            del self._pools.waiting[self]


def _kept(pool: Pool, inside: set[Slots]) -> bool:
    """Whether every slot of a pool is taken, each by one of these."""
    return len(pool.holders) == pool.limit.width and pool.holders <= inside


def _outwards(one: Slots | None) -> Iterator[Slots]:
    while one:
        yield one
        one = one.outer
