"""Limits on how many steps run at once. A step that would wait for ever raises StepDeadlock.

A step holds its slots while an attempt runs. Steps inside that attempt need no further slot of the same limit, unless
the limit counts them too (`counts_inside`), as that of a flow does. Then the step lends its slot to one of them at a
time, and the others need slots of their own.

Two things wait: a step waits for a slot, which another step releases when it ends; and the code of a step waits for the
future of a step that other code has begun. A step ends only after the steps inside it. So a wait can never end if all
the steps that could end it wait themselves, or enclose steps that wait, in this way.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from crewlite.errors import StepDeadlock
from crewlite.state.format.addresses import outers
from crewlite.step_parts import Limit


class Pool:
    """The slots of one limit in one run, or the one slot that a step lends under it. First come, first served.

    `release` wakes only the first waiter, where the semaphore of asyncio looks at each.
    """

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.holders: set[Slots] = set()
        self._left = limit.width
        self._waiting: deque[asyncio.Future[Pool]] = deque()
        """The waiters, first come first; among them some that were cancelled or got a slot elsewhere."""

    def locked(self) -> bool:
        """Return whether no slot is free, so that a step would wait."""
        return not self._left

    def release(self) -> None:
        """Give a slot to the first waiter, or make it free."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(self)
                return
        self._left += 1


async def first_of(*pools: Pool) -> Pool:
    """Take a slot from the first pool with a free one; wait if none has one. Returns the pool it came from."""
    for pool in pools:
        if pool._left:
            pool._left -= 1
            return pool
    given: asyncio.Future[Pool] = asyncio.get_running_loop().create_future()
    for pool in pools:
        pool._waiting.append(given)
    try:
        return await given
    except asyncio.CancelledError:
        if not given.cancelled():  # the slot was given meanwhile
            given.result().release()
        raise


@dataclass(eq=False, slots=True)
class Wait:
    """A wait of a step for a free slot in one of some pools, or of its code for the step at an address to end.

    `place`: the address of the step that waits, then those of the enclosing steps.
    """

    place: Sequence[str]
    wanted: Sequence[Pool] | str

    def blockers(self) -> list[str]:
        """Return the addresses of the steps one of which has to end first; none if the wait is about to end."""
        if isinstance(self.wanted, str):
            return [self.wanted]
        if any(len(pool.holders) < pool.limit.width for pool in self.wanted):
            return []
        return [holder.address for pool in self.wanted for holder in pool.holders]


class Pools:
    """All slots of one run, and all waits: who waits for whom. Used on the loop of the run alone."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._inside: dict[str, dict[Wait, None]] = {}
        """By address: the waits of that step and of the steps inside it."""
        self._awaited = Counter[str]()
        """How many waits there are for the end of the step at an address."""

    def pool(self, limit: Limit) -> Pool:
        """Return the pool of a limit."""
        if limit.key not in self._pools:
            self._pools[limit.key] = Pool(limit)
        return self._pools[limit.key]

    @contextmanager
    def wait(self, address: str, slots: Slots | None, wanted: Sequence[Pool] | str) -> Iterator[None]:
        """Note a wait of the step at an address while the block runs. Raises StepDeadlock if it could never end.

        `slots`: the step's or, if it has none, those of the nearest enclosing step with limits. `wanted`: see Wait.
        """
        wait = Wait((address, *outers(address)), wanted)
        self.add(wait)
        try:
            if any(self._awaited[at] for at in wait.place) or any(one.held for one in _outwards(slots)):
                self._check(wait)  # if nobody waits for this step, there can be no circle
            yield
        finally:
            self._remove(wait)

    def forget(self, address: str) -> None:
        """Forget the waits in a step's code, which has failed or was abandoned in a thread."""
        for wait in [wait for wait in self._inside.get(address, ()) if wait.place[0] == address]:
            self._remove(wait)

    def stuck(self, first: Wait) -> list[Wait]:
        """Return the waits that `first` depends on and that can never end, itself included; none if it can end."""
        found: dict[Wait, list[str]] = {}
        to_visit = [first]
        while to_visit:
            wait = to_visit.pop()
            if wait not in found:
                found[wait] = wait.blockers()
                to_visit += [inner for at in found[wait] for inner in self._inside.get(at, ())]
        left = 0
        while left != len(found):
            left = len(found)
            for wait in reversed([*found]):  # each depends on later ones, so that a chain takes one pass
                blocked = (not found.keys().isdisjoint(self._inside.get(at, ())) for at in found[wait])
                if not (found[wait] and all(blocked)):
                    del found[wait]
        return [*found] if first in found else []

    def add(self, wait: Wait) -> None:
        """Note a wait."""
        for at in wait.place:
            self._inside.setdefault(at, {})[wait] = None
        if isinstance(wait.wanted, str):
            self._awaited[wait.wanted] += 1

    def _remove(self, wait: Wait) -> None:
        """Forget a wait, unless that is done already."""
        if wait not in self._inside.get(wait.place[0], ()):
            return
        for at in wait.place:
            del self._inside[at][wait]
            if not self._inside[at]:
                del self._inside[at]
        if isinstance(wait.wanted, str):
            self._awaited[wait.wanted] -= 1

    def _check(self, wait: Wait) -> None:
        if stuck := self.stuck(wait):
            slots = {one.place[0]: one.wanted[-1].limit.key for one in stuck if not isinstance(one.wanted, str)}
            raise StepDeadlock(slots, {one.place[0]: one.wanted for one in stuck if isinstance(one.wanted, str)})


class Slots:
    """The slots that one step holds while an attempt runs. `outer`: those of the nearest enclosing step with limits."""

    def __init__(self, pools: Pools, address: str, limits: Sequence[Limit], outer: Slots | None) -> None:
        around = {pool.limit.key for one in _outwards(outer) for pool in one.held}
        self.address, self.outer = address, outer
        self.held: list[Pool] = []
        self._pools = pools
        self._limits = [limit for limit in limits if limit.counts_inside or limit.key not in around]
        self._lent: dict[str, Pool] = {}
        """By key of a limit: the slot of this step that steps inside this one may borrow, one at a time."""

    async def take(self) -> None:
        """Wait for a slot under each limit. Raises StepDeadlock if none can ever become free."""
        for limit in self._limits:
            pool, lent = self._pools.pool(limit), self._lent_around(limit)
            pools = (lent, pool) if lent else (pool,)
            if all(each.locked() for each in pools):
                with self._pools.wait(self.address, self, pools):
                    taken = await first_of(*pools)
            else:
                taken = await first_of(*pools)
            self.held.append(taken)
            taken.holders.add(self)

    def _lent_around(self, limit: Limit) -> Pool | None:
        """Return the slot that the nearest enclosing step with a slot under a limit lends; None if there is none."""
        for one in _outwards(self.outer):
            if any(pool.limit.key == limit.key for pool in one.held):
                return one._lent.setdefault(limit.key, Pool(Limit(limit.key, 1)))
        return None

    def leave(self) -> None:
        """Release all slots. Does nothing if none are held."""
        while self.held:
            pool = self.held.pop()
            pool.holders.discard(self)
            pool.release()


def _outwards(one: Slots | None) -> Iterator[Slots]:
    while one:
        yield one
        one = one.outer
