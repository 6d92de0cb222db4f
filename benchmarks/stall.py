"""A good guest: how long the caller's event loop stands still while async verbs wait for a store that takes a second.

Every verb of the store sleeps. Beside the verb that is measured a task on the same loop wakes every millisecond.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from benchmarks.measure import Row
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.flow import flow
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.testing import ScriptedLLM

_DELAY = 1.0


def measure() -> Iterator[Row]:
    stalls: dict[str, float] = {}
    for name, verb in _VERBS.items():
        asyncio.run(verb(CheckpointConfig(location="memory", provider=InMemoryProvider())))  # for what it imports
        stalls[name] = asyncio.run(longest_stall(verb(CheckpointConfig(location="slow", provider=_Slow()))))
    worst = max(stalls, key=lambda name: stalls[name])
    note = ", ".join(f"{name} {stall * 1000:.0f}" for name, stall in stalls.items())
    yield Row(f"longest stall of the caller's loop ({worst})", stalls[worst] * 1000, "ms", 50.0, note)


class _Slow:
    name = "slow"

    def __init__(self) -> None:
        self._inner = InMemoryProvider()

    def open(self, location: str) -> Any:
        time.sleep(_DELAY)
        return _SlowStore(self._inner.open(location))


class _SlowStore:
    def __init__(self, inner: Any) -> None:
        self._inner, self.location, self.ref = inner, inner.location, inner.ref

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._inner, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            time.sleep(_DELAY)
            return found(*args, **kwargs)

        return call


def _crew(config: CheckpointConfig) -> Crew:
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: "x"))
    return Crew(tasks=[Task(description="Write", expected_output="text", agent=agent)], checkpoint=config)


async def _kickoff(config: CheckpointConfig) -> None:
    await _crew(config).akickoff()


async def _resume(config: CheckpointConfig) -> None:
    crew = _crew(config)
    await crew.akickoff(run_id="r")
    await crew.akickoff(run_id="r")


async def _preview(config: CheckpointConfig) -> None:
    crew = _crew(config)
    await crew.akickoff(run_id="r")
    await crew.apreview(from_checkpoint=CheckpointConfig(restore_from="r", location=config.location))


async def _submit(config: CheckpointConfig) -> None:
    @flow(checkpoint=config)
    def work() -> int:
        return 1

    await work.submit()


async def _state(config: CheckpointConfig) -> None:
    async with await RuntimeState.aopen("bag", config.location, config.provider) as state:
        state["x"] = 1
        await state.asnapshot()


_VERBS: dict[str, Callable[[CheckpointConfig], Coroutine[Any, Any, None]]] = {
    "akickoff": _kickoff,
    "akickoff, again": _resume,
    "apreview": _preview,
    "submit": _submit,
    "aopen": _state,
}


async def longest_stall(work: Coroutine[Any, Any, None]) -> float:
    """Seconds for which nothing else on the loop could run, while this was awaited."""
    longest, over = 0.0, False

    async def tick() -> None:
        nonlocal longest
        while not over:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0.01)
    try:
        await work
    finally:
        over = True
        await ticking
    return longest
