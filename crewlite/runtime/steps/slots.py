"""Limits on how many steps run at once. A step that would wait for ever raises StepDeadlock.

A step holds its slots while an attempt runs. Steps inside that attempt need no further slot of the same limit, unless
the limit counts them too, as that of a flow does. Then the step lends its slot to one of them at a time, and the others
need slots of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from crewlite.errors import StepDeadlock
from crewlite.step_parts import Limit


class Queue:
    """A semaphore for many waiters: `release` wakes the first one. That of asyncio looks at each waiter."""

    def __init__(self, width: int) -> None:
        self._left = width
        self._waiting: deque[asyncio.Future[Queue]] = deque()
        """The waiters, first come first; among them some that were cancelled or got a slot elsewhere."""

    def locked(self) -> bool:
        """Return whether no slot is free, so that `acquire` would wait."""
        return not self._left

    async def acquire(self) -> None:
        """Take a slot; wait if none is free. First come, first served."""
        await first_of(self)

    def release(self) -> None:
        """Give a slot to the first waiter, or make it free."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(self)
                return
        self._left += 1


async def first_of(*queues: Queue) -> Queue:
    """Take a slot from the first queue with a free one; wait if none has one. Returns the queue it came from."""
    for queue in queues:
        if queue._left:
            queue._left -= 1
            return queue
    given: asyncio.Future[Queue] = asyncio.get_running_loop().create_future()
    for queue in queues:
        queue._waiting.append(given)
    try:
        return await given
    except asyncio.CancelledError:
        if not given.cancelled():  # it was given meanwhile
            given.result().release()
        raise


class Pool:
    """The slots of one limit in one run."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.free = Queue(limit.width)
        self.holders: set[Slots] = set()


class Pools:
    """All slots of one run, and the steps that wait for a slot while they, or enclosing steps, hold one."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self.waiting: dict[Slots, Pool] = {}

    def pool(self, limit: Limit) -> Pool:
        """Return the slots of a limit."""
        if limit.key not in self._pools:
            self._pools[limit.key] = Pool(limit)
        return self._pools[limit.key]

    def stuck(self) -> dict[Slots, Pool]:
        """Return the waiting steps that can never proceed, each with the pool of slots it waits for.

        Every slot that one of them waits for is held by another of them, or by a step that encloses another of them.
        """
        stuck = dict(self.waiting)
        while stuck:
            inside = {holder for one in stuck for holder in _outwards(one)}
            moving = {pool for pool in set(stuck.values()) if not _is_blocked(pool, inside)}
            if not moving:
                break
            stuck = {one: pool for one, pool in stuck.items() if pool not in moving}
        return stuck


class Slots:
    """The slots that one step holds while an attempt runs. `outer`: those of the nearest enclosing step with limits."""

    def __init__(self, pools: Pools, address: str, limits: Sequence[Limit], outer: Slots | None) -> None:
        around = {pool.limit.key for one in _outwards(outer) for pool in one.held}
        self.address, self.outer = address, outer
        self.held: list[Pool] = []
        self._pools = pools
        self._limits = [limit for limit in limits if limit.counts_inside or limit.key not in around]
        self._borrowed: dict[str, Queue] = {}
        """By key of a limit: the queue from which this step has borrowed a slot."""
        self._lent: dict[str, Queue] = {}
        """By key of a limit: the queue from which steps inside this one may borrow its slot, one at a time."""

    async def take(self) -> None:
        """Wait for a slot under each limit. Raises StepDeadlock if none can ever become free."""
        for limit in self._limits:
            pool = self._pools.pool(limit)
            if lender := self._lender(limit):  # held by a step beside this one, if at all: the wait closes no circle
                if await first_of(lender, pool.free) is lender:
                    self._borrowed[limit.key] = lender
                    continue
            elif pool.free.locked() and any(one.held for one in _outwards(self)):
                await self._wait(pool)
            else:
                await pool.free.acquire()
            self.held.append(pool)
            pool.holders.add(self)

    def _lender(self, limit: Limit) -> Queue | None:
        """Return the queue of the nearest enclosing step that has a slot under a limit and can lend it; else None."""
        for one in _outwards(self.outer):
            if limit.key in one._borrowed or any(pool.limit.key == limit.key for pool in one.held):
                return one._lent.setdefault(limit.key, Queue(1))
        return None

    def leave(self) -> None:
        """Release all slots. Does nothing if none are held."""
        while self.held:
            pool = self.held.pop()
            pool.holders.discard(self)
            pool.free.release()
        while self._borrowed:
            self._borrowed.popitem()[1].release()

    async def _wait(self, pool: Pool) -> None:
        self._pools.waiting[self] = pool
        try:
            stuck = self._pools.stuck()
            if self in stuck:
                raise StepDeadlock({one.address: wanted.limit.key for one, wanted in stuck.items()})
            await pool.free.acquire()
        finally:
            del self._pools.waiting[self]


def _is_blocked(pool: Pool, inside: set[Slots]) -> bool:
    """Return whether all slots of a pool are taken, and only steps in `inside` hold them."""
    return len(pool.holders) == pool.limit.width and pool.holders <= inside


def _outwards(one: Slots | None) -> Iterator[Slots]:
    while one:
        yield one
        one = one.outer
