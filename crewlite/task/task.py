"""The definition of a task."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from crewlite import kinds, templates
from crewlite.agent.agent import Agent
from crewlite.agent.guardrail import Guardrail, as_guardrail, as_guardrails
from crewlite.agent.input_files import as_files
from crewlite.agent.shape import Shape
from crewlite.budget import Budget
from crewlite.definition import Definition
from crewlite.errors import ConfigError
from crewlite.last_kickoff import last
from crewlite.lazy import lazy
from crewlite.recovery.remedy import Policy
from crewlite.state.config import CheckpointConfig
from crewlite.task.output import TaskOutput
from crewlite.task.output_file import check_text
from crewlite.tools.base import BaseTool
from crewlite.tools.naming import safe_name
from crewlite.tools.toolbox import as_tools

_FITS_ADDRESSES = re.compile(r"[A-Za-z0-9._ -]{1,100}")
alone = lazy("crewlite.crew.alone")  # the crew of one task that it is done in


class _AnyInput(dict[str, str]):
    """Inputs that are not known yet."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return name


class Task(Definition):
    """Something to be done by an agent.

    `description`, `expected_output` and `output_file` may hold `{placeholders}` for the inputs of the crew.
    """

    description: str = Field(min_length=1)
    expected_output: str = Field(min_length=1)
    agent: Agent | None = None
    name: str | None = Field(default=None, min_length=1, max_length=100)
    """What it is called in addresses (`task:research`), results (`result["research"]`) and on resume."""
    tools: tuple[BaseTool, ...] = ()
    """Beside the agent's own, and instead of one of the same name. As for Agent, also functions and others' tools."""
    context: tuple[Task, ...] | None = None
    """Tasks whose outputs it is given; []: none. None: all before it; of an async task, those that have ended for
    certain when it begins."""
    async_execution: bool = Field(default=False, strict=True)
    """The crew goes on with the next task meanwhile. Whatever builds on this one waits for it."""
    input_files: Mapping[str, str] | None = None
    """Files that the model is shown, as names and paths, or paths alone: UTF-8 text, and pictures if it takes them. One
    that has changed is another question."""
    human_input: bool = Field(default=False, strict=True)
    """A person sees the answer before it counts, and says what should be different, until nothing is."""
    guardrail: Guardrail | None = None
    """What the answer must pass to count: a function that takes the output and returns (True, value) or
    (False, reason), also async; or a text that the agent's model judges by. Each verdict is recorded."""
    guardrails: tuple[Guardrail, ...] = ()
    """Several of them: each is given what the one before it has passed on."""
    guardrail_max_retries: int = Field(default=3, ge=0)
    """How many answers may be turned down before the task fails."""
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
    """The output_file may be outside of the working directory; where, the inputs may choose as well."""
    output_file: str | None = None
    """A file to write the answer to, a structured one as JSON: whole or not at all, before the task counts as finished.
    It is in the working directory, whatever the inputs are."""
    create_directory: bool = Field(default=True, strict=True)
    """The directory of the file is made if it is missing, which is else an error."""
    callback: Callable[[TaskOutput], Any] | None = None
    """Called with the output, at least once, before the task counts as finished. May be async."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens that it may use, with all that is inside it, in all lives of its run. Reaching a budget raises
    BudgetExceeded, with which the run stops; kicked off again with more, it goes on."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """US dollars that it may use, likewise."""
    max_execution_time: float | None = Field(default=None, gt=0)
    """Seconds at work on it, likewise."""
    max_iter: int | None = Field(default=None, ge=1)
    """Replies of models that it may use, likewise."""
    max_rpm: int | None = Field(default=None, ge=1)
    """Model calls for it that begin within a minute, in all runs of the process; others wait."""
    checkpoint: CheckpointConfig | bool | None = None
    """None inherits, False is off."""
    failure_policy: Policy | None = None
    """Decides on failures of this task and of what is inside it; None inherits."""
    config: Mapping[str, Any] | None = None
    """Fields by name, such as `self.tasks_config["research"]` of a YAML file; a field that is given itself wins."""

    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object) -> object:
        return as_tools(value)

    @field_validator("name", mode="after")
    @classmethod
    def _is_seen(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ConfigError(f"name is {value!r}; wanted one line of characters that can be seen")
        return value

    @field_validator("input_files", mode="before")
    @classmethod
    def _files(cls, value: object) -> object:
        return as_files(value)

    @field_validator("output_file")
    @classmethod
    def _names_a_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            title = _title(info.data.get("name"), info.data.get("description", ""))
            plain = templates.fill(value, _AnyInput(), where="")
            check_text(plain, f"Task {title!r}", anywhere=info.data.get("output_file_anywhere", True))
        return value

    @field_validator("guardrail", mode="before")
    @classmethod
    def _guardrail(cls, value: object) -> object:
        return as_guardrail(value, "guardrail")

    @field_validator("guardrails", mode="before")
    @classmethod
    def _guardrails(cls, value: object) -> object:
        return as_guardrails(value, "guardrails")

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
                "max_retries is the older name of guardrail_max_retries, and both are given: leave it out"
            )
        return self

    @property
    def output(self) -> TaskOutput | None:
        """What it came to when the code at work last kicked off a crew with it; None if it has not."""
        found: TaskOutput | None = last(self)
        return found

    def execute_sync(
        self, agent: Agent | None = None, context: str | None = None, tools: Sequence[Any] | None = None
    ) -> TaskOutput:
        """Do it now, without a crew: by this agent, or its own. `context` is a text to build on.

        Raises what the kickoff of a crew raises.
        """
        output: TaskOutput = alone.done(self, agent, context, tools)
        return output

    @property
    def budget(self) -> Budget:
        """What it may use."""
        limits = self.max_tokens, self.max_cost_usd, self.max_execution_time, self.max_iter, self.max_rpm
        return Budget(kinds.TASK.name, self.title, *limits, self._pace)

    @property
    def address_name(self) -> str | None:
        """Its name as it stands in addresses: as it is, if they take it, else a plain one made of it."""
        if self.name is None or _FITS_ADDRESSES.fullmatch(self.name):
            return self.name
        return safe_name(self.name, "task")

    @property
    def shape(self) -> Shape | None:
        """The shape its answer must have."""
        wanted = self.output_pydantic or self.output_json or self.response_model
        return Shape(wanted) if wanted else None

    @property
    def chain(self) -> tuple[Guardrail, ...]:
        """Its guardrails, in order."""
        return self.guardrails or (() if self.guardrail is None else (self.guardrail,))

    @property
    def retries(self) -> int:
        """How many answers its guardrails may turn down."""
        return self.guardrail_max_retries if self.max_retries is None else self.max_retries

    @property
    def title(self) -> str:
        """What people call it: its name, else how its description begins."""
        return _title(self.name, self.description)


def _title(name: str | None, description: str) -> str:
    return name or inspect.cleandoc(description).partition("\n")[0][:60]
