"""The scenes in DBOS: a workflow of steps. A step is a bare function; there is no workflow without a database."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID
from serving import ANSWER, seconds, serve, size, whole

_at: list[str] = []


def _write(number: int) -> str:
    return f"{number:06d} {ANSWER}"[:200]


_step = DBOS.step()(_write)


@DBOS.workflow()
def _report(steps: int) -> int:
    return len([_step(number) for number in range(steps)])


def _bare(steps: int) -> int:
    return len([_write(number) for number in range(steps)])


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


serve("dbos", durable=durable, listing=listing)
