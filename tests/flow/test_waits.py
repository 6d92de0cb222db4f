"""Steps that wait for futures of other steps: what can never end is an error and no standstill, and nothing else is."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from crewlite import bound
from crewlite.errors import StepDeadlock
from crewlite.flow import flow, step

pytestmark = pytest.mark.timeout(60)


class Desk:
    """What steps of a test leave for each other: futures by name, and how to wait for one."""

    def __init__(self) -> None:
        self.futures, self.there = {}, threading.Event()

    def leave(self, **futures):
        self.futures |= futures
        self.there.set()

    def __call__(self, name):
        assert self.there.wait(30)
        return self.futures[name].result()

    async def wait(self, name):
        while not self.there.is_set():
            await asyncio.sleep(0.001)
        return await self.futures[name]


@pytest.fixture
def desk():
    return Desk()


def stuck(pipeline):
    with pytest.raises(StepDeadlock) as caught:
        pipeline.kickoff()
    return caught.value.waiting, caught.value.futures


@pytest.mark.parametrize("late", [True, False], ids=["the step waits last", "its slot is wanted last"])
@pytest.mark.parametrize("of", ["flow", "step"])
def test_a_step_that_waits_for_one_that_needs_its_slot(desk, late, of):
    @step(max_concurrency=1 if of == "step" else None)
    def work(waits):
        if waits and late:
            time.sleep(0.2)
        return desk("other") if waits else "done"

    @step
    def opening():
        time.sleep(0 if late else 0.2)
        return "opened"

    def pipeline():
        first = work.submit(True)
        if not late:
            time.sleep(0.1)
        desk.leave(other=work.submit(False))
        return first.result()

    limited = flow(pipeline, max_concurrency=1) if of == "flow" else flow(pipeline)
    limit = "flow:pipeline" if of == "flow" else "step:work"
    assert stuck(limited) == ({"step:work#2": limit}, {"step:work": "step:work#2"})


@pytest.mark.parametrize("late", [True, False], ids=["the step waits last", "its slot is wanted last"])
def test_a_coroutine_that_awaits_one_that_needs_its_slot(desk, late):
    @step
    async def waits():
        await asyncio.sleep(0.1 if late else 0)
        return await desk.wait("other")

    @step
    async def other():
        return "done"

    @flow(max_concurrency=1)
    async def pipeline():
        first = waits.submit()
        await asyncio.sleep(0.05)
        desk.leave(other=other.submit())
        return await first

    assert stuck(pipeline) == ({"step:other": "flow:pipeline"}, {"step:waits": "step:other"})


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_many_futures_of_one_call(desk, is_async):
    @step(max_concurrency=2)
    def work(n):
        return n

    if is_async:

        @step
        async def add():
            return sum(await desk.wait("all"))
    else:

        @step
        def add():
            return sum(desk("all"))

    @flow(max_concurrency=1)
    def pipeline():
        first = add.submit()
        time.sleep(0.05)
        desk.leave(all=work.map(range(5)))
        return first.result()

    assert stuck(pipeline) == ({"step:work": "flow:pipeline"}, {"step:add": "step:work"})


def test_two_without_a_limit_that_wait_for_each_other(desk):
    @step
    def one():
        return desk("other")

    @step
    async def other():
        return await desk.wait("one")

    @flow
    def pipeline():
        both = {"one": one.submit(), "other": other.submit()}
        desk.leave(**both)
        return [future.result() for future in both.values()]

    assert stuck(pipeline) == ({}, {"step:one": "step:other", "step:other": "step:one"})


@pytest.mark.parametrize("deep", [False, True], ids=["itself", "a step inside it"])
def test_a_step_that_waits_for_its_own_future(desk, deep):
    @step
    def inner():
        return desk("me")

    @step
    def me():
        return inner() if deep else desk("me")

    @flow
    def pipeline():
        desk.leave(me=me.submit())
        return desk("me")

    assert stuck(pipeline) == ({}, {"step:me/step:inner" if deep else "step:me": "step:me"})


def test_a_step_that_borrows_a_slot_and_waits_for_one_that_would_borrow_it(desk):
    @step
    def first():
        return desk("second")

    @step
    def second():
        return "done"

    @step
    def around():
        one = first.submit()
        time.sleep(0.05)
        desk.leave(second=second.submit())
        return one.result()

    @flow(max_concurrency=1)
    def pipeline():
        return around()

    slots, futures = stuck(pipeline)
    assert slots == {"step:around/step:second": "flow:pipeline"}
    assert futures == {"step:around/step:first": "step:around/step:second"}


def test_a_wait_with_a_limit_of_time_gives_up_and_the_other_step_gets_the_slot(desk):
    @step
    def waits():
        assert desk.there.wait(30)
        with pytest.raises(TimeoutError):
            desk.futures["other"].result(timeout=0.3)
        return "gave up"

    @step
    def other():
        return "done"

    @flow(max_concurrency=1)
    def pipeline():
        first = waits.submit()
        time.sleep(0.05)
        desk.leave(other=other.submit())
        return first.result(), desk("other")

    assert pipeline.kickoff() == ("gave up", "done")


@pytest.mark.parametrize("how", ["thread", "task"])
def test_a_wait_beside_the_code_of_a_step_does_not_keep_it_from_ending(desk, how):
    threads = []

    @step
    def in_a_thread():
        threads.append(threading.Thread(target=bound(lambda: desk("other")), daemon=True))
        threads[0].start()
        time.sleep(0.3)
        return "ended"

    @step
    async def in_a_task():
        waiting = asyncio.ensure_future(desk.wait("other"))
        await asyncio.wait({waiting}, timeout=0.3)
        waiting.cancel()
        return "ended"

    @step
    def other():
        return "done"

    @flow(max_concurrency=1)
    def pipeline():
        first = (in_a_thread if how == "thread" else in_a_task).submit()
        time.sleep(0.05)
        desk.leave(other=other.submit())
        return first.result(), desk("other")

    assert pipeline.kickoff() == ("ended", "done")


def test_what_was_abandoned_in_a_thread_waits_no_more(desk):
    tries, begun, wanted = [], threading.Event(), threading.Event()

    @step(max_concurrency=1, timeout=0.3, retries=1000)  # on a busy machine, more than the first attempt are too slow
    def work(waits):
        tries.append(waits)
        if tries == [True]:
            return desk("slow")
        if waits:
            begun.set()
            assert wanted.wait(30)
        return "done"

    @step
    async def slow():
        while not begun.is_set():
            await asyncio.sleep(0.001)
        asked = work.submit(False)
        for _ in range(100):
            await asyncio.sleep(0)
        wanted.set()  # the slot, by now
        return await asked

    @flow
    def pipeline():
        first = work.submit(True)
        desk.leave(slow=slow.submit())
        return first.result(), desk("slow")

    assert pipeline.kickoff() == ("done", "done")
    assert tries[:2] == [True, True]


def test_waits_that_end_are_no_deadlock(desk):
    @step(max_concurrency=2)
    def work(n):
        time.sleep(0.01)
        return n

    @step
    def waits(n):
        return desk("first") + desk("last") + n

    @step
    async def awaits(n):
        return await desk.wait("first") + await desk.wait("last") + n

    @flow(max_concurrency=6)
    def pipeline():
        numbers = work.map(range(1, 4))
        several = [*waits.map(range(3)), awaits.submit(3), awaits.submit(4)]
        desk.leave(first=numbers[0], last=numbers[-1])
        return [future.result() for future in several]

    assert pipeline.kickoff() == [4, 5, 6, 7, 8]


def test_a_chain_of_futures_ends():
    futures = []

    @step
    async def link(n):
        return (await futures[n - 1] if n else 0) + 1

    @flow(max_concurrency=50)
    async def pipeline():
        for n in range(50):
            futures.append(link.submit(n))
        return await futures[-1]

    assert pipeline.kickoff() == 50
