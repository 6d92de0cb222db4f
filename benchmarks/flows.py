"""Flows: what a step or a method costs beyond its own work, and how close many of them come to the clock.

Steps and methods are coroutines that do next to nothing. Bare is a flow without a store. With one, as for crews: see
durable.py. The resumed flow fails behind 5,000 steps, and is kicked off again in the same process.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.durable import against_bare
from benchmarks.measure import Row, in_turns, median_ms, scratch, seconds
from benchmarks.scenes import KINDS, Kind, stored
from crewlite import CheckpointConfig
from crewlite.flow import Flow, FlowFunction, flow, listen, or_, router, start, step

_STEPS, _MANY, _TURNS = 100, 5000, 500
_WIDTH, _MAPPED, _WAIT = 100, 1000, 0.010  # seconds
_ROUNDS = 5


@step
async def number(n: int) -> int:
    return n


@step(max_concurrency=_WIDTH)
async def wait(n: int) -> int:
    await asyncio.sleep(_WAIT)
    return n


def measure() -> Iterator[Row]:
    counting = _counting(_MANY)
    (times,) = in_turns(_ROUNDS, counting.kickoff)
    yield Row("framework time per step, 5,000 steps", median_ms(times) / _MANY, "ms", 0.15)
    yield _flatness()
    yield from _methods()
    (times,) = in_turns(_ROUNDS, _mapping().kickoff)
    ideal = _MAPPED / _WIDTH * _WAIT
    yield Row("1,000 mapped steps of 10 ms, 100 at a time", statistics.median(times) / ideal, "x", 1.5, "of ideal")
    for kind in KINDS:
        directory = scratch()
        bare, durable = _counting(_STEPS), _counting(_STEPS, stored(kind, directory, "runs", on_events=True))
        yield against_bare(kind, directory, bare.kickoff, durable.kickoff)
        yield _resume(kind, directory)
        directory = scratch()
        setting = stored(kind, directory, "runs", on_events=True)
        cycles = (Turns(initial_state={"turns": _STEPS // 2}, checkpoint=at) for at in (None, setting))
        row = against_bare(kind, directory, *(cycle.kickoff for cycle in cycles))
        yield replace(row, measure=f"{row.measure}, methods")


class Turns(Flow[Any]):
    """A cycle of two methods."""

    max_method_calls = _MANY

    @start()
    async def begin(self) -> None:
        self.state["left"] = self.initial_state["turns"]

    @listen(or_(begin, "again"))
    async def turn(self) -> None:
        self.state["left"] -= 1

    @router(turn, emit=["again", "done"])
    async def check(self) -> str:
        return "again" if self.state["left"] else "done"


def _methods() -> Iterator[Row]:
    short, long = (Turns(initial_state={"turns": turns}) for turns in (50, _TURNS))
    few, many = in_turns(_ROUNDS, short.kickoff, long.kickoff)
    per_method = median_ms(many) / (2 * _TURNS)
    yield Row("framework time per method, a cycle of 1,000", per_method, "ms", 0.2)
    yield Row("a method in a cycle of 1,000", per_method / (median_ms(few) / 100), "x", 1.3, "of one in a cycle of 100")


def _counting(
    steps: int, checkpoint: CheckpointConfig | None = None, moments: list[float] | None = None
) -> FlowFunction:
    @flow(name="counting", checkpoint=checkpoint)
    async def counting(fails: bool = False) -> int:
        total = 0
        for n in range(steps):
            total += await number(n)
            if moments is not None:
                moments.append(time.perf_counter())
        if fails and not _mended:
            raise RuntimeError("the power went out")
        return total

    return counting


_mended: list[bool] = []


def _mapping() -> FlowFunction:
    @flow(name="mapping")
    async def mapping() -> int:
        return sum(await wait.map(range(_MAPPED)))

    return mapping


def _flatness() -> Row:
    found = []
    for _ in range(_ROUNDS):
        moments: list[float] = []
        _counting(_MANY, moments=moments).kickoff()
        found.append((moments[-1] - moments[-501]) / (moments[500] - moments[0]))
    return Row("last 500 of 5,000 steps against the first 500", statistics.median(found), "x", 1.2)


def _resume(kind: Kind, directory: Path) -> Row:
    times = []
    for round_ in range(_ROUNDS):
        _mended.clear()
        counting = _counting(_MANY, stored(kind, directory, f"resume-{round_}", durability="async"))
        with contextlib.suppress(RuntimeError):
            counting.kickoff(fails=True, run_id="long")
        _mended.append(True)
        times.append(seconds(lambda counting=counting: counting.kickoff(run_id="long")))
    return Row(f"{kind}: resume of 5,000 finished steps", median_ms(times), "ms", 400)
