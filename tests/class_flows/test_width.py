"""`max_concurrency` of a flow bounds all that costs: what one method runs side by side as well, however deep."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, ask, flow, listen, sleep_for, start, step
from crewlite.testing import ScriptedLLM

PATIENCE = 30  # seconds


class Peak:
    """How many calls were in the block at once, at most."""

    def __init__(self):
        self.now = self.most = 0

    async def __call__(self):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1


def working(peak):
    @step
    async def work(n):
        await peak()
        return n

    return work


def in_time(work, *given, **more):
    return work.submit(*given, **more).result(PATIENCE)


@pytest.mark.parametrize("width", [1, 3, None])
def test_steps_that_one_method_runs_side_by_side_are_bounded(width):
    peak = Peak()
    work = working(peak)

    class Wide(Flow):
        max_concurrency = width

        @start()
        async def go(self):
            return await asyncio.gather(*[work(n) for n in range(7)])

    assert in_time(Wide()) == list(range(7))
    assert peak.most == (width or 7)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_so_are_steps_at_any_depth_and_of_several_methods(width):
    peak = Peak()
    work = working(peak)

    @step
    async def branch(n):
        await peak()
        found = await asyncio.gather(*[work(m) for m in range(n)])
        await peak()
        return sum(found)

    class Deep(Flow):
        max_concurrency = width

        @start()
        async def one(self):
            return await asyncio.gather(*[branch(n) for n in range(4)])

        @start()
        async def two(self):
            return await asyncio.gather(*[branch(n) for n in range(4)])

        @listen(one)
        def end(self, found):
            return found

    for _ in range(3):
        assert in_time(Deep()) == [0, 0, 1, 3]
    assert peak.most == width


@pytest.mark.parametrize("width", [1, 2])
def test_so_are_the_model_calls_of_crews(width):
    peak = Peak()

    class Slow(ScriptedLLM):
        async def acall(self, messages, **context):
            await peak()
            return await super().acall(messages, **context)

    agent = Agent(role="W", goal="g", llm=Slow(lambda messages: "done"))
    about = {"description": "d", "expected_output": "e", "agent": agent, "context": []}
    tasks = [Task(name=f"t{n}", async_execution=True, **about) for n in range(3)]

    class Crews(Flow):
        max_concurrency = width

        @start()
        async def go(self):
            crews = [Crew(name=f"c{n}", tasks=tasks) for n in range(2)]
            return len(await asyncio.gather(*[crew.akickoff() for crew in crews]))

    assert in_time(Crews()) == 2
    assert peak.most == width


def test_a_step_that_fails_or_is_retried_gives_the_slot_back_to_its_siblings():
    peak, broken = Peak(), [True]
    work = working(peak)

    @step(retries=1, retry_delay=0.01)
    async def shaky(n):
        await work(n)
        if broken and n == 1:
            broken.clear()
            raise ValueError(n)
        return n

    @flow(max_concurrency=1)
    async def all_of_them():
        @step
        async def inside():
            return await asyncio.gather(*[shaky(n) for n in range(4)])

        return await inside()

    assert in_time(all_of_them) == [0, 1, 2, 3]
    assert (peak.most, broken) == (1, [])


def test_who_waits_for_a_person_or_a_time_takes_nobodys_slot():
    work = working(Peak())

    class Waits(Flow):
        max_concurrency = 1

        @start()
        async def go(self):
            waits = asyncio.ensure_future(sleep_for(PATIENCE * 10))
            found = await asyncio.gather(ask("Go on?", name="go"), work(1))
            waits.cancel()
            return found

    assert in_time(Waits(), answers={"human:go": "yes", "method:go/human:go": "yes"}) == ["yes", 1]
