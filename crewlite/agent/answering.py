"""The step in which an agent answers messages without a task: kicked off alone, or asked by a coworker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from crewlite import durable, events, kinds
from crewlite.agent.agent import Agent
from crewlite.agent.guarding import Guard, accepted
from crewlite.agent.guardrail import rule_of
from crewlite.agent.knowing import announce, asked_about, asked_last, digests, showing
from crewlite.agent.loop import Answer
from crewlite.agent.opening import opened, refused
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.persona import Persona
from crewlite.agent.shape import Shape, wanted
from crewlite.durable import Step
from crewlite.events.family import FamilyEvents
from crewlite.lazy import lazy
from crewlite.llm.base import Message
from crewlite.step_parts import Policies

if TYPE_CHECKING:
    from crewlite.agent import reasoning
    from crewlite.knowledge.passages import Passage
else:  # only for agents that plan
    reasoning = lazy("crewlite.agent.reasoning")

_EVENTS = (
    events.LiteAgentExecutionStartedEvent,
    events.LiteAgentExecutionCompletedEvent,
    events.LiteAgentExecutionErrorEvent,
)


def answering(
    persona: Persona,
    messages: list[Message],
    shape: Shape | None = None,
    *,
    name: str | None = None,
    began: datetime | None = None,
    **more: Any,
) -> Step[LiteAgentOutput]:
    """Build the step in which an agent answers messages without a task.

    `began`: the time at which the run began; None takes that of the running step. `more`: further fields of the output.
    """
    agent = persona.agent
    opening = partial(opened, persona, shape=shape, title=f"agent {persona.role}", say=wanted(shape), began=began)
    passages = persona.known.passages(asked_last(messages))
    said = showing(messages, passages)
    job = opening(said)
    chain = [Guard(one, agent.guardrail_max_retries, job.title) for one in agent.guardrails]
    who = [persona.role, persona.goal, persona.backstory]

    def output(answer: Answer) -> LiteAgentOutput:
        return LiteAgentOutput(raw=answer.text, pydantic=answer.value, agent_role=persona.role, **more)

    async def act() -> LiteAgentOutput:
        recovery = durable.scope().recovery()
        now = opening(said, recovery=recovery) if recovery else job
        talk = list(now.messages)
        if persona.known:
            await announce(agent, persona.role, asked_last(messages), passages, None)
        if agent.plans:
            await reasoning.prepare(now, talk)
        return output(await accepted(now, talk, chain, output))

    def decode(data: Any) -> LiteAgentOutput:
        raw = data["raw"]
        return output(Answer(raw, shape.recorded(raw, f"agent {persona.role!r}") if shape else None))

    return Step(
        kind=kinds.AGENT,
        name=name or persona.role,
        work=act,
        question=[*who, messages, shape.schema if shape else None, *_more_asked(agent, passages)],
        events=FamilyEvents(
            agent,
            _EVENTS,
            {"agent_role": persona.role},
            of_start=lambda: {"tools": tuple(tool.name for tool in job.tools), "messages": job.messages},
            of_outcome=lambda result: {"output": result.raw, "usage": result.token_usage},
        ),
        encode=lambda result: {"raw": result.raw},
        decode=decode,
        with_usage=lambda result, usage: result.model_copy(update={"token_usage": usage, "own_usage": usage}),
        budgets=(agent.budget,),
        policies=Policies(
            own=agent.retries, inherits=True, inside=agent.failure_policy, refuses=partial(refused, job.tools)
        ),
        texts={"goal": persona.goal, "backstory": persona.backstory, **digests(passages)},
    )


def _more_asked(agent: Agent, passages: Sequence[Passage]) -> Iterator[dict[str, Any]]:
    """Yield what an agent is asked besides, if it is: its guardrails, and passages of what it knows."""
    asked: dict[str, Any] = {"guardrails": [rule_of(one) for one in agent.guardrails]} if agent.guardrails else {}
    asked |= {"knowledge": asked_about(passages)} if passages else {}
    if asked:
        yield asked
