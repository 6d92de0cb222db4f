"""Which task of a crew answers to which recorded one: by name, else by description, else by order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from crewlite.agent.agent import Agent
from crewlite.codec import JsonObject
from crewlite.errors import TaskGone
from crewlite.runtime.facts import facts_of
from crewlite.task.task import Task


def described(tasks: Sequence[Task], agents: Sequence[Agent]) -> list[JsonObject]:
    """Tasks as a record knows them: plain data, with the address each will have, and the number of its agent."""
    counts: dict[str, int] = {}
    return _describe({task: _address(task, counts) for task in tasks}, agents)


def rebound(
    recorded: Sequence[JsonObject],
    tasks: Sequence[Task],
    agents: Sequence[Agent],
    finished: frozenset[str],
    run_id: str,
) -> list[JsonObject]:
    """Tasks as the record should know them from now on; each keeps the address it was recorded under.

    Raises TaskGone if a finished task has nobody to answer to it.
    """
    answering = match(recorded, tasks)
    gone = [
        fact["address"]
        for fact in recorded
        if fact["address"] in finished and fact["address"] not in answering.values()
    ]
    if gone:
        raise TaskGone(run_id, gone)
    taken, counts = {fact["address"] for fact in recorded}, dict[str, int]()
    addresses: dict[Task, str] = {}
    for task in tasks:
        address = answering.get(task)
        while address is None or (task not in answering and address in taken):
            address = _address(task, counts)
        addresses[task] = address
    return _describe(addresses, agents)


def match(recorded: Sequence[JsonObject], tasks: Sequence[Task]) -> dict[Task, str]:
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


def _describe(addresses: Mapping[Task, str], agents: Sequence[Agent]) -> list[JsonObject]:
    numbers = {agent: number for number, agent in enumerate(agents)}
    facts = []
    for task, address in addresses.items():
        assert task.agent
        fact = {"address": address, **facts_of(task, Task, ("agent", "context")), "agent": numbers[task.agent]}
        context = {} if task.context is None else {"context": [addresses[other] for other in task.context]}
        facts.append(fact | context)
    return facts
