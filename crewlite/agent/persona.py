"""An agent with its model: a Worker, which becomes a Persona when the inputs of a kickoff fill in its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crewlite.agent.agent import Agent
from crewlite.agent.input_files import FILES, as_files
from crewlite.agent.knowing import NOTHING, Known
from crewlite.budget import Budget
from crewlite.llm.base import BaseLLM
from crewlite.texts import templates


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """An agent, its model, and the callback for its steps."""

    agent: Agent
    llm: BaseLLM
    budget: Budget
    """That of the agent, which is the same for all its tasks."""
    known: Known
    """What the agent and its crew know."""
    step_callback: Callable[[Any], Any] | None = None
    suggestions: tuple[str, ...] = ()
    """What the agent has learned in a training. It is added to the backstory, so it is part of what each task asks."""


@dataclass(frozen=True, slots=True)
class Persona:
    """An agent at work: its model, and its texts filled in."""

    agent: Agent
    llm: BaseLLM
    role: str
    goal: str
    backstory: str
    known: Known = NOTHING
    step_callback: Callable[[Any], Any] | None = None


class Filling:
    """The inputs of one kickoff, which fill in the texts of its tasks and agents: those of each agent once."""

    def __init__(self, inputs: Mapping[str, Any], *, known: bool = True) -> None:
        """`known`: whether these are all inputs; if not, placeholders are left in."""
        self.inputs, self._known, self.files = inputs, known, as_files(inputs.get(FILES)) or {}
        self._personas: dict[Worker, Persona] = {}

    def text(self, text: str, where: str) -> str:
        """Fill in the placeholders of a text. Raises MissingInput, which says `where` the text is."""
        return templates.fill(text, self.inputs, where=where) if self._known else text

    def persona(self, worker: Worker) -> Persona:
        """Return a worker with its texts filled in. Raises MissingInput."""
        if worker not in self._personas:
            agent, where = worker.agent, f"Agent {worker.agent.role!r}"
            backstory, role, goal = (self.text(text, where) for text in (agent.backstory, agent.role, agent.goal))
            taught = _taught(backstory, worker.suggestions)
            self._personas[worker] = Persona(agent, worker.llm, role, goal, taught, worker.known, worker.step_callback)
        return self._personas[worker]


def _taught(backstory: str, suggestions: Sequence[str]) -> str:
    if not suggestions:
        return backstory
    lines = "\n".join(f"- {one}" for one in suggestions)
    return f"{backstory}\n\nYou have been trained. Always follow what you have learned:\n{lines}".strip()
