"""Match the tasks of a crew to recorded tasks, and compare what they ask now with what the recorded ones were asked.

Tasks are matched by name, else by description, else by order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crewlite.agent.agent import Agent
from crewlite.agent.input_files import read
from crewlite.crew.order import needs_of
from crewlite.encoding import codec
from crewlite.encoding.codec import JsonObject
from crewlite.errors import MissingInput, TaskGone
from crewlite.lazy import lazy
from crewlite.runtime.kickoffs.facts import facts_of
from crewlite.runtime.steps.questions import Comparison, Drifted, drifted, have_in_common
from crewlite.state.format.earlier import definition_at, inputs_at
from crewlite.state.format.record import Record
from crewlite.task.assignment import ContextItem, FilledTask
from crewlite.task.task import ConditionalTask, Task
from crewlite.texts import templates

if TYPE_CHECKING:
    from crewlite.crew import planning
else:  # only for crews that plan
    planning = lazy("crewlite.crew.planning")


def described(tasks: Sequence[Task], agents: Sequence[Agent]) -> list[JsonObject]:
    """Return tasks as plain data for the record, each with the address it will have and the number of its agent."""
    counts: dict[str, int] = {}
    return _describe({task: _address(task, counts) for task in tasks}, agents)


def rebound(
    recorded: Sequence[JsonObject],
    tasks: Sequence[Task],
    agents: Sequence[Agent],
    finished: frozenset[str],
    run_id: str,
) -> list[JsonObject]:
    """Return tasks as plain data for the record of a resumed run: each keeps the address it was recorded under.

    Raises TaskGone if no task of the crew matches a finished one.
    """
    answering = match(recorded, tasks)
    _check_gone(recorded, answering, finished, run_id)
    taken, counts = {fact["address"] for fact in recorded}, dict[str, int]()
    addresses: dict[Task, str] = {}
    for task in tasks:
        address = answering.get(task)
        while address is None or (task not in answering and address in taken):
            address = _address(task, counts)
        addresses[task] = address
    return _describe(addresses, agents)


def _check_gone(
    recorded: Sequence[JsonObject], answering: Mapping[Task, str], finished: Collection[str], run_id: str
) -> None:
    known = set(answering.values())
    if gone := [fact["address"] for fact in recorded if fact["address"] in finished and fact["address"] not in known]:
        raise TaskGone(run_id, gone)


def match(recorded: Sequence[JsonObject], tasks: Sequence[Task]) -> dict[Task, str]:
    """Return the recorded address of each task that matches a recorded one."""
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


def compare(record: Record, filled: Sequence[FilledTask]) -> Comparison:
    """Compare what the tasks of a crew ask now with what the finished tasks of its run were asked. Raises TaskGone."""
    recorded = record.run["definition"]["tasks"]
    addresses = match(recorded, [one.task for one in filled])
    _check_gone(recorded, addresses, record.outcomes, record.run["run_id"])
    order = [addresses.get(one.task, "") for one in filled]
    same_steps = order == [fact["address"] for fact in recorded]
    return Comparison(tuple(_drifted(record, filled, addresses)), same_steps, frozenset(addresses.values()))


def shares(record: Record, tasks: Sequence[Task], inputs: Mapping[str, Any], mask: Callable[[str], str]) -> bool:
    """Return whether these tasks have a name or a description in common with the record, where texts are masked.

    They may be other tasks if nothing is recorded that could be taken for theirs.
    """
    if not (record.outcomes or record.intents or record.answers):
        return True
    facts, known = record.run["definition"]["tasks"], codec.decode(record.run["inputs"])
    recorded = [(fact.get("name"), fact["description"]) for fact in facts]
    if have_in_common(recorded, [(mask(task.name or ""), mask(task.description)) for task in tasks]):
        return True
    texts = [(text, _filled(text, known)) for _, text in recorded]
    return have_in_common(texts, [(mask(one.description), mask(_filled(one.description, inputs))) for one in tasks])


def drifted_task(record: Record, address: str, filled: FilledTask, sources: Sequence[ContextItem]) -> Drifted | None:
    """Compare what a finished task is asked now with what it was asked; return None if both are the same."""
    files = read(filled.input_files)
    fingerprint = codec.digest(["task", filled.question(sources, files)])
    return drifted(record, address, fingerprint, filled.texts(files), lambda: _recorded_texts(record, address))


def _drifted(record: Record, tasks: Sequence[FilledTask], addresses: Mapping[Task, str]) -> Iterator[Drifted]:
    done: list[ContextItem] = []
    plan = planning.recorded_plan(record)
    for number, (filled, needs) in enumerate(zip(tasks, needs_of([one.task for one in tasks]), strict=True)):
        address = addresses.get(filled.task, "")
        sources = [*map(done.__getitem__, needs.sources), *planning.planned(plan, number)]
        if found := drifted_task(record, address, filled, sources) if address else None:
            yield found
        text = record.value(address)["raw"] if address in record.outcomes and address else ""
        done.append(ContextItem(address, filled.title, text))


def _recorded_texts(record: Record, address: str) -> dict[str, str]:
    """Return the texts that a finished task was asked, from the definition recorded at that time.

    Its outcome, recorded by an early release, does not hold them.
    """
    for fact in definition_at(record, address).get("tasks", ()):
        if fact["address"] == address:
            inputs = codec.decode(inputs_at(record, address))
            texts = {name: fact.get(name) for name in ("description", "expected_output")}
            return {name: _filled(text, inputs) for name, text in texts.items() if isinstance(text, str)}
    return {}


def _filled(text: str, inputs: Mapping[str, Any]) -> str:
    try:
        return templates.fill(text, inputs, where="")
    except MissingInput:
        return text


def _address(task: Task, counts: dict[str, int]) -> str:
    stem = f"task:{name}" if (name := task.address_name) else "task"
    counts[stem] = counts.get(stem, 0) + 1
    return stem if task.name and counts[stem] == 1 else f"{stem}#{counts[stem]}"


def _describe(addresses: Mapping[Task, str], agents: Sequence[Agent]) -> list[JsonObject]:
    numbers = {agent: number for number, agent in enumerate(agents)}
    facts = []
    for task, address in addresses.items():
        base = ConditionalTask if isinstance(task, ConditionalTask) else Task
        agent = None if task.agent is None else numbers[task.agent]
        fact = {"address": address, **facts_of(task, base, ("agent", "context")), "agent": agent}
        context = {} if task.context is None else {"context": [addresses[other] for other in task.context]}
        facts.append(fact | context)
    return facts
