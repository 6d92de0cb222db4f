"""The scenes in crewlite."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any

from serving import ANSWER, alone, seconds, serve, size, whole

from benchmarks.scenes import Kind, answering, crew_of, stored
from crewlite import History
from crewlite.flow import Flow, FlowFunction, flow, listen, start, step


def plain(steps: int) -> dict[str, Any]:
    return {"seconds": seconds(crew_of(steps, answering()).kickoff)}


def durable(kind: Kind, steps: int, directory: str) -> dict[str, Any]:
    config = stored(kind, Path(directory))
    bare, crew, runs = crew_of(steps, answering()), crew_of(steps, answering(), checkpoint=config), []
    without, before = seconds(bare.kickoff), size(directory)
    with_store = seconds(lambda: runs.append(crew.kickoff().run_id))
    after = size(directory)
    with History(config.location, config.provider) as history:
        found = len(history.run(runs[0]).checkpoints())
    return {"seconds": with_store - without, "bytes": after - before, "found": found}


def at_once(count: int, delay: float) -> dict[str, Any]:
    crews = [crew_of(1, answering(delay=delay)) for _ in range(count)]

    async def all_of_them() -> None:
        await asyncio.gather(*(crew.akickoff() for crew in crews))

    return {"seconds": seconds(lambda: asyncio.run(all_of_them()))}


def listing(kind: Kind, count: int, directory: str) -> dict[str, Any]:
    config, found = stored(kind, Path(directory)), []
    crew_of(count, answering(), checkpoint=config).kickoff(run_id="long")  # its stored result from the second time on

    def work() -> None:
        with History(config.location, config.provider) as history:
            found.extend(history.checkpoints())

    return {"seconds": seconds(work), "found": whole(len(found), count)}


def steps(kind: Kind, steps: int, directory: str) -> dict[str, Any]:
    report, found = _report(kind, directory), []
    took = seconds(lambda: found.append(report.kickoff(steps)))
    return {"seconds": took, "found": whole(found[0], steps)}


def resumed(kind: Kind, steps: int, directory: str) -> dict[str, Any]:
    run_id = uuid.uuid4().hex
    alone("cut", kind=kind, steps=steps, directory=directory, run_id=run_id)
    return alone("go_on", kind=kind, steps=steps, directory=directory, run_id=run_id)


def cut(kind: Kind, steps: int, directory: str, run_id: str) -> dict[str, Any]:
    _ends_at.append(steps // 2)
    return {"broken": _report(kind, directory).kickoff(steps, run_id=run_id)}


def go_on(kind: Kind, steps: int, directory: str, run_id: str) -> dict[str, Any]:
    took = seconds(lambda: whole(_report(kind, directory).kickoff(steps, run_id=run_id), steps))
    return {"seconds": took, "found": whole(len(_written), steps - steps // 2)}


def mapped(kind: Kind, count: int, delay: float, directory: str) -> dict[str, Any]:
    @flow(checkpoint=stored(kind, Path(directory), on_events=True))
    async def fan_out() -> int:
        return len(await _wait.map(range(count), [delay] * count))

    return {"seconds": seconds(lambda: whole(fan_out.kickoff(), count))}


def methods(steps: int) -> dict[str, Any]:
    return _played(_chain(steps)(), steps)


def stored_methods(kind: Kind, steps: int, directory: str) -> dict[str, Any]:
    return _played(_chain(steps)(checkpoint=stored(kind, Path(directory), on_events=True)), steps)


def _played(made: Flow[Any], steps: int) -> dict[str, Any]:
    took = seconds(made.kickoff)
    return {"seconds": took, "found": whole(len(made.state["messages"]), steps)}


_ends_at: list[int] = []
_written: list[int] = []


@step
def _write(number: int) -> str:
    if number in _ends_at:
        os._exit(9)
    _written.append(number)
    return f"{number:06d} {ANSWER}"[:200]


@step
async def _wait(number: int, delay: float) -> str:
    await asyncio.sleep(delay)
    return f"{number:06d} {ANSWER}"[:200]


def _report(kind: Kind, directory: str) -> FlowFunction[..., int]:
    @flow(checkpoint=stored(kind, Path(directory), on_events=True))
    def report(steps: int) -> int:
        return len([_write(number) for number in range(steps)])

    return report


def _chain(steps: int) -> type[Flow[Any]]:
    """A flow of methods, each of which starts the next."""

    def method(number: int) -> Any:
        def write(self: Flow[Any]) -> None:
            self.state["messages"].append(f"{number:06d} {ANSWER}"[:200])

        write.__name__ = f"write_{number}"
        return (listen(f"write_{number - 1}") if number else start())(write)

    begun: dict[str, Any] = {"initial_state": {"messages": []}}
    return type("Chain", (Flow,), begun | {f"write_{number}": method(number) for number in range(steps)})


serve(
    "crewlite",
    plain=plain,
    durable=durable,
    at_once=at_once,
    listing=listing,
    steps=steps,
    resumed=resumed,
    cut=cut,
    go_on=go_on,
    mapped=mapped,
    methods=methods,
    stored_methods=stored_methods,
)
