"""An agent on a model, ready to be asked; filled in, who it is told it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crewlite import events, kinds
from crewlite.agent.agent import Agent
from crewlite.agent.loop import Answer, Work, system_prompt, work
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.shape import Shape, wanted
from crewlite.durable import Stamp, Step
from crewlite.llm.base import BaseLLM, Message


@dataclass(frozen=True, slots=True)
class Worker:
    """An agent, its model, and who is told of its steps."""

    agent: Agent
    llm: BaseLLM
    step_callback: Callable[[Any], Any] | None = None

    def filled(self, fill: Callable[[str, str], str]) -> Persona:
        """The worker with its texts filled in; `fill` is given a text, and where it stands."""
        agent, where = self.agent, f"Agent {self.agent.role!r}"
        return Persona(self, fill(agent.role, where), fill(agent.goal, where), fill(agent.backstory, where))


@dataclass(frozen=True, slots=True)
class Persona:
    """A worker with its texts filled in."""

    worker: Worker
    role: str
    goal: str
    backstory: str

    @property
    def agent(self) -> Agent:
        """The definition."""
        return self.worker.agent

    def answering(
        self, messages: list[Message], shape: Shape | None = None, *, name: str | None = None, **more: Any
    ) -> Step[LiteAgentOutput]:
        """The step in which it answers messages, without a task. `more` goes to its output."""
        agent = self.agent
        job = self._work(messages, shape)

        def output(answer: Answer) -> LiteAgentOutput:
            return LiteAgentOutput(raw=answer.text, pydantic=answer.value, agent_role=self.role, **more)

        async def act() -> LiteAgentOutput:
            return output(await work(job))

        def decode(data: Any) -> LiteAgentOutput:
            raw = data["raw"]
            return output(Answer(raw, shape.recorded(raw, f"agent {self.role!r}") if shape else None))

        return Step(
            kind=kinds.AGENT,
            name=name or self.role,
            work=act,
            question=[self.role, self.goal, self.backstory, messages, shape.schema if shape else None],
            voice=_Voice(agent, self.role, job),
            encode=lambda result: {"raw": result.raw},
            decode=decode,
            with_usage=lambda result, usage: result.model_copy(update={"token_usage": usage}),
            timeout=agent.max_execution_time,
            inherits=True,
            texts={"goal": self.goal, "backstory": self.backstory},
        )

    def _work(self, messages: list[Message], shape: Shape | None) -> Work:
        agent = self.agent
        told = system_prompt(self.role, self.goal, self.backstory, tools=bool(agent.tools)), wanted(shape)
        return Work(
            agent,
            self.role,
            self.worker.llm,
            agent.tools,
            ({"role": "system", "content": "\n\n".join(filter(None, told))}, *messages),
            agent.max_iter,
            agent.verbose,
            shape,
            f"agent {self.role}",
            agent.max_tool_output,
            self.worker.step_callback,
        )


@dataclass(frozen=True, slots=True)
class _Voice:
    source: Agent
    role: str
    job: Work

    def started(self, stamp: Stamp) -> events.LiteAgentExecutionStartedEvent:
        tools = tuple(tool.name for tool in self.job.tools)
        messages = self.job.messages
        return events.LiteAgentExecutionStartedEvent(**stamp, agent_role=self.role, tools=tools, messages=messages)

    def completed(self, stamp: Stamp, value: LiteAgentOutput) -> events.LiteAgentExecutionCompletedEvent:
        return events.LiteAgentExecutionCompletedEvent(
            **stamp, agent_role=self.role, output=value.raw, usage=value.token_usage
        )

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.LiteAgentExecutionErrorEvent:
        return events.LiteAgentExecutionErrorEvent(**stamp, agent_role=self.role, error=error, error_type=error_type)
