"""What an agent without a crew is to the engine: a question, an answer, and what is recorded of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from crewlite import codec, events, kinds
from crewlite.agent.agent import Agent, as_conversation
from crewlite.agent.loop import Answer, Work, system_prompt, work
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.retell import further
from crewlite.agent.shape import Shape, wanted
from crewlite.codec import JsonObject
from crewlite.durable import Stamp, Step
from crewlite.errors import ConfigError
from crewlite.events.registry import checkpoint_event_types
from crewlite.llm.base import Message
from crewlite.llm.models import resolve_llm
from crewlite.runtime.facts import facts_of
from crewlite.runtime.questions import Comparison, drifted
from crewlite.runtime.rebuild import Rebuild, find
from crewlite.runtime.request import Bind, FromCheckpoint
from crewlite.runtime.root import Root
from crewlite.runtime.run import Run
from crewlite.state.format.record import Record

A = TypeVar("A", bound=Agent)
_OTHERS = ("task_", "crew_", "agent_execution_")


class AgentRoot(Root[LiteAgentOutput]):
    """An agent in one kickoff. Raises NoModel."""

    default_events = frozenset({"lite_agent_execution_completed"})
    never_emitted = frozenset(name for name in checkpoint_event_types() if name.startswith(_OTHERS))

    def __init__(self, agent: Agent, response_format: type[BaseModel] | None) -> None:
        super().__init__(agent)
        self._agent, self._llm = agent, resolve_llm([agent.llm], agent=agent.role)
        self._shape = Shape(response_format) if response_format else None
        self.secret_sources += (self._llm,)
        self.asks_people = any(tool.requires_approval for tool in agent.tools)
        self.verbose = agent.verbose

    def facts(self) -> JsonObject:
        """Its fields, and the names of its model and response format."""
        facts: JsonObject = {"kind": "agent", "name": self.name, "model": self._llm.model}
        facts["agent"] = facts_of(self._agent, Agent)
        return facts | ({"response_format": self._shape.model.__name__} if self._shape else {})

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raises ConfigError for other than messages."""
        self._agent.check(inputs)

    def question(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Who is asked what, and in which shape."""
        agent, messages = self._agent, as_conversation(inputs["messages"])
        return [agent.role, agent.goal, agent.backstory, messages, self._shape.schema if self._shape else None]

    def compare(self, record: Record, inputs: Mapping[str, Any]) -> Comparison:
        """Its one answer."""
        texts, recorded = self._texts(), record.definition_of("").get("agent", {})
        found = drifted(
            record,
            "",
            codec.digest(["agent", self.question(inputs)]),
            texts,
            lambda: {name: str(recorded[name]) for name in texts if name in recorded},
        )
        return Comparison((found,) if found else ())

    def follow(self, record: Record, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """A fork that is given a further instruction goes on with the conversation that it was forked from."""
        asked, instruction = as_conversation(recorded["messages"]), as_conversation(given["messages"])
        return {"messages": further(record, asked, instruction, self._shape, self._agent.max_tool_output)}

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[LiteAgentOutput]:
        """The answer to the messages."""
        agent, job = self._agent, self._work(as_conversation(inputs["messages"]))

        def output(answer: Answer) -> LiteAgentOutput:
            more: dict[str, Any] = {}
            if run:
                more = {"run_id": run.run_id, "durability": run.durability, "drifted": bool(run.drifted)}
            return LiteAgentOutput(raw=answer.text, pydantic=answer.value, agent_role=agent.role, **more)

        async def act() -> LiteAgentOutput:
            return output(await work(job))

        def decode(data: Any) -> LiteAgentOutput:
            raw, shape = data["raw"], self._shape
            return output(Answer(raw, shape.recorded(raw, f"agent {agent.role!r}") if shape else None))

        return Step(
            kind=kinds.AGENT,
            name=agent.role,
            work=act,
            question=self.question(inputs),
            voice=_Voice(agent, job),
            encode=lambda result: {"raw": result.raw},
            decode=decode,
            with_usage=lambda result, usage: result.model_copy(update={"token_usage": usage}),
            timeout=agent.max_execution_time,
            inherits=True,
            texts=self._texts(),
        )

    def _texts(self) -> dict[str, str]:
        return {"goal": self._agent.goal, "backstory": self._agent.backstory}

    def _work(self, messages: list[Message]) -> Work:
        agent = self._agent
        told = system_prompt(agent.role, agent.goal, agent.backstory, tools=bool(agent.tools)), wanted(self._shape)
        return Work(
            agent,
            agent.role,
            self._llm,
            agent.tools,
            ({"role": "system", "content": "\n\n".join(filter(None, told))}, *messages),
            agent.max_iter,
            agent.verbose,
            self._shape,
            f"agent {agent.role}",
            agent.max_tool_output,
            agent.step_callback,
        )


def rebuilt(cls: type[A], source: FromCheckpoint, bind: Bind) -> A:
    """The agent, bound to its run. See Agent.from_checkpoint for what is raised."""
    found = find(source, "agent")
    if "agent" not in found.definition:
        raise found.too_early()
    rebuild = Rebuild(found)
    draft, shape = rebuild.draft(found.definition["agent"], cls, ()), found.definition.get("response_format")
    response_format = rebuild.live(("response_format",), shape) if shape else None
    rebuild.settle(bind)
    agent = draft.make().bound_to(found.config)
    return agent.expecting(_as_format(response_format.value)) if response_format else agent


def _as_format(value: object) -> type[BaseModel] | None:
    if value is None or (isinstance(value, type) and issubclass(value, BaseModel)):
        return value
    raise ConfigError(f"bind: response_format is {value!r}; wanted a pydantic class")


@dataclass(frozen=True, slots=True)
class _Voice:
    source: Agent
    job: Work

    def started(self, stamp: Stamp) -> events.LiteAgentExecutionStartedEvent:
        tools = tuple(tool.name for tool in self.job.tools)
        messages = self.job.messages
        return events.LiteAgentExecutionStartedEvent(
            **stamp, agent_role=self.source.role, tools=tools, messages=messages
        )

    def completed(self, stamp: Stamp, value: LiteAgentOutput) -> events.LiteAgentExecutionCompletedEvent:
        return events.LiteAgentExecutionCompletedEvent(
            **stamp, agent_role=self.source.role, output=value.raw, usage=value.token_usage
        )

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.LiteAgentExecutionErrorEvent:
        return events.LiteAgentExecutionErrorEvent(
            **stamp, agent_role=self.source.role, error=error, error_type=error_type
        )
