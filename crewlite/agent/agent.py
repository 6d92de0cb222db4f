"""The definition of an agent, which a crew uses or the caller kicks off alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack

from pydantic import BaseModel, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from crewlite import kinds
from crewlite.agent.guardrail import Guardrail, as_guardrail, models_of, without_models
from crewlite.agent.input_files import InputFile, as_files, read, showing
from crewlite.agent.messages import as_conversation, asked
from crewlite.agent.output import LiteAgentOutput
from crewlite.agent.shape import check_format
from crewlite.budget import Budget, no_limit
from crewlite.definitions.definition import Definition, Described
from crewlite.definitions.field_list import FieldList
from crewlite.definitions.keywords import known_keywords
from crewlite.definitions.prompts_by_path import by_part
from crewlite.definitions.takes import Takes, left_out
from crewlite.errors import ConfigError, meant
from crewlite.kinds import Kind
from crewlite.knowledge.knowledge import Knowledge, KnowledgeConfig, as_config, sources_of
from crewlite.knowledge.sources import KnowledgeSource, as_sources
from crewlite.lazy import lazy
from crewlite.llm.base import BaseLLM, Message, with_fallbacks
from crewlite.llm.models import ChatModel, as_model
from crewlite.recovery.port import Policy
from crewlite.runtime.kickoffs.request import Bind, Finished, FromCheckpoint, KickoffOptions, Request, kickoff_options
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.state.config import CheckpointConfig
from crewlite.texts.templates import check_template
from crewlite.tools.base import BaseTool
from crewlite.tools.toolbox import ForeignTool, Tools, as_names, as_tools, permitted

if TYPE_CHECKING:
    from crewlite.runtime.kickoffs.root import Root

alone = lazy("crewlite.crew.alone")  # the crew of one task that execute_task makes
pictures = lazy("crewlite.tools.pictures")
policy = lazy("crewlite.recovery.policy")
root = lazy("crewlite.agent.root")  # the engine and what is made with it: who only defines an agent need not wait

_OF_A_TASK = dict.fromkeys(("output_pydantic", "output_json", "response_model"), "an agent takes response_format=...")
"""What to write instead of the fields of a task that a kickoff of an agent has by another name."""


@dataclass(frozen=True, slots=True)
class AgentRequest(Request):
    """The request for a kickoff of an agent without a crew."""

    response_format: type[BaseModel] | None = None
    turn: int | None = None
    files: tuple[InputFile, ...] = ()
    """The files attached to the last message of the kickoff."""


class PlanningConfig(Described):
    """How an agent plans its work, carries out the plan, and evaluates the result of each step."""

    reasoning_effort: Literal["low", "medium", "high"] = "medium"
    """low: the plan is carried out as it is. medium: after each step its model may say that the goal is achieved, or
    that another plan is needed. high: it may also put what is left into other words."""
    observe_steps: bool = True
    """False carries the plan out as it is, whatever the effort."""
    max_attempts: int | None = Field(default=None, ge=1)
    """Plans, until one is ready; None for one."""
    max_steps: int = Field(default=20, ge=1)
    """Steps in all, of all plans."""
    max_replans: int = Field(default=3, ge=0)
    """How often another plan may be made."""
    max_step_iterations: int = Field(default=15, ge=1)
    """Replies that one step may take."""


class Agent(Definition, Runnable[LiteAgentOutput]):
    """Somebody with a role, a goal, a model and tools.

    A frozen description: one agent may work in many crews and runs at once. `role`, `goal` and `backstory` may hold
    `{placeholders}` for the inputs of a crew.
    """

    role: str
    goal: str
    backstory: str = ""
    llm: Takes[BaseLLM | str | ChatModel | None, BaseLLM | str | None] = left_out(None)
    """A model or its name; None takes the crew's, else CREWLITE_MODEL."""
    tools: Takes[Sequence[BaseTool | Callable[..., Any] | ForeignTool], Tools] = left_out(FieldList())
    """Also plain functions, and tools of LangChain, CrewAI and LlamaIndex."""
    max_tool_output: int | None = Field(default=20_000, ge=100)
    """Characters of a tool's result that the model is shown; of longer ones head and tail. None shows all. All of it is
    recorded either way."""
    max_iter: int = Field(default=25, ge=1)
    """Replies it may take to come to its answer."""
    multimodal: bool = Field(default=False, strict=True)
    """It has the tool "Add image to content", with which its model looks at pictures on the web. Messages may hold
    pictures either way, if the model takes them."""
    reasoning: bool = Field(default=False, strict=True)
    """Its model makes a plan first, and makes it again until it is ready."""
    max_reasoning_attempts: int | None = Field(default=None, ge=1)
    """Plans at most; None for 3."""
    planning: bool = Field(default=False, strict=True)
    """It plans, carries the plan out step by step, and looks at what each step came to; as `planning_config` says."""
    planning_config: Mapping[str, Any] | None = None
    """A PlanningConfig, or its fields by name; it turns planning on."""
    max_retry_limit: int = Field(default=0, ge=0)
    """How often its work goes on after a failure: where a step in it failed, so nothing recorded is done again, or else
    anew. Timeouts and budgets end it."""
    respect_context_window: bool = Field(default=True, strict=True)
    """True: a recorded step replaces a conversation that no longer fits the model by a summary, and the work goes on.
    False: ContextOverflow is raised."""
    inject_date: bool = Field(default=False, strict=True)
    """Tell the model the date on which the run began. A resume on another day tells it the same date."""
    date_format: str = "%Y-%m-%d"
    """The format of the date, for `strftime`."""
    use_system_prompt: bool = Field(default=True, strict=True)
    """False: the system prompt stands at the start of the first user message, for models without system messages."""
    system_template: str | None = None
    """A jinja2 template of the system prompt. It may use `{{ .System }}` (the prompt that crewlite would send), `role`,
    `goal` and `backstory`."""
    prompt_template: str | None = None
    """A jinja2 template of each user message. It may use `{{ .Prompt }}`, `role`, `goal` and `backstory`."""
    response_template: str | None = None
    """For models that continue a text: the part of this template before `{{ .Response }}` ends the last message."""
    max_execution_time: float | None = no_limit()
    """A budget in seconds of work on one task, kickoff or turn of a conversation, with all resumes of the run. See
    Task.max_tokens for what happens when a budget is used up."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens for one task or kickoff, with what coworkers use for it. Of a single reply: LLM(max_tokens=...)."""
    max_cost_usd: float | None = no_limit()
    """US dollars for one task or kickoff, likewise."""
    max_rpm: int | None = Field(default=None, ge=1)
    """Model calls of this agent that begin within a minute, in all runs of the process; others wait."""
    allowed_tools: Takes[Sequence[str | BaseTool] | None, FieldList[str] | None] = left_out(None)
    """Names of the tools that it may call, wherever they come from; also the tools themselves. None allows all it has.
    Coworkers are reached by allow_delegation, whatever stands here."""
    allow_delegation: bool = Field(default=False, strict=True)
    """In a crew, it may have the other agents work for it, or ask them. Each has its own tools alone."""
    knowledge_sources: Takes[Sequence[KnowledgeSource | str | Path], FieldList[KnowledgeSource]] = left_out(FieldList())
    """What it knows: sources, or paths of files. Each task and message is given the passages that fit it."""
    knowledge: Knowledge | None = None
    """Sources as one object, beside those in knowledge_sources."""
    knowledge_config: Takes[KnowledgeConfig | Mapping[str, Any] | None, Mapping[str, Any] | None] = left_out(None)
    """How many passages it is given, `KnowledgeConfig(results_limit=5)`: of its own sources, and of its crew's."""
    step_callback: Callable[..., Any] | None = None
    """Called with an AgentAction for each call of a tool and an AgentFinish for the answer; recorded. May be async.
    None takes the crew's."""
    guardrail: Guardrail | None = None
    """What its answers must pass to count: a function that takes the output and returns (True, value) or
    (False, reason), also async; or a text that its model judges by. Each verdict is recorded."""
    guardrail_max_retries: int = Field(default=3, ge=0)
    """How many answers may be turned down before it fails."""
    verbose: bool = False
    checkpoint: CheckpointConfig | bool | None = None
    """None inherits, True takes the defaults, False is off."""
    failure_policy: Policy | None = None
    """Decides on failures of its work and of the steps inside it, where its task has no policy; None inherits."""

    config: Mapping[str, Any] | None = None
    """Fields by name, such as `self.agents_config["research"]` of a YAML file; a field that is given itself wins."""

    _response_format: type[BaseModel] | None = PrivateAttr(default=None)
    """What the run it is bound to was started with."""

    run_kind: ClassVar[Kind] = kinds.AGENT

    _tools = field_validator("tools", mode="before")(as_tools)
    _llm = field_validator("llm", mode="before")(as_model)
    _names = field_validator("allowed_tools", mode="before")(as_names)
    _guardrail = field_validator("guardrail", mode="before")(as_guardrail)
    _sources = field_validator("knowledge_sources", mode="before")(as_sources)
    _knows = field_validator("knowledge_config", mode="before")(as_config)

    @model_validator(mode="after")
    def _knows_what_it_allows(self) -> Agent:
        """Raise ConfigError for a misspelt name in allowed_tools. Other unknown names may be tools of tasks."""
        own = [name for tool in self.tools for name in (tool.name, tool.safe_name)]
        for name in self.allowed_tools or ():
            if name not in own and (hint := meant(name, own)):
                raise ConfigError(f"allowed_tools has {name!r}, but the agent has no tool of that name; {hint}")
        return self

    @field_validator("system_template", "prompt_template", "response_template")
    @classmethod
    def _template(cls, value: str | None, info: ValidationInfo) -> str | None:
        name = {"system_template": "System", "prompt_template": "Prompt"}.get(info.field_name or "", "Response")
        used = check_template(value, (name, "role", "goal", "backstory"), str(info.field_name)) if value else name
        if name not in used and name != "System":
            raise ConfigError(f"{info.field_name} does not use {{{{ .{name} }}}}, so its text would be lost; add it")
        return value

    @model_validator(mode="after")
    def _tells_the_date(self) -> Agent:
        if self.inject_date and self.system_template and not re.search(r"\bSystem\b", self.system_template):
            raise ConfigError("system_template does not use {{ .System }}, so the date would be lost; add it")
        return self

    @field_validator("planning_config", mode="before")
    @classmethod
    def _plans(cls, value: object) -> object:
        if not value:
            return {} if isinstance(value, Mapping) else None
        if not isinstance(value, PlanningConfig | Mapping):
            raise ConfigError(f"planning_config is {value!r}; wanted a PlanningConfig, or its fields by name")
        made = value if isinstance(value, PlanningConfig) else PlanningConfig(**value)
        return made.model_dump(exclude_unset=True)

    @field_validator("date_format")
    @classmethod
    def _date_format(cls, value: str) -> str:
        written = datetime(2026, 11, 22, tzinfo=UTC).strftime(value) if "%" in value else ""
        if not written or "%" in written:
            raise ConfigError(f"date_format is {value!r}; wanted a format of dates, such as '%Y-%m-%d'")
        return value

    @property
    def plans(self) -> bool:
        """Whether it plans before its work."""
        return self.planning or self.reasoning or self.planning_config is not None

    @property
    def planner(self) -> PlanningConfig | None:
        """How the agent plans its work and carries out the plan; None if it does not."""
        if not self.planning and self.planning_config is None:
            return None
        return PlanningConfig(**(self.planning_config or {}))

    @property
    def retries(self) -> Policy | None:
        """The policy that decides on failures of the agent's work; None inherits that of its task or crew."""
        return policy.GoOn(self.max_retry_limit) if self.max_retry_limit else None

    @property
    def run_name(self) -> str:
        """The agent's role."""
        return self.role

    @property
    def budget(self) -> Budget:
        """The limits on the tokens, cost and time of one task or kickoff."""
        limits = self.max_tokens, self.max_cost_usd, self.max_execution_time
        return Budget(kinds.AGENT.name, self.role, *limits, None, self.max_rpm, self._pace)

    @kickoff_options("kickoff of an agent", _OF_A_TASK, others="")
    def as_request(
        self,
        messages: str | Sequence[Message] | None = None,
        *,
        response_format: type[BaseModel] | None = None,
        turn: int | None = None,
        input_files: Mapping[str, Any] | Sequence[Any] | None = None,
        **options: Unpack[KickoffOptions],
    ) -> Request:
        """Build the request of a kickoff with these arguments. Input files become part of the messages.

        Raises ConfigError if `turn` is not a number from 1, or `response_format` is not a pydantic class.
        """
        check_format(response_format)
        if turn is not None and (type(turn) is not int or turn < 1):
            raise ConfigError(f"turn is {turn!r}; wanted the number of a turn of the conversation, from 1")
        files = read(as_files(input_files))
        inputs = None if messages is None else {"messages": showing(asked(messages), files)}
        own: dict[str, Any] = {"response_format": response_format, "turn": turn, "files": files if inputs else ()}
        return AgentRequest(inputs, **options, **own)

    def relies_on(self) -> tuple[Definition, ...]:
        """Return the agent itself."""
        return (self,)

    def as_root(self, request: Request) -> Root[LiteAgentOutput]:
        """Build the Root that the engine runs. Raises NoModel, and ConfigError for a kickoff without messages."""
        own = request if isinstance(request, AgentRequest) else AgentRequest()
        response_format = own.response_format
        if self._bound is not None and request.from_checkpoint is self._bound:
            response_format = response_format or self._response_format
        if request.inputs is None and request.run_id is None and request.from_checkpoint is None:
            self.check({})
        made: Root[LiteAgentOutput] = root.AgentRoot(self, response_format, own.turn, own.files)
        return made

    def as_result(self, finished: Finished[LiteAgentOutput]) -> LiteAgentOutput:
        """Return the output, with its durability: how reliably the run was saved."""
        return finished.value.model_copy(update={"durability": finished.durability})

    @known_keywords("execute_task of an agent")
    def execute_task(self, task: Any, context: str | None = None, tools: Sequence[Any] | None = None) -> str:
        """Do a Task now, without a crew, and return its answer as text. `context`: a text to build on.

        Raises what the kickoff of a crew raises.
        """
        return str(alone.done("execute_task", task, self, context, tools))

    @classmethod
    def rebuilt(cls, source: FromCheckpoint, bind: Bind) -> Self:
        """Rebuild the agent from the record of its run, as `from_checkpoint` does."""
        agent: Self = root.rebuilt(cls, source, bind)
        return agent

    def expecting(self, response_format: type[BaseModel] | None) -> Self:
        """Return a copy whose kickoff, if it is bound to a run, requires an answer of this class."""
        agent = self.model_copy()
        agent._response_format = response_format
        return agent

    def may_use(self, tools: Iterable[BaseTool]) -> tuple[BaseTool, ...]:
        """Return these tools, and those that the agent's settings add, without tools that it is not allowed to call."""
        if self.multimodal:
            tools = (*tools, pictures.AddImage())
        return tuple(tools) if self.allowed_tools is None else permitted(tools, self.allowed_tools)

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise ConfigError for an input other than `messages`, and for a kickoff without it."""
        if unknown := sorted(inputs.keys() - {"messages"}):
            hints = [hint for name in unknown if (hint := meant(name, ("messages",)))]
            wanted = hints[0] if hints else "it takes messages, and no more"
            raise ConfigError(f"Agent {self.role!r} is given {', '.join(unknown)}; {wanted}")
        if "messages" not in inputs:
            raise ConfigError(
                f"Agent {self.role!r} was asked nothing: kickoff('a question'), or --message 'a question'"
            )
        as_conversation(inputs["messages"])

    def as_inputs(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return inputs as the runs of the agent record them. Raises ConfigError for an input other than `messages`."""
        self.check(inputs)
        return {"messages": as_conversation(inputs["messages"])}

    def input_names(self) -> tuple[str, ...]:
        """Return the only input: `messages`."""
        return ("messages",)

    def required_inputs(self) -> tuple[str, ...]:
        """Return the input that a kickoff must have: `messages`."""
        return ("messages",)

    def with_model(self, llm: BaseLLM | str) -> Self:
        """Return a copy that uses this model."""
        return self.model_copy(update={"llm": llm, "guardrail": next(iter(without_models(self.guardrails)), None)})

    def with_prompts(self, prompts: Mapping[str, str]) -> Self:
        """Return a copy with another `goal` or `backstory`. Raises ConfigError for any other name."""
        return self.with_(**by_part(prompts, {"": ("goal", "backstory")}).get("", {}))

    @property
    def guardrails(self) -> tuple[Guardrail, ...]:
        """Its guardrail as a tuple; () without one."""
        return () if self.guardrail is None else (self.guardrail,)

    def secret_sources(self) -> tuple[object, ...]:
        """Return the live objects whose fields are searched for secrets, the agent itself first."""
        own = (self.llm, *models_of(self.guardrails))
        models = (part for llm in own if isinstance(llm, BaseLLM) for part in with_fallbacks(llm))
        return (self, *models, *self.tools, *sources_of(self))
