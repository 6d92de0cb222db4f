"""An agent with its model: a Worker, which becomes a Persona when its texts are filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crewlite.agent.agent import Agent
from crewlite.llm.base import BaseLLM


@dataclass(frozen=True, slots=True)
class Worker:
    """An agent, its model, and the callback for its steps."""

    agent: Agent
    llm: BaseLLM
    step_callback: Callable[[Any], Any] | None = None
    suggestions: tuple[str, ...] = ()
    """What the agent has learned in a training. It is added to the backstory, so it is part of what each task asks."""

    def filled(self, fill: Callable[[str, str], str]) -> Persona:
        """Fill in the texts of the agent. `fill` gets a text and the name of its field, and returns the filled text."""
        agent, where = self.agent, f"Agent {self.agent.role!r}"
        backstory = _taught(fill(agent.backstory, where), self.suggestions)
        role, goal = fill(agent.role, where), fill(agent.goal, where)
        return Persona(agent, self.llm, role, goal, backstory, self.step_callback)


@dataclass(frozen=True, slots=True)
class Persona:
    """An agent at work: its model, and its texts filled in."""

    agent: Agent
    llm: BaseLLM
    role: str
    goal: str
    backstory: str
    step_callback: Callable[[Any], Any] | None = None


def _taught(backstory: str, suggestions: Sequence[str]) -> str:
    if not suggestions:
        return backstory
    lines = "\n".join(f"- {one}" for one in suggestions)
    return f"{backstory}\n\nYou have been trained. Always follow what you have learned:\n{lines}".strip()
