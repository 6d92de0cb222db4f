"""The tools with which an agent delegates work to coworkers, or asks them a question.

The coworker answers in a step inside the tool call, so a run that was killed meanwhile resumes inside that. The
coworker has only its own tools, neither those of the delegating agent nor these, so delegation grants no rights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from crewlite import durable
from crewlite.agent.answering import answering
from crewlite.agent.coworkers import ASK, DELEGATE, plain_role
from crewlite.agent.persona import Persona
from crewlite.agent.shape import PROMPTS
from crewlite.errors import GuardrailFailed, MaxIterations, OutputInvalid
from crewlite.texts import templates
from crewlite.tools.base import BaseTool
from crewlite.tools.naming import address_name


class DelegatedWork(BaseModel):
    """The arguments of "Delegate work to coworker"."""

    task: str = Field(description="The task to be done")
    context: str = Field(default="", description="All that the coworker has to know to do it: it sees nothing else")
    coworker: str = Field(description="The role of the coworker")


class AskedQuestion(BaseModel):
    """The arguments of "Ask question to coworker"."""

    question: str = Field(description="The question")
    context: str = Field(default="", description="All that the coworker has to know to answer: it sees nothing else")
    coworker: str = Field(description="The role of the coworker")


def delegation_tools(coworkers: Sequence[Persona]) -> tuple[BaseTool, ...]:
    """Return the two delegation tools of an agent with these coworkers."""
    roles = ", ".join(one.role for one in coworkers)
    delegate = _ToCoworker(
        name=DELEGATE,
        description=f"Have a coworker do a task, and get what comes of it. Coworkers: {roles}",
        args_schema=DelegatedWork,
        wish="task",
        coworkers=tuple(coworkers),
    )
    question = _ToCoworker(
        name=ASK,
        description=f"Ask a coworker a question, and get the answer. Coworkers: {roles}",
        args_schema=AskedQuestion,
        wish="question",
        coworkers=tuple(coworkers),
    )
    return delegate, question


class NoSuchCoworker(ValueError):
    """No coworker has this role."""


class _ToCoworker(BaseTool):
    """Passes a request to a coworker: the argument named `wish`, which is "task" or "question"."""

    wish: str
    coworkers: tuple[Persona, ...]

    def is_told_of(self, error: Exception) -> bool:
        """Return whether the model is told of an error: only if other arguments may avoid it. Others fail the task."""
        return isinstance(error, NoSuchCoworker | MaxIterations | OutputInvalid | GuardrailFailed)

    async def _arun(self, **arguments: Any) -> str:
        persona = _found(self.coworkers, arguments["coworker"])
        message = templates.render(PROMPTS, "delegated.j2", wish=arguments[self.wish], context=arguments["context"])
        step = answering(persona, [{"role": "user", "content": message}], name=address_name(persona.role))
        step = dataclasses.replace(step, checkpoint=persona.agent.checkpoint)
        return (await durable.scope().step(step)).raw


def _found(coworkers: Sequence[Persona], role: str) -> Persona:
    """Return the coworker with this role, ignoring quotes and case. Raises NoSuchCoworker."""
    for one in coworkers:
        if plain_role(one.role) == plain_role(role):
            return one
    known = ", ".join(one.role for one in coworkers)
    raise NoSuchCoworker(f"there is no coworker {role!r}; coworkers are: {known}")
