"""Which recorded answers of a crew's tasks are to other questions than the tasks ask now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from crewlite import codec, templates
from crewlite.agent.agent import Agent
from crewlite.crew.binding import match
from crewlite.errors import MissingInput
from crewlite.llm.base import BaseLLM
from crewlite.runtime.questions import Comparison, Drifted, have_in_common
from crewlite.state.record import Record
from crewlite.task.output import TaskOutput
from crewlite.task.step import Filled, Given
from crewlite.task.task import Task

Cast = Sequence[tuple[Task, Agent, BaseLLM]]
"""The tasks of a crew in order, each with its agent and its model."""


def compare(record: Record, cast: Cast, inputs: Mapping[str, Any]) -> Comparison:
    """The questions that a crew asks now, beside those that its run answered."""
    recorded = record.run["definition"]["tasks"]
    addresses = match(recorded, [task for task, _, _ in cast])
    order = [addresses.get(task, "") for task, _, _ in cast]
    drifted = tuple(_drifted(record, cast, inputs, addresses))
    return Comparison(drifted, order == [fact["address"] for fact in recorded], frozenset(addresses.values()))


def shares(record: Record, cast: Cast, inputs: Mapping[str, Any], mask: Callable[[str], str]) -> bool:
    """Whether a crew has a task in common with what was recorded, masked: a name, or a question."""
    known = codec.decode(record.run["inputs"])
    recorded = [
        (fact.get("name"), fact["description"], _filled(fact["description"], known))
        for fact in record.run["definition"]["tasks"]
    ]
    now = [(task.name, mask(task.description), mask(_filled(task.description, inputs))) for task, _, _ in cast]
    return have_in_common(recorded, now)


def kept(record: Record, address: str, filled: Filled, context: Sequence[Given]) -> Drifted | None:
    """How a finished task is asked something else than it answered; None if it is not."""
    outcome = record.outcomes.get(address)
    if outcome is None or outcome.edited or outcome.fingerprint == codec.digest(["task", filled.question(context)]):
        return None
    return Drifted(address, outcome.question or _recorded_texts(record, address), filled.texts)


def answered(output: TaskOutput, drifted: Drifted | None) -> TaskOutput:
    """A task's output with the texts that it answers."""
    return output.model_copy(update=dict(drifted.answered)) if drifted else output


def _drifted(record: Record, cast: Cast, inputs: Mapping[str, Any], addresses: Mapping[Task, str]) -> Iterator[Drifted]:
    done: dict[Task, Given] = {}
    for task, agent, _ in cast:
        address = addresses.get(task, "")
        filled = Filled.of(task, agent, inputs)
        context = [done[other] for other in (done if task.context is None else task.context)]
        if drifted := kept(record, address, filled, context) if address else None:
            yield drifted
        text = record.value(address)["raw"] if address in record.outcomes and address else ""
        done[task] = Given(address, task.title, text)


def _recorded_texts(record: Record, address: str) -> dict[str, str]:
    """The texts of a task whose outcome was recorded without them, from the definition of that time."""
    for fact in record.definition_of(address).get("tasks", ()):
        if fact["address"] == address:
            inputs = codec.decode(record.inputs_of(address))
            texts = {name: fact.get(name) for name in ("description", "expected_output")}
            return {name: _filled(text, inputs) for name, text in texts.items() if isinstance(text, str)}
    return {}


def _filled(text: str, inputs: Mapping[str, Any]) -> str:
    try:
        return templates.fill(text, inputs, where="")
    except MissingInput:
        return text
