"""The scenes in crewlite."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from serving import seconds, serve, size, whole

from benchmarks.scenes import Kind, answering, crew_of, stored
from crewlite import History


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
            found.extend(history.places())

    return {"seconds": seconds(work), "found": whole(len(found), count)}


serve("crewlite", plain=plain, durable=durable, at_once=at_once, listing=listing)
