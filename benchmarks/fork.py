"""Forking: what it costs to begin a second line in the middle of a long run.

A run of 1,000 tasks is forked at the checkpoint of its 500th, named by its ref: a file path with JSON, `db#id` with
SQLite. A location is opened, forked, closed, every time under a new name; forks of earlier rounds stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.measure import Row, in_turns, median_ms, scratch
from benchmarks.scenes import KINDS, Kind, answering, crew_of, stored
from crewlite import History

_TASKS = 1000
_ROUNDS = 15


def measure() -> Iterator[Row]:
    for kind in KINDS:
        directory = scratch()
        yield Row(f"{kind}: fork in the middle of 1,000 tasks", median_ms(_forks(kind, directory)), "ms", 20)


def _forks(kind: Kind, directory: Path) -> list[float]:
    config = stored(kind, directory)
    crew_of(_TASKS, answering(), checkpoint=config).kickoff(run_id="report")
    with History(config.location, config.provider) as history:
        ref = history.run("report").checkpoints()[_TASKS // 2 - 1].ref
    numbers = count()

    def fork() -> None:
        with History(config.location, config.provider) as history:
            history.fork(ref, branch=f"try-{next(numbers)}")

    (times,) = in_turns(_ROUNDS, fork)
    return times
