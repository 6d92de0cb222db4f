"""What an agent without a crew is to the engine: a question, an answer, and what is recorded of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from crewlite import codec
from crewlite.agent.agent import Agent, as_conversation
from crewlite.agent.answering import answering
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.persona import Worker
from crewlite.agent.retell import further
from crewlite.agent.shape import Shape
from crewlite.codec import JsonObject
from crewlite.durable import Step
from crewlite.errors import ConfigError
from crewlite.events.registry import checkpoint_event_types
from crewlite.llm.models import resolve_llm
from crewlite.runtime.facts import facts_of
from crewlite.runtime.questions import Comparison, drifted
from crewlite.runtime.rebuild import Rebuild, find
from crewlite.runtime.request import Bind, FromCheckpoint
from crewlite.runtime.root import Root
from crewlite.runtime.run import Run
from crewlite.state.format.record import Record

A = TypeVar("A", bound=Agent)
_OTHERS = ("task_", "crew_", "agent_execution_", "agent_evaluation_")


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
        return self._step(inputs).question  # type: ignore[no-any-return]

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
        more: dict[str, Any] = {}
        if run:
            more = {"run_id": run.run_id, "durability": run.durability, "drifted": bool(run.drifted)}
        return self._step(inputs, **more)

    def _step(self, inputs: Mapping[str, Any], **more: Any) -> Step[LiteAgentOutput]:
        persona = Worker(self._agent, self._llm, self._agent.step_callback).filled(lambda text, where: text)
        return answering(persona, as_conversation(inputs["messages"]), self._shape, **more)

    def _texts(self) -> dict[str, str]:
        return {"goal": self._agent.goal, "backstory": self._agent.backstory}


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
