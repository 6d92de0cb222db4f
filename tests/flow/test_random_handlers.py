"""Random programs whose steps end in any order while a handler counts them: no change is lost, whoever waits for what."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from crewlite import CheckpointConfig, event_bus
from crewlite.events import StepCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider, RuntimeState
from tests.soak import in_time

state = RuntimeState.current


def keep_count(source, event, state):
    if "/" not in event.address:
        state["finished"] = state.get("finished", 0) + 1
        state.setdefault("log", []).append(event.address)
        state.setdefault("by", {})[event.address] = state["finished"]


def kicked_off(seed):
    """What a random program has counted, and what it should have."""
    chance = Random(seed)
    count = chance.randint(2, 8)
    failing = {number for number in range(count) if chance.random() < 0.2}
    delays = [chance.choice([0, 0, 0.001, 0.002, 0.004]) for _ in range(count)]
    pauses = [chance.choice([0, 0, 0.001, 0.003]) for _ in range(count)]
    order = chance.sample(range(count), count) if chance.random() < 0.5 else range(count)
    writes_between = chance.random() < 0.5

    @step
    async def inner():
        await asyncio.sleep(0)

    @step(retries=1)
    async def act(number):
        await asyncio.sleep(delays[number])
        for _ in range(number % 3):
            await inner()
        if number in failing:
            failing.discard(number)
            raise ConnectionError
        state().setdefault("own", []).append(number)

    @flow(name="whole", checkpoint=CheckpointConfig(location="here", provider=InMemoryProvider()))
    async def whole():
        begun = [act.submit(number) for number in range(count)]
        for number in order:
            await asyncio.sleep(pauses[number])
            await begun[number]
            if writes_between:
                state()["asked"] = state().get("asked", 0) + 1
        values = state()
        return values["finished"], sorted(values["log"]), sorted(values["by"].values()), sorted(values["own"])

    numbers = list(range(1, count + 1))
    log = sorted("step:act" if number == 1 else f"step:act#{number}" for number in numbers)
    return whole.kickoff(), (count, log, numbers, list(range(count)))


def check(seeds):
    with event_bus.scoped():
        event_bus.on(StepCompletedEvent, keep_count)
        for seed in seeds:
            found, wanted = kicked_off(seed)
            assert found == wanted, f"seed {seed}"


def test_a_handler_that_counts_steps_side_by_side_misses_none():
    check(range(40))


@pytest.mark.soak
def test_nor_in_many_more_programs():
    check(range(40, 40 + in_time(20_000)))
