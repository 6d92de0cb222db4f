"""A pace lets so many calls begin within any minute, first come, first served; told with a clock of its own."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading

import pytest

from crewlite.concurrency.pacing import WINDOW, Pace, paced_by
from tests.clocks import Turning, most_within_a_minute


async def call(pace, per_minute, clock, begun, name=None):
    await pace.reserve(per_minute)
    pace.begin()
    begun.append((clock.now(), name))


def test_calls_beyond_the_limit_wait_in_their_order_and_nobody_asks_in_a_loop():
    clock, begun, pace = Turning(), [], Pace()

    async def many():
        await asyncio.gather(*(call(pace, 3, clock, begun, n) for n in range(11)))

    with paced_by(clock):
        asyncio.run(many())
    assert [name for _, name in begun] == list(range(11))
    assert [at - 1000 for at, _ in begun] == [0, 0, 0, 60, 60, 60, 120, 120, 120, 180, 180]
    assert most_within_a_minute([at for at, _ in begun]) == 3
    assert clock.slept <= 8 + 5 + 2 + 11, "each looks once for each minute that it waits"


def test_a_call_that_is_cancelled_while_it_waits_takes_no_turn():
    clock, begun, pace = Turning(), [], Pace()

    async def some():
        await call(pace, 1, clock, begun)
        waiting = [asyncio.ensure_future(pace.reserve(1)) for _ in range(50)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await call(pace, 1, clock, begun)

    with paced_by(clock):
        asyncio.run(some())
    assert [at - 1000 for at, _ in begun] == [0, 60]


def test_a_turn_that_is_given_back_is_free_and_one_that_is_held_counts():
    clock, pace = Turning(), Pace()

    async def held():
        await pace.reserve(1)
        second = asyncio.ensure_future(pace.reserve(1))
        await asyncio.sleep(0)
        assert not second.done()
        pace.give_back()
        await second
        return clock.now()

    with paced_by(clock):
        assert asyncio.run(held()) <= 1000 + WINDOW


def test_threads_share_a_pace():
    clock, begun, pace = Turning(), [], Pace()

    def work():
        async def two():
            for _ in range(2):
                await call(pace, 2, clock, begun)

        with paced_by(clock):
            asyncio.run(two())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(begun) == 8
    assert most_within_a_minute([at for at, _ in begun]) == 2


@pytest.mark.parametrize("made", [copy.deepcopy, lambda pace: pickle.loads(pickle.dumps(pace))])
def test_a_copy_for_elsewhere_begins_anew(made):
    pace = Pace()
    asyncio.run(call(pace, 1, Turning(), []))
    asyncio.run(call(made(pace), 1, Turning(), []))
