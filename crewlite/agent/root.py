"""An agent without a crew as the engine sees it during one kickoff: its facts for the record, and its root step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from crewlite import durable, kinds
from crewlite.agent.agent import Agent
from crewlite.agent.answering import answering
from crewlite.agent.conversation import WHO, Conversation, message_step, turn_at
from crewlite.agent.input_files import InputFile, check
from crewlite.agent.knowing import Known, asked_last
from crewlite.agent.messages import as_conversation
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.persona import Persona
from crewlite.agent.retell import further
from crewlite.agent.shape import Shape, check_format
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import Json, JsonObject
from crewlite.errors import ConfigError
from crewlite.events.family import FamilyEvents
from crewlite.events.registry import checkpoint_event_types
from crewlite.llm.base import Message
from crewlite.llm.models import resolve_llm
from crewlite.runtime.kickoffs.facts import facts_of
from crewlite.runtime.kickoffs.rebuild import Rebuild, find
from crewlite.runtime.kickoffs.request import Bind, FromCheckpoint
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.steps.questions import Comparison, Drifted, drifted
from crewlite.runtime.steps.run import Run
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.earlier import definition_at
from crewlite.state.format.record import Record
from crewlite.system.forked import cached_property

A = TypeVar("A", bound=Agent)
_OTHERS = ("task_", "crew_", "agent_execution_", "agent_evaluation_")


class AgentRoot(Root[LiteAgentOutput]):
    """An agent in one kickoff. Raises NoModel if the agent has no model."""

    default_events = frozenset({"lite_agent_execution_completed"})
    never_emitted = frozenset(name for name in checkpoint_event_types() if name.startswith(_OTHERS))

    def __init__(
        self,
        agent: Agent,
        response_format: type[BaseModel] | None,
        turn: int | None = None,
        files: tuple[InputFile, ...] = (),
    ) -> None:
        super().__init__(agent)
        self._files = files
        self._turn, self._number, self._messages = turn, 1, list[Message]()
        self._goes_on = False
        """Whether it is a fork that is given its first question, after an answer."""
        self._began: datetime | None = None
        self._agent, self._llm = agent, resolve_llm([agent.llm], agent=agent.role)
        self._shape = Shape(response_format) if response_format else None
        self._known = Known(agent)
        self.secret_sources += (self._llm,)
        self.asks_approval = any(tool.requires_approval for tool in agent.may_use(agent.tools))
        self.verbose = agent.verbose

    def facts(self) -> JsonObject:
        """Return its fields, and the names of its model and response format."""
        facts: JsonObject = {"kind": "agent", "name": self.name, "model": self._llm.model}
        facts["agent"] = facts_of(self._agent, Agent)
        return facts | ({"response_format": self._shape.model.__name__} if self._shape else {})

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for inputs other than messages, a file that cannot be shown, or turn > 1 in a new run."""
        self._agent.check(inputs)
        check(self._files, "The kickoff of an agent")
        if self._turn not in (None, self._number):
            raise ConfigError(f"turn is {self._turn}, but this kickoff begins a conversation: its first turn is 1")

    def find_turn(self, record: Record, given: Json | None) -> CommitParts | None:
        """Find the turn that the kickoff asks for, and return the commit parts that begin it; {} for a recorded turn.

        Returns None for a new turn while the one before it is not answered.
        """
        conversation, messages = Conversation.of(record), given and given.get("messages")
        if record.fresh and messages is not None and not self._goes_on:
            return None
        turn = len(conversation.questions) + 1 if self._goes_on and self._turn is None else self._turn
        number = conversation.number_of(messages, turn, self._files)
        further = number > len(conversation.questions)
        if further and not conversation.answered(number - 1):
            return None
        if not further:
            self._files = ()  # the record holds what they were
        self._number = number
        self._messages = codec.decode(messages if further else conversation.questions[number - 1])
        if further:
            return conversation.asked_further(messages)
        self.address = turn_at(number) if number < len(conversation.questions) else ""
        return {}

    def question(self, inputs: Mapping[str, Any]) -> Json:
        """Return what its root step is asked: the agent's texts, the messages, and the response format."""
        return self._step(self._messages or as_conversation(inputs["messages"]), self._shape).question

    def compare(self, record: Record, inputs: Mapping[str, Any]) -> Comparison:
        """Compare the question of the recorded answer with the kickoff's, for the turn that the kickoff asks for."""
        if self.address:
            who = record.outcomes[self.address].provenance.get(WHO)
            same = who == self._asked(self._messages, self._shape) or (not self._known and who == self._who)
            said = {"message": asked_last(self._messages)}  # the recorded one, by which the turn was found
            return Comparison(() if same else (Drifted(self.address, said, said),))
        asked = self._step(self._messages or as_conversation(inputs["messages"]), self._shape)
        texts, recorded = asked.texts or {}, definition_at(record, "").get("agent", {})
        found = drifted(
            record,
            "",
            codec.digest([self.kind, asked.question]),
            texts,
            lambda: {name: str(recorded[name]) for name in texts if name in recorded},
        )
        return Comparison((found,) if found else ())

    def fork_inputs(self, record: Record, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a fork: a further instruction is added to the conversation that it is forked from."""
        asked, instruction = as_conversation(recorded["messages"]), as_conversation(given["messages"])
        self._goes_on = (
            record.fresh and record.finished and (self._turn is not None or instruction[: len(asked)] != asked)
        )
        if self._goes_on:
            return dict(given)
        said = Conversation.of(record).so_far(self._shape, self._agent.max_tool_output) if record.fresh else asked
        return {"messages": further(record, asked, said, instruction)}

    def step(self, inputs: dict[str, Any], run: Run | None) -> Step[LiteAgentOutput]:
        """Build the step that answers the messages, or those of the turn that the kickoff asks for."""
        more: dict[str, Any] = {}
        if run:
            Conversation.of(run.record).reach(self._number)
            self._began = datetime.fromisoformat(run.record.started_at)
            more = {"run_id": run.run_id, "durability": run.durability, "drifted": bool(run.drifted)}
        asked = self._messages or as_conversation(inputs["messages"])
        step = self._step(asked, self._shape, turn=self._number, **more)
        if run is None:
            return step
        step = dataclasses.replace(step, with_usage=lambda result, _: _with_usage(result, run))
        if self._number == 1 and not self.address:
            return step
        conversation = Conversation.of(run.record)
        if self.address:
            return dataclasses.replace(step, kind=kinds.TURN, question=conversation.question(self._number))
        work = partial(self._all_turns, conversation, more)
        policies = step.policies._replace(own=None)  # the turn has its own, and its own budgets
        return dataclasses.replace(step, work=work, policies=policies, budgets=())

    async def _all_turns(self, conversation: Conversation, more: dict[str, Any]) -> LiteAgentOutput:
        """Answer the last turn. Earlier turns are answered from the record, unless a fork has changed them.

        A turn that cannot have changed is not requested: a long conversation would be told of all of it in every turn.
        """
        scope = durable.scope()
        asked = [n for n in range(1, self._number) if scope.dry or not conversation.stands(n)]
        for number in (*asked, self._number):
            if number > 1:
                await scope.step(message_step(self._agent, number))
            answer = await scope.step(self._turn_step(conversation, number, more))
        return answer

    def _turn_step(self, conversation: Conversation, number: int, more: dict[str, Any]) -> Step[LiteAgentOutput]:
        shape = self._shape if number == self._number else None
        own = codec.decode(conversation.questions[number - 1])

        async def act() -> LiteAgentOutput:
            said = conversation.before(number, self._shape, self._agent.max_tool_output)
            return await self._step([*said, *own], shape, turn=number, **more).work()

        return dataclasses.replace(
            self._step(own, shape, turn=number, **more),
            kind=kinds.TURN,
            name=None,
            work=act,
            question=conversation.question(number),
            events=FamilyEvents.plain(self._agent, kinds.TURN),
            provenance={WHO: self._asked(own, shape) if self._known else self._who},
            address=turn_at(number),
            drift="rerun",
            timeout=None,
            texts={},
        )

    def _step(self, messages: list[Message], shape: Shape | None, **more: Any) -> Step[LiteAgentOutput]:
        agent = self._agent
        texts = agent.role, agent.goal, agent.backstory
        persona = Persona(agent, self._llm, *texts, self._known, agent.step_callback)
        return answering(persona, messages, shape, began=self._began, **more)

    def _asked(self, messages: list[Message], shape: Shape | None) -> str:
        """Return a digest of what the agent is asked with these messages, and of what it knows about them."""
        return codec.digest([self.kind, self._step(messages, shape).question])

    @cached_property
    def _who(self) -> str:
        """Return a digest of the agent's texts and the response format."""
        return codec.digest(self._step([], self._shape).question)


def _with_usage(result: LiteAgentOutput, run: Run) -> LiteAgentOutput:
    return result.model_copy(update={"token_usage": run.record.paid.total, "own_usage": run.record.paid.own})


def rebuilt(cls: type[A], source: FromCheckpoint, bind: Bind) -> A:
    """Return the agent, bound to its run. Raises what Agent.from_checkpoint raises."""
    found = find(source, "agent")
    rebuild = Rebuild(found)
    draft, shape = rebuild.draft(found.definition.get("agent"), cls, ()), found.definition.get("response_format")
    response_format = rebuild.live(("response_format",), shape) if shape else None
    rebuild.settle(bind)
    agent = draft.make().bound_to(found.config)
    return agent.expecting(check_format(response_format.value, "bind: response_format")) if response_format else agent
