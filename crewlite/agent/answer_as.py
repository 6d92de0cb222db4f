"""Have a model answer in the form of a pydantic class, in a role that crewlite gives it, as a judge or a planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crewlite.agent.agent import Agent
from crewlite.agent.loop import Work, work
from crewlite.agent.persona import Persona
from crewlite.agent.shape import Shape
from crewlite.llm.base import BaseLLM, Message

_REPLIES = 5  # that an answer may take


async def answer_as(
    shape: Shape, llm: BaseLLM, messages: Sequence[Message], *, role: str, title: str, verbose: bool
) -> Any:
    """Return the answer of the model as an instance of the class of `shape`. `title` names the work in errors.

    The messages tell the model of the schema. Raises MaxIterations, OutputInvalid, and what the model raises.
    """
    agent = Agent(role=role, goal=title, max_iter=_REPLIES, verbose=verbose)
    persona = Persona(agent, llm, agent.role, agent.goal, agent.backstory)
    answer = await work(Work(persona, tuple(messages), shape=shape, title=title))
    assert isinstance(answer.value, shape.model)
    return answer.value
