"""The definition of an agent, and kicking one off without a crew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from uuid import UUID

from pydantic import BaseModel, Field, PrivateAttr, field_validator

from crewlite import codec, events, kinds
from crewlite.agent.loop import Answer, Work, system_prompt, work
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.retell import further
from crewlite.agent.shape import Shape, wanted
from crewlite.codec import JsonObject
from crewlite.definition import Definition
from crewlite.durable import Stamp, Step
from crewlite.errors import ConfigError, meant
from crewlite.events.registry import checkpoint_event_types
from crewlite.llm.base import BaseLLM, Message
from crewlite.llm.call import ways
from crewlite.llm.models import resolve_llm
from crewlite.runtime.door import run_sync
from crewlite.runtime.engine import kickoff
from crewlite.runtime.facts import facts_of
from crewlite.runtime.fork import ForkVerb
from crewlite.runtime.kickoff import FromCheckpoint, Request, Root, identity_of
from crewlite.runtime.questions import Comparison, Drifted
from crewlite.runtime.rebuild import Bind, Rebuild, find
from crewlite.runtime.run import Run
from crewlite.state.config import CheckpointConfig
from crewlite.state.record import Record
from crewlite.tools.base import BaseTool
from crewlite.tools.toolbox import as_tools

_SILENT = frozenset(
    name for name in checkpoint_event_types() if name.startswith(("task_", "crew_", "agent_execution_"))
)


class Agent(Definition):
    """Somebody with a role, a goal, a model and tools.

    A frozen description: one agent may work in many crews and runs at once. `role`, `goal` and `backstory` may hold
    `{placeholders}` for the inputs of a crew.
    """

    role: str
    goal: str
    backstory: str = ""
    llm: BaseLLM | str | None = None
    """A model or its name; None takes the crew's, else CREWLITE_MODEL."""
    tools: tuple[BaseTool, ...] = ()
    """Also plain functions, and tools of LangChain, CrewAI and LlamaIndex."""
    max_tool_output: int | None = Field(default=20_000, ge=100)
    """Characters of a tool's result that the model is shown; of longer ones head and tail. None shows all. All of it is
    recorded either way."""
    max_iter: int = Field(default=25, ge=1)
    """Replies it may take to come to its answer."""
    max_execution_time: float | None = Field(default=None, gt=0)
    """Seconds for one task."""
    verbose: bool = False
    checkpoint: CheckpointConfig | bool | None = None
    """None inherits, True takes the defaults, False is off."""

    _response_format: type[BaseModel] | None = PrivateAttr(default=None)
    """What the run it is bound to was started with."""

    fork: ClassVar[ForkVerb] = ForkVerb()

    @classmethod
    def from_checkpoint(cls, config: FromCheckpoint, *, bind: Bind = None) -> Self:
        """Rebuild an agent that ran alone from what its run recorded; its `kickoff()` goes on with that run.

        Args:
            config: A ref to the run, or CheckpointConfig(restore_from=ref).
            bind: What no record holds, by path (`llm`, `tools.search`, `response_format`) or last word (`search`).
                None as a value leaves the part out. A list of tools binds each by its name. An `LLM(...)` is rebuilt
                from its settings if its key is in the environment.

        Raises:
            BindMissing: live parts that were not passed; it lists all of them.
            ConfigError: a key of `bind` that binds nothing, or a part that does not fit.
            RefError, JournalCorrupt, StoreError: the ref names nothing, or nothing sound.
            RunMismatch: a run of something else than an agent.
        """
        found = find(config, "agent")
        if "agent" not in found.definition:
            raise found.too_early()
        rebuild = Rebuild(found)
        draft, shape = rebuild.draft(found.definition["agent"], cls, ()), found.definition.get("response_format")
        response_format = rebuild.live(("response_format",), shape) if shape else None
        rebuild.settle(bind)
        agent = draft.make().bound_to(found.config)
        agent._response_format = _as_format(response_format.value) if response_format else None
        return agent

    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object) -> object:
        return as_tools(value)

    def kickoff(
        self,
        messages: str | Sequence[Message] | None = None,
        *,
        response_format: type[BaseModel] | None = None,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
    ) -> LiteAgentOutput:
        """Let the agent answer, without a crew.

        Args:
            messages: A question, or a conversation as a list of `{"role": ..., "content": ...}`. A resume needs none; a
                fork goes on with its conversation, to which they are added.
            response_format: A pydantic class the answer must fit.
            run_id: Name of the run: started if new, gone on with if unfinished, its stored result if finished.
            from_checkpoint: A ref, or CheckpointConfig(restore_from=ref), to go on from. Fields that are set on it
                override the agent's own configuration.
            answers: For calls in doubt: address to result.
            rerun: Addresses of calls in doubt to make again.
            resume: Go on with the newest unfinished run of this agent with these messages that nobody is at work on;
                begin a new run if there is none.

        Raises:
            ConfigError, NoModel, StoreUnusable: before anything was paid.
            RunMismatch, InputsChanged, QuestionsChanged, PlaceIsBehind, TaskDrifted, BranchConflictError: a resume that
                cannot be.
            InDoubt: a call declared effect="once" was cut in the middle.
            StoreError: a save failed, with on_save_error="raise".
        """
        request = self._request(messages, run_id, from_checkpoint, answers, rerun, resume)
        return run_sync(
            "kickoff", lambda: self._kickoff(request, response_format), lambda: request.how_to_go_on("agent")
        )

    async def akickoff(
        self,
        messages: str | Sequence[Message] | None = None,
        *,
        response_format: type[BaseModel] | None = None,
        run_id: str | UUID | None = None,
        from_checkpoint: FromCheckpoint = None,
        answers: Mapping[str, Any] | None = None,
        rerun: Iterable[str] = (),
        resume: bool = False,
    ) -> LiteAgentOutput:
        """`kickoff`, to await on a loop of your own."""
        request = self._request(messages, run_id, from_checkpoint, answers, rerun, resume)
        return await self._kickoff(request, response_format)

    def _request(
        self,
        messages: str | Sequence[Message] | None,
        run_id: str | UUID | None,
        from_checkpoint: FromCheckpoint,
        answers: Mapping[str, Any] | None,
        rerun: Iterable[str],
        resume: bool,
    ) -> Request:
        inputs = None if messages is None else {"messages": _conversation(messages)}
        return Request(inputs, run_id, from_checkpoint, answers, rerun, resume)

    def identity(self) -> str:
        """The same for every agent of this role."""
        return identity_of("agent", self.role)

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inputs as its runs record them. Raises ConfigError for other than `messages`."""
        self._check(inputs)
        return {"messages": _conversation(inputs["messages"])}

    def input_names(self) -> tuple[str, ...]:
        """What it is asked."""
        return ("messages",)

    def secret_sources(self) -> tuple[object, ...]:
        """The live objects in whose fields secrets are looked for."""
        models = ways(self.llm) if isinstance(self.llm, BaseLLM) else ()
        return (self, *models, *self.tools)

    async def _kickoff(self, request: Request, response_format: type[BaseModel] | None) -> LiteAgentOutput:
        if self._bound is not None and request.from_checkpoint is None:
            request, response_format = request.going_on_from(self._bound), response_format or self._response_format
        if request.inputs is None and request.run_id is None and request.from_checkpoint is None:
            self._check({})
        llm = resolve_llm([self.llm], agent=self.role)
        shape = Shape(response_format) if response_format else None
        root = Root(
            kind="agent",
            name=self.role,
            definition=self._facts(llm, response_format),
            identity=self.identity(),
            setting=self.checkpoint,
            inner=(),
            natural=frozenset({"lite_agent_execution_completed"}),
            silent=_SILENT,
            holds=(*self.secret_sources(), llm),
            check=self._check,
            asks=lambda inputs: self._question(shape, _conversation(inputs["messages"])),
            follow=lambda record, recorded, given: self._follow(record, recorded, given, shape),
            compare=lambda record, inputs: self._compare(record, shape, _conversation(inputs["messages"])),
            asks_people=any(tool.requires_approval for tool in self.tools),
            step=lambda inputs, run: self._step(llm, shape, _conversation(inputs["messages"]), run),
        )
        with request.shown(self.verbose):
            return await kickoff(root, request)

    def _facts(self, llm: BaseLLM, response_format: type[BaseModel] | None) -> JsonObject:
        facts: JsonObject = {"kind": "agent", "name": self.role, "model": llm.model, "agent": facts_of(self, Agent)}
        return facts | ({"response_format": response_format.__name__} if response_format else {})

    def _check(self, inputs: Mapping[str, Any]) -> None:
        if unknown := sorted(inputs.keys() - {"messages"}):
            hints = [hint for name in unknown if (hint := meant(name, ("messages",)))]
            wanted = hints[0] if hints else "it takes messages, and no more"
            raise ConfigError(f"Agent {self.role!r} is given {', '.join(unknown)}; {wanted}")
        if "messages" not in inputs:
            raise ConfigError(f"Agent {self.role!r} was asked nothing: kickoff('a question')")
        _conversation(inputs["messages"])

    def _question(self, shape: Shape | None, messages: list[Message]) -> list[Any]:
        return [self.role, self.goal, self.backstory, messages, shape.schema if shape else None]

    def _texts(self) -> dict[str, str]:
        return {"goal": self.goal, "backstory": self.backstory}

    def _follow(
        self, record: Record, recorded: Mapping[str, Any], given: Mapping[str, Any], shape: Shape | None
    ) -> dict[str, Any]:
        """A fork that is given a further instruction goes on with the conversation that it was forked from."""
        asked, instruction = _conversation(recorded["messages"]), _conversation(given["messages"])
        return {"messages": further(record, asked, instruction, shape, self.max_tool_output)}

    def _compare(self, record: Record, shape: Shape | None, messages: list[Message]) -> Comparison:
        outcome = record.outcomes[""]
        if outcome.fingerprint == codec.digest(["agent", self._question(shape, messages)]):
            return Comparison()
        recorded = record.definition_of("").get("agent", {})
        answered = outcome.question or {name: str(recorded[name]) for name in self._texts() if name in recorded}
        return Comparison((Drifted("", answered, self._texts()),))

    def _step(
        self, llm: BaseLLM, shape: Shape | None, messages: list[Message], run: Run | None
    ) -> Step[LiteAgentOutput]:
        told = system_prompt(self.role, self.goal, self.backstory, tools=bool(self.tools)), wanted(shape)
        system = "\n\n".join(filter(None, told))
        opening = ({"role": "system", "content": system}, *messages)
        job = Work(
            self,
            self.role,
            llm,
            self.tools,
            opening,
            self.max_iter,
            self.verbose,
            shape,
            f"agent {self.role}",
            self.max_tool_output,
        )

        def output(answer: Answer) -> LiteAgentOutput:
            more: dict[str, Any] = {}
            if run:
                more = {"run_id": run.run_id, "durability": run.durability, "drifted": bool(run.drifted)}
            return LiteAgentOutput(raw=answer.text, pydantic=answer.value, agent_role=self.role, **more)

        async def act() -> LiteAgentOutput:
            return output(await work(job))

        return Step(
            kind=kinds.AGENT,
            name=self.role,
            work=act,
            question=self._question(shape, messages),
            voice=_LiteVoice(self, job),
            encode=lambda result: {"raw": result.raw},
            decode=lambda data: output(
                Answer(data["raw"], shape.recorded(data["raw"], f"agent {self.role!r}") if shape else None)
            ),
            with_usage=lambda result, usage: result.model_copy(update={"token_usage": usage}),
            timeout=self.max_execution_time,
            texts=self._texts(),
        )


@dataclass(frozen=True, slots=True)
class _LiteVoice:
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


def _as_format(value: object) -> type[BaseModel] | None:
    if value is None or (isinstance(value, type) and issubclass(value, BaseModel)):
        return value
    raise ConfigError(f"bind: response_format is {value!r}; wanted a pydantic class")


def _conversation(messages: str | Sequence[Message]) -> list[Message]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    fits = isinstance(messages, Sequence) and all(isinstance(message, Mapping) for message in messages)
    found = [dict(message) for message in messages] if fits else []
    if not found or any(not isinstance(message.get("role"), str) or "content" not in message for message in found):
        raise ConfigError(f"messages is {messages!r}; wanted a text, or a list of {{'role': ..., 'content': ...}}")
    return found
