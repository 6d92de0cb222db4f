"""The definition of a task."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, field_validator, model_validator

from crewlite.agent.agent import Agent
from crewlite.agent.shape import Shape
from crewlite.definition import Definition
from crewlite.errors import ConfigError
from crewlite.last_kickoff import last
from crewlite.lazy import lazy
from crewlite.recovery.remedy import Policy
from crewlite.state.config import CheckpointConfig
from crewlite.task.output import TaskOutput
from crewlite.tools.base import BaseTool
from crewlite.tools.naming import safe_name
from crewlite.tools.toolbox import as_tools

_FITS_ADDRESSES = re.compile(r"[A-Za-z0-9._ -]{1,100}")
alone = lazy("crewlite.crew.alone")  # the crew of one task that it is done in


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
    human_input: bool = Field(default=False, strict=True)
    """A person sees the answer before it counts, and says what should be different, until nothing is."""
    output_pydantic: type[BaseModel] | None = None
    """The answer must fit this class; `output.pydantic` is an instance of it."""
    output_json: type[BaseModel] | None = None
    """The answer must fit this class; `output.json_dict` is a dict."""
    output_file: str | None = None
    """A file to write the answer to: whole or not at all, before the task counts as finished."""
    callback: Callable[[TaskOutput], Any] | None = None
    """Called with the output, at least once, before the task counts as finished. May be async."""
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

    @model_validator(mode="after")
    def _one_shape(self) -> Task:
        if self.output_pydantic and self.output_json:
            raise ConfigError("output_pydantic and output_json are two shapes for one answer: choose one")
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
    def address_name(self) -> str | None:
        """Its name as it stands in addresses: as it is, if they take it, else a plain one made of it."""
        if self.name is None or _FITS_ADDRESSES.fullmatch(self.name):
            return self.name
        return safe_name(self.name, "task")

    @property
    def shape(self) -> Shape | None:
        """The shape its answer must have."""
        wanted = self.output_pydantic or self.output_json
        return Shape(wanted) if wanted else None

    @property
    def title(self) -> str:
        """What people call it: its name, else how its description begins."""
        return self.name or inspect.cleandoc(self.description).partition("\n")[0][:60]
