"""Which task of a crew answers to which recorded one: by name, else by description, else by order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from crewlite.errors import TaskGone
from crewlite.state.entry import Facts
from crewlite.task.task import Task


def described(tasks: Sequence[Task]) -> list[Facts]:
    """Tasks as a record knows them: plain data, with the address each will have."""
    counts: dict[str, int] = {}
    return [_describe(task, _address(task, counts)) for task in tasks]


def rebound(recorded: Sequence[Facts], tasks: Sequence[Task], finished: frozenset[str], run_id: str) -> list[Facts]:
    """Tasks as the record should know them from now on; each keeps the address it was recorded under.

    Raises TaskGone if a finished task has nobody to answer to it.
    """
    addresses = match(recorded, tasks)
    gone = [
        fact["address"]
        for fact in recorded
        if fact["address"] in finished and fact["address"] not in addresses.values()
    ]
    if gone:
        raise TaskGone(run_id, gone)
    taken, counts = {fact["address"] for fact in recorded}, dict[str, int]()
    result = []
    for task in tasks:
        address = addresses.get(task)
        while address is None or (task not in addresses and address in taken):
            address = _address(task, counts)
        result.append(_describe(task, address))
    return result


def match(recorded: Sequence[Facts], tasks: Sequence[Task]) -> dict[Task, str]:
    """The recorded address of each task that answers to one."""
    found: dict[Task, str] = {}
    left = {fact["address"]: fact for fact in recorded}
    for field in ("name", "description"):
        waiting: dict[str, deque[str]] = {}
        for address, fact in left.items():
            if key := fact.get(field):
                waiting.setdefault(key, deque()).append(address)
        for task in tasks:
            if task not in found and (same := waiting.get(getattr(task, field))):
                found[task] = same.popleft()
                del left[found[task]]
    return found | dict(zip((task for task in tasks if task not in found), left, strict=False))


def _address(task: Task, counts: dict[str, int]) -> str:
    stem = f"task:{task.name}" if task.name else "task"
    counts[stem] = counts.get(stem, 0) + 1
    return stem if task.name and counts[stem] == 1 else f"{stem}#{counts[stem]}"


def _describe(task: Task, address: str) -> Facts:
    facts: Facts = {"address": address, "description": task.description}
    if task.name:
        facts["name"] = task.name
    return facts
