"""The definition of a task, and of one that is done only if a function says so."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from crewlite import kinds
from crewlite.agent.agent import Agent
from crewlite.agent.guardrail import Guardrail, as_guardrail, as_guardrails
from crewlite.agent.input_files import as_files
from crewlite.agent.shape import Shape
from crewlite.budget import Budget, no_limit
from crewlite.definitions.definition import Definition
from crewlite.definitions.field_list import FieldList
from crewlite.definitions.keywords import known_keywords
from crewlite.definitions.last_kickoff import last
from crewlite.definitions.takes import Takes, left_out
from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.recovery.port import Policy
from crewlite.state.config import CheckpointConfig
from crewlite.task.output import TaskOutput
from crewlite.task.output_file import check_text
from crewlite.texts import templates
from crewlite.tools.base import BaseTool
from crewlite.tools.naming import safe_name
from crewlite.tools.toolbox import ForeignTool, Tools, as_tools

_FITS_ADDRESSES = re.compile(r"[A-Za-z0-9._ -]{1,100}")
alone = lazy("crewlite.crew.alone")  # the crew of one task that it is done in


class Task(Definition):
    """Something to be done by an agent.

    `description`, `expected_output` and `output_file` may hold `{placeholders}` for the inputs of the crew.
    """

    description: str
    expected_output: str
    """What the answer should be like. "" leaves that to the description."""
    agent: Agent | None = None
    name: str | None = Field(default=None, max_length=100)
    """The name in addresses (`task:research`) and results (`result["research"]`), by which a resume finds the task."""
    tools: Takes[Sequence[BaseTool | Callable[..., Any] | ForeignTool], Tools] = left_out(FieldList())
    """Tools besides the agent's own; one replaces a tool of the agent with its name. As for Agent, also functions."""
    context: Takes[Sequence[Task] | None, FieldList[Task] | None] = left_out(None)
    """Tasks whose outputs it gets; [] for none. None: all tasks before it; for an async task, those that are certain to
    have ended when it begins."""
    async_execution: bool = Field(default=False, strict=True)
    """The crew goes on with the next task meanwhile. Whatever builds on this one waits for it."""
    input_files: Takes[Mapping[str, str | Path] | Sequence[str | Path] | None, Mapping[str, str] | None] = left_out(
        None
    )
    """Files that the model is shown, as names and paths, or paths alone: UTF-8 text, and pictures if it takes them. If
    one changes, the task is asked something else."""
    human_input: bool = Field(default=False, strict=True)
    """A person sees each answer and says what should be different, until the person accepts one."""
    guardrail: Guardrail | None = None
    """What the answer must pass to count: a function that takes the output and returns (True, value) or
    (False, reason), also async; or a text that the agent's model judges by. Each verdict is recorded."""
    guardrails: Takes[Sequence[Guardrail], FieldList[Guardrail]] = left_out(FieldList())
    """Several guardrails in order: each gets the answer that the one before it has accepted or replaced."""
    guardrail_max_retries: int = Field(default=3, ge=0)
    """The number of answers that guardrails may refuse before the task fails."""
    max_retries: int | None = Field(default=None, ge=0)
    """The older name of guardrail_max_retries."""
    output_pydantic: type[BaseModel] | None = None
    """The answer must fit this class; `output.pydantic` is an instance of it."""
    output_json: type[BaseModel] | None = None
    """The answer must fit this class; `output.json_dict` is a dict."""
    response_model: type[BaseModel] | None = None
    """Another name of output_pydantic."""
    markdown: bool = Field(default=False, strict=True)
    """The answer is asked for in Markdown."""
    output_file_anywhere: bool = Field(default=False, strict=True)
    """Allows an output_file outside of the working directory; placeholders in it then let inputs choose any path."""
    output_file: str | None = None
    """A file in the working directory to which the answer is written, all or nothing, before the task counts as
    finished. A structured answer is written as JSON."""
    create_directory: bool = Field(default=True, strict=True)
    """Whether to create the directory of output_file. If not, a missing directory is an error."""
    callback: Callable[[TaskOutput], Any] | None = None
    """Called with the output, at least once, before the task counts as finished. May be async."""
    max_tokens: int | None = Field(default=None, ge=1)
    """A budget: the tokens that the task may use, with all steps inside it and all resumes of the run. When a budget is
    used up, the run stops with BudgetExceeded; kicked off again with a larger one, it continues."""
    max_cost_usd: float | None = no_limit()
    """A budget in US dollars, like max_tokens."""
    max_execution_time: float | None = no_limit()
    """A budget in seconds of work, like max_tokens."""
    max_iter: int | None = Field(default=None, ge=1)
    """A budget in replies of models, like max_tokens."""
    max_rpm: int | None = Field(default=None, ge=1)
    """Model calls for it that begin within a minute, in all runs of the process; others wait."""
    checkpoint: CheckpointConfig | bool | None = None
    """None inherits, False is off."""
    failure_policy: Policy | None = None
    """Decides on failures of this task and of the steps inside it; None inherits."""
    config: Mapping[str, Any] | None = None
    """Fields by name, such as `self.tasks_config["research"]` of a YAML file; a field passed as an argument wins."""

    _tools = field_validator("tools", mode="before")(as_tools)
    _guardrail = field_validator("guardrail", mode="before")(as_guardrail)
    _guardrails = field_validator("guardrails", mode="before")(as_guardrails)
    _files = field_validator("input_files", mode="before")(as_files)

    @field_validator("name", mode="after")
    @classmethod
    def _is_seen(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ConfigError(f"name is {value!r}; wanted one line of visible characters")
        return value

    @field_validator("output_file")
    @classmethod
    def _names_a_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            title = _title(info.data.get("name"), info.data.get("description", ""))
            names = {name: name for name in templates.placeholders(value)}  # in place of inputs, not known yet
            plain = templates.fill(value, names, where="")
            check_text(plain, f"Task {title!r}", anywhere=info.data.get("output_file_anywhere", True))
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Task:
        given = {name: getattr(self, name) for name in ("output_pydantic", "output_json", "response_model")}
        given = {name: shape for name, shape in given.items() if shape}
        if len(set(given.values())) > 1 or (self.output_pydantic and self.output_json):
            raise ConfigError(f"{' and '.join(given)} are two shapes for one answer: choose one")
        if self.guardrail is not None and self.guardrails:
            raise ConfigError("guardrail and guardrails are both given: put all of them into guardrails=[...]")
        if self.max_retries is not None and "guardrail_max_retries" in self.model_fields_set:
            raise ConfigError(
                "max_retries is the older name of guardrail_max_retries, and both are given: leave max_retries out"
            )
        return self

    @property
    def output(self) -> TaskOutput | None:
        """The output from the last crew that the running code has kicked off with this task; None for none."""
        found: TaskOutput | None = last(self)
        return found

    @known_keywords("execute_sync of a task")
    def execute_sync(
        self, agent: Agent | None = None, context: str | None = None, tools: Sequence[Any] | None = None
    ) -> TaskOutput:
        """Have this agent, or the task's own, do the task now, without a crew. `context`: a text to build on.

        Raises what the kickoff of a crew raises.
        """
        output: TaskOutput = alone.done("execute_sync", self, agent, context, tools)
        return output

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The limits on the tokens, cost and time of the task; () without limits."""
        limits = self.max_tokens, self.max_cost_usd, self.max_execution_time, self.max_iter, self.max_rpm
        return () if limits == (None,) * 5 else (Budget(kinds.TASK.name, self.title, *limits, self._pace),)

    @property
    def address_name(self) -> str | None:
        """The task's name in addresses: unchanged if addresses allow it, else simplified; None without a name."""
        if self.name is None or _FITS_ADDRESSES.fullmatch(self.name):
            return self.name
        return safe_name(self.name, "task")

    @property
    def shape(self) -> Shape | None:
        """The output schema; None if any text will do."""
        wanted = self.output_pydantic or self.output_json or self.response_model
        return Shape(wanted) if wanted else None

    @property
    def chain(self) -> tuple[Guardrail, ...]:
        """Its guardrails, in order."""
        return tuple(self.guardrails) or (() if self.guardrail is None else (self.guardrail,))

    @property
    def retries(self) -> int:
        """The number of answers that its guardrails may refuse before the task fails."""
        return self.guardrail_max_retries if self.max_retries is None else self.max_retries

    @property
    def title(self) -> str:
        """The task's name for messages; without one, the beginning of its description."""
        return _title(self.name, self.description)


class ConditionalTask(Task):
    """A task that is skipped unless `condition`, called with the output of the task before it, returns True.

    Its verdict is recorded, so no resume decides otherwise. A skipped task has an output with `skipped=True` and no
    text. It cannot be the first task of a crew.
    """

    condition: Callable[[TaskOutput], Any]
    """Called with the output of the task that stands before this one in the crew; true: do it. May be async.

    What it returns counts as in an `if`. A text that says no, such as "no" or "false", would count as true: it is a
    ConfigError.
    """


def _title(name: str | None, description: str) -> str:
    return name or inspect.cleandoc(description).partition("\n")[0][:60]
