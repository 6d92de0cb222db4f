"""The code of users runs in tasks of its own: a cancellation stops what comes after it, and what it leaves is its own."""

from __future__ import annotations

import asyncio

import pytest

from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, listen, start
from crewlite.testing import ScriptedLLM


async def cancelled_once(begun, work):
    """Cancel `work` once `begun` is set, and wait for its end."""
    running = asyncio.ensure_future(work)
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_cancelled_flow_ends_even_if_its_method_swallows_the_cancellation():
    async def play():
        begun, ran = asyncio.Event(), []

        class Work(Flow):
            @start()
            async def first(self):
                ran.append("first")
                begun.set()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    return "what there is"

            @listen(first)
            async def second(self):
                ran.append("second")

        await cancelled_once(begun, Work().akickoff())
        assert ran == ["first"]

    asyncio.run(play())


def test_a_cancelled_kickoff_for_each_begins_no_other_input():
    async def play():
        begun, asked = asyncio.Event(), []

        class Stubborn(ScriptedLLM):
            async def acall(self, messages, **context):
                asked.append(messages)
                begun.set()
                try:
                    await asyncio.sleep(60 if len(asked) == 1 else 0)
                except asyncio.CancelledError:
                    return "what there is"

        agent = Agent(role="r", goal="g", llm=Stubborn([]))
        crew = Crew(tasks=[Task(description="{n}", expected_output="x", agent=agent)])
        await cancelled_once(begun, crew.akickoff_for_each([{"n": n} for n in range(4)], max_concurrency=1))
        assert len(asked) == 1

    asyncio.run(play())


def test_a_timeout_that_a_method_leaves_open_does_not_strike_the_next_one():
    class Work(Flow):
        @start()
        async def first(self):
            left_open.append(asyncio.timeout(None))
            await left_open[0].__aenter__()

        @listen(first)
        async def second(self):
            left_open[0].reschedule(0)
            for _ in range(10):
                await asyncio.sleep(0)
            return "done"

    left_open = []
    assert Work().kickoff() == "done"
