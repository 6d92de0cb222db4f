"""Fan-out: many crews at once, waiting for slow models together.

All kickoffs are awaited at once on one loop; each is a crew of one task, whose model takes a fixed time. That time is
the ideal, whatever their number; the value is how many times longer all of them take. With a store, all of them write
to one location, that earlier rounds have made.

`kickoff_for_each` over 2,000 inputs, 50 of them at work at once: how many times longer it takes than 50 models
alone, and by how much the resident memory grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.measure import Row, in_turns, median_ms, resident, scratch, seconds
from benchmarks.scenes import answering, crew_of, stored
from crewlite import CheckpointConfig
from crewlite.testing import ScriptedLLM

_ROUNDS = 9


def measure() -> Iterator[Row]:
    (times,) = in_turns(_ROUNDS, lambda: _at_once(50, 0.05))
    yield Row("50 at once, model of 50 ms", *_against(times, 0.05, 1.4))
    for kind, target in (("sqlite", 1.7), ("json", 2.0)):
        directory = scratch()
        config = stored(kind, directory)
        (times,) = in_turns(_ROUNDS, lambda config=config: _at_once(50, 0.05, config))
        yield Row(f"50 at once, model of 50 ms, {kind}", *_against(times, 0.05, target))
    (times,) = in_turns(5, lambda: _at_once(200, 0.5))
    yield Row("200 at once, model of 500 ms", *_against(times, 0.5, 1.2))
    yield from _for_each(2000, 50, 0.05)


def _at_once(count: int, delay: float, checkpoint: CheckpointConfig | None = None) -> None:
    crews = [crew_of(1, answering(delay=delay), checkpoint=checkpoint) for _ in range(count)]

    async def all_of_them() -> None:
        results = await asyncio.gather(*(crew.akickoff() for crew in crews))
        assert len(results) == count

    asyncio.run(all_of_them())


def _for_each(count: int, width: int, delay: float) -> Iterator[Row]:
    def reply(messages: object) -> str:
        llm.calls.clear()  # the model remembers what it was asked, for tests to look at
        return "done"

    llm = ScriptedLLM(reply, delay=delay)
    crew, inputs = crew_of(1, llm), [{"n": n} for n in range(count)]
    crew.kickoff_for_each(inputs[:500], max_concurrency=width)
    before = resident()
    took = seconds(lambda: crew.kickoff_for_each(inputs, max_concurrency=width))
    grown, ideal = resident() - before, count / width * delay
    yield Row(f"{count} inputs, {width} at once", took / ideal, "x", 1 / 0.85, f"{took:.1f} s against {ideal:.1f} s")
    yield Row(f"{count} inputs: memory growth per kickoff", grown / count, "KB", 2.0)


def _against(times: list[float], ideal: float, target: float) -> tuple[float, str, float, str]:
    median = median_ms(times)
    return median / ideal / 1000, "x", target, f"{median:.0f} ms against {ideal * 1000:.0f} ms"
