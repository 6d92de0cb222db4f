"""The slots under limits, without the steps that take them."""

from __future__ import annotations

import asyncio
import sys

from crewlite.runtime.steps.slots import Pools, Slots
from crewlite.step_parts import Limit


def test_many_that_hold_one_place_and_wait_for_another_cost_no_more_than_their_square():
    count, calls = 60, 0

    def counted(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    async def all_of_them():
        pools = Pools()

        async def one(n):
            slots = Slots(pools, f"step:one#{n}", (Limit("flow:wide", count), Limit("step:narrow", 1)), None)
            await slots.take()
            await asyncio.sleep(0)
            slots.leave()

        await asyncio.gather(*[one(n) for n in range(count)])

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        asyncio.run(all_of_them())
    finally:
        sys.setprofile(before)
    assert calls < 10 * count**2
