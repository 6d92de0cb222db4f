"""Storage: bytes on disk per task, and that they do not grow with the length of the run.

Crews of 50, 100, 200 and 400 tasks, each task building on the one before, whose answers are 200 or 2,000 characters
long; the sizes of all files after the run has ended, over the number of tasks. The target allows 3 KB and 1.2 times
the answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.measure import Row, scratch
from benchmarks.scenes import KINDS, Kind, answering, crew_of, size, stored

_TASKS = (50, 100, 200, 400)


def measure() -> Iterator[Row]:
    for kind in KINDS:
        for payload in (200, 2000):
            sizes = [_bytes_per_task(kind, tasks, payload) for tasks in _TASKS]
            detail = ", ".join(f"{tasks}: {size:,.0f}" for tasks, size in zip(_TASKS, sizes, strict=True))
            answer = f"answers of {payload:,}"
            yield Row(f"{kind}: bytes per task, {answer}", sizes[-1], "B", 3 * 1024 + 1.2 * payload, detail)
            yield Row(f"{kind}: 400 tasks against 50, {answer}", sizes[-1] / sizes[0], "x", 1.15)


def _bytes_per_task(kind: Kind, tasks: int, payload: int) -> float:
    directory = scratch()
    crew_of(tasks, answering(payload), chained=True, checkpoint=stored(kind, directory)).kickoff()
    return size(directory) / tasks
