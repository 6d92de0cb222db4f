"""The scenes in DBOS: a workflow of steps. A step is a bare function; there is no workflow without a database."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from serving import ANSWER, alone, seconds, serve, size, whole

_at: list[str] = []
_ends_at: list[int] = []
_written: list[int] = []


def _write(number: int) -> str:
    if number in _ends_at:
        os._exit(9)
    _written.append(number)
    return f"{number:06d} {ANSWER}"[:200]


_step = DBOS.step()(_write)


@DBOS.workflow()
def _report(steps: int) -> int:
    return len([_step(number) for number in range(steps)])


def _bare(steps: int) -> int:
    return len([_write(number) for number in range(steps)])


@DBOS.step()
async def _wait(number: int, delay: float) -> str:
    await asyncio.sleep(delay)
    return f"{number:06d} {ANSWER}"[:200]


@DBOS.workflow()
async def _fan_out(count: int, delay: float) -> int:
    return len(await asyncio.gather(*(_wait(number, delay) for number in range(count))))


def durable(kind: str, steps: int, directory: str) -> dict[str, Any]:
    _launched(directory)
    name, before = uuid.uuid4().hex, size(directory)
    without, with_store = seconds(lambda: _bare(steps)), seconds(lambda: _run(steps, name))
    bytes_added = size(directory) - before
    return {"seconds": with_store - without, "bytes": bytes_added, "found": len(DBOS.list_workflow_steps(name))}


def listing(kind: str, count: int, directory: str) -> dict[str, Any]:
    _launched(directory)
    _run(count, "long")  # its stored result from the second time on
    found: list[Any] = []
    took = seconds(lambda: found.extend(DBOS.list_workflow_steps("long")))
    return {"seconds": took, "found": whole(len(found), count)}


def steps(kind: str, steps: int, directory: str) -> dict[str, Any]:
    _launched(directory)
    found: list[int] = []
    took = seconds(lambda: found.append(_report(steps)))
    return {"seconds": took, "found": whole(found[0], steps)}


def resumed(kind: str, steps: int, directory: str) -> dict[str, Any]:
    name = uuid.uuid4().hex
    alone("cut", steps=steps, directory=directory, name=name)
    return alone("go_on", steps=steps, directory=directory, name=name)


def cut(steps: int, directory: str, name: str) -> dict[str, Any]:
    _launched(directory)
    _ends_at.append(steps // 2)
    return {"broken": _run(steps, name)}


def go_on(steps: int, directory: str, name: str) -> dict[str, Any]:
    def work() -> None:
        _launched(directory)  # goes on with all that was cut
        whole(DBOS.retrieve_workflow(name).get_result(polling_interval_sec=0.001), steps)

    took = seconds(work)
    DBOS.destroy()
    return {"seconds": took, "found": whole(len(_written), steps - steps // 2)}


def mapped(kind: str, count: int, delay: float, directory: str) -> dict[str, Any]:
    _launched(directory)
    return {"seconds": seconds(lambda: whole(asyncio.run(_fan_out(count, delay)), count))}


def _run(steps: int, name: str) -> None:
    with SetWorkflowID(name):
        _report(steps)


def _launched(directory: str) -> None:
    """Start DBOS on a database in `directory`, unless it runs there already."""
    if directory in _at:
        return
    config = DBOSConfig(
        name="bench",
        system_database_url=f"sqlite:///{Path(directory) / 'store.db'}",
        log_level="ERROR",
        run_admin_server=False,
        enable_otlp=False,
    )
    DBOS(config=config)
    DBOS.launch()
    _at.append(directory)


serve("dbos", durable=durable, listing=listing, steps=steps, resumed=resumed, cut=cut, go_on=go_on, mapped=mapped)
