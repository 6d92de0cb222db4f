"""Framework time: what a task costs beyond the model, with nothing stored.

Sequential crews whose model answers 200 characters at once; each task builds on nothing. Kickoff time over the number
of tasks. Flat: within one crew of 400, the last hundred tasks against the hundred after the first, by the moments at
which each completed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from benchmarks.measure import Row, in_turns, median_ms
from benchmarks.scenes import answering, crew_of
from crewlite import Crew, event_bus
from crewlite.events import TaskCompletedEvent

_ROUNDS = 9


def measure() -> Iterator[Row]:
    for tasks in (10, 100):
        crew = crew_of(tasks, answering())
        (times,) = in_turns(_ROUNDS, crew.kickoff)
        yield Row(f"framework time per task, {tasks} tasks", median_ms(times) / tasks, "ms", 0.3)
    crew = crew_of(400, answering())
    yield Row("last 100 of 400 tasks against the first 100", *flatness(crew, _ROUNDS))


def flatness(crew: Crew, rounds: int) -> tuple[float, str, float, str]:
    """How much longer the last quarter of 400 tasks takes than the first: value, unit, target, detail."""
    moments: list[float] = []
    found, first, last = [], [], []

    def tick(source: object, event: TaskCompletedEvent) -> None:
        moments.append(time.perf_counter())

    crew.kickoff()
    with event_bus.on(TaskCompletedEvent, tick):
        for _ in range(rounds):
            moments.clear()
            crew.kickoff()
            first.append((moments[100] - moments[0]) / 100)
            last.append((moments[399] - moments[299]) / 100)
            found.append(last[-1] / first[-1])
    detail = f"{median_ms(last):.3f} ms a task against {median_ms(first):.3f} ms"
    return statistics.median(found), "x", 1.2, detail
