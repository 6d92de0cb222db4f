"""Rebuild a crew from the record of its run, in which tasks name their agents by number and each other by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from crewlite.agent.agent import Agent
from crewlite.crew.crew import Crew
from crewlite.encoding.codec import JsonObject
from crewlite.runtime.kickoffs.facts import told_apart
from crewlite.runtime.kickoffs.rebuild import Draft, Found, Rebuild, find
from crewlite.runtime.kickoffs.request import Bind, FromCheckpoint
from crewlite.task.task import ConditionalTask, Task

C = TypeVar("C", bound=Crew)


def rebuilt(cls: type[C], source: FromCheckpoint, bind: Bind) -> C:
    """Return the crew, bound to its run. Raises what Crew.from_checkpoint raises."""
    found = find(source, "crew")
    agents, tasks = _listed(found, "agents"), _listed(found, "tasks")
    rebuild = Rebuild(found)
    crew = rebuild.draft(found.definition, cls, (), ("kind", "agents", "tasks", "manager", "manager_agent"))
    names = told_apart(str(fact.get("role")) for fact in agents)
    people = [rebuild.draft(fact, Agent, ("agents", name)) for fact, name in zip(agents, names, strict=True)]
    work = [
        rebuild.draft(fact, _kind(fact), ("tasks", _label(found, fact)), ("address", "agent", "context"))
        for fact in tasks
    ]
    rebuild.settle(bind)
    made = [draft.make() for draft in people]
    manager = _manager(found, made)
    staff = {"agents": [agent for agent in made if agent is not manager], "manager_agent": manager}
    return crew.make(tasks=_tasks(found, tasks, work, made), **staff).bound_to(found.config)


def _manager(found: Found, agents: Sequence[Agent]) -> Agent | None:
    number = found.definition.get("manager")
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < len(agents):
        raise found.damaged("its manager is none of its agents")
    return agents[number]


def _tasks(
    found: Found, facts: Sequence[JsonObject], drafts: Sequence[Draft[Task]], agents: Sequence[Agent]
) -> list[Task]:
    made: dict[str, Task] = {}
    for fact, draft in zip(facts, drafts, strict=True):
        address, number, context = fact["address"], fact.get("agent"), fact.get("context")
        listed = number is None or (type(number) is int and 0 <= number < len(agents))
        if not listed or address in made:
            raise found.damaged(f"it lists {address} twice, or without its agent")
        known = isinstance(context, list) and all(isinstance(other, str) and other in made for other in context)
        if context is not None and not known:
            raise found.damaged(f"{address} builds on a task that is not listed before it")
        agent = None if number is None else agents[number]
        others = None if context is None else [made[other] for other in context]
        made[address] = draft.make(agent=agent, context=others)
    return list(made.values())


def _listed(found: Found, name: str) -> list[JsonObject]:
    listed = found.definition.get(name)
    if not isinstance(listed, list) or not all(isinstance(fact, dict) for fact in listed):
        raise found.damaged(f"it has no list of {name}")
    return listed


def _kind(fact: JsonObject) -> type[Task]:
    """Return the class of a recorded task: ConditionalTask if it has a condition, else Task."""
    live = fact.get("live")
    return ConditionalTask if isinstance(live, dict) and "condition" in live else Task


def _label(found: Found, fact: JsonObject) -> str:
    """Return the name of a task in paths: its address without `task:`."""
    address = fact.get("address")
    if not isinstance(address, str):
        raise found.damaged("a task has no address")
    return address.removeprefix("task:")
