"""Steps that run side by side in a flow: limits, failures, cancellation, and slots that steps wait for."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from crewlite.errors import (
    RunCancelled,
    StepDeadlock,
)
from crewlite.flow import flow, step
from tests import children
from tests.flow.failing import Boom


def test_submit_begins_at_once_and_maps_take_plain_iterables(config):
    @step
    def add(a, b=0):
        return a + b

    @flow(checkpoint=config())
    def pipeline():
        futures = [add.submit(n) for n in range(3)]
        mapped = add.map((n for n in range(3)), {10: 0, 20: 0, 30: 0})
        return [f.result() for f in futures], mapped.result(), add.product([1, 2], [10, 20]).result(), len(mapped)

    assert pipeline.kickoff() == ([0, 1, 2], [10, 21, 32], [11, 21, 12, 22], 3)


def test_sixty_mapped_blocking_steps_that_call_steps_of_their_own_end(config):
    @step
    def inner(n):
        time.sleep(0.01)
        return n

    @step
    def outer(n):
        return inner(n) + 1

    @flow(checkpoint=config(), max_concurrency=8)
    def pipeline():
        return sum(outer.map(range(60)).result())

    assert pipeline.kickoff() == sum(range(1, 61))


@pytest.mark.parametrize("on", ["step", "flow"])
def test_no_more_run_side_by_side_than_may(on):
    now, most, lock = [0], [0], threading.Lock()

    @step(max_concurrency=3 if on == "step" else None)
    def work(n):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        children.until(lambda: most[0] >= 3)
        time.sleep(0.005)
        with lock:
            now[0] -= 1

    @flow(max_concurrency=3 if on == "flow" else None)
    def pipeline():
        work.map(range(20)).result()

    pipeline.kickoff()
    assert most == [3]


def test_when_one_fails_the_others_end_and_are_recorded(config, ran):
    broken = [True]

    @step
    async def work(n):
        await asyncio.sleep(0.01 * n)
        if n == 0 and broken:
            raise Boom
        ran.append(n)
        return n

    @flow(checkpoint=config())
    async def pipeline():
        return await work.map(range(4))

    with pytest.raises(Boom):
        pipeline.kickoff(run_id="one")
    assert ran == [1, 2, 3]
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [0, 1, 2, 3]
    assert ran == [1, 2, 3, 0]


def test_a_failure_that_nobody_waits_for_is_not_passed_over(config):
    @step
    def fails():
        raise Boom

    @flow(checkpoint=config())
    def pipeline():
        fails.submit()
        return "fine"

    with pytest.raises(Boom):
        pipeline.kickoff()


def test_a_flow_ends_when_everything_it_began_has_ended(config, ran):
    @step
    def slow():
        time.sleep(0.05)
        ran.append("slow")

    @flow(checkpoint=config())
    def pipeline():
        slow.submit()

    pipeline.kickoff()
    assert ran == ["slow"]


def test_changed_steps_side_by_side_end_and_are_handed_over_in_their_new_order(stored):
    words = ["", ""]

    @step
    async def look(letter):
        return letter

    @step
    async def read(number, word):
        return number, [await look.submit(letter) for letter in word]

    @flow(checkpoint=stored(on_drift="rerun"))
    async def pages():
        found = await asyncio.gather(*[read.submit(*one) for one in enumerate(words)])
        if not any(words):
            raise Boom
        return found

    with pytest.raises(Boom):
        pages.kickoff(run_id="one")
    words = ["a", "ab"]
    assert pages.kickoff(run_id="one") == [(0, ["a"]), (1, ["a", "b"])]


def test_a_run_that_is_stopped_cuts_what_it_began(on_disk, ran):
    @step
    async def slow():
        begun.set()
        try:
            await asyncio.sleep(60)
            ran.append("slow ran on")
        except asyncio.CancelledError:
            ran.append("slow is cut")
            raise

    @flow(checkpoint=on_disk())
    async def pipeline():
        slow.submit()

    begun = threading.Event()
    handle = pipeline.submit(run_id="one")
    assert begun.wait(60)
    handle.cancel()
    with pytest.raises(RunCancelled):
        handle.result(60)
    assert (handle.status, ran) == ("cancelled", ["slow is cut"])


def test_steps_that_wait_for_each_others_slots_are_an_error_and_not_a_standstill():
    meet = threading.Barrier(2)

    @step(max_concurrency=1)
    def left(deep):
        if not deep:
            return "end"
        meet.wait(60)
        return right(deep - 1)

    @step(max_concurrency=1)
    def right(deep):
        if not deep:
            return "end"
        meet.wait(60)
        return left(deep - 1)

    @flow
    def pipeline():
        both = [left.submit(1), right.submit(1)]
        return [future.result() for future in both]

    with pytest.raises(StepDeadlock, match="waits for a slot of step:") as caught:
        pipeline.kickoff()
    assert set(caught.value.waiting.values()) == {"step:left", "step:right"}


def test_limits_one_inside_the_other_are_no_deadlock():
    @step(max_concurrency=2)
    def inner(n):
        return n

    @step(max_concurrency=3)
    def outer(n):
        return sum(inner.map(range(n)).result())

    @flow(max_concurrency=4)
    def pipeline():
        return outer.map(range(12)).result()

    assert pipeline.kickoff() == [sum(range(n)) for n in range(12)]


def test_a_step_that_waits_to_be_tried_again_leaves_its_place_to_others(ran):
    @step(max_concurrency=1, retries=1, retry_delay=0.2)
    async def work(n):
        ran.append(n)
        if ran == ["shaky"]:
            raise Boom
        return n

    @flow
    async def pipeline():
        return await work.map(["shaky", 1, 2])

    assert pipeline.kickoff() == ["shaky", 1, 2]
    assert ran == ["shaky", 1, 2, "shaky"]


def test_whoever_waits_for_a_step_on_a_loop_of_their_own_may_give_up_and_the_step_goes_on():
    gave_up = threading.Event()

    @step
    async def slow():
        while not gave_up.is_set():
            await asyncio.sleep(0.005)
        return "slow"

    @flow
    def pipeline():
        future = slow.submit()

        async def impatient():
            waiting = asyncio.ensure_future(future._awaited())
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        async def patient():
            return await future

        asyncio.run(impatient())
        gave_up.set()
        return asyncio.run(patient()), future.result(), future.done()

    assert pipeline.kickoff() == ("slow", "slow", True)
