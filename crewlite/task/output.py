"""What a task produced."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from crewlite.coming_from import Hinting
from crewlite.definitions.answered import Answered
from crewlite.encoding import codec
from crewlite.errors import ConfigError
from crewlite.usage import Usage


class Structured(Answered):
    """An answer that is a text, and a structure if one was asked for."""

    if TYPE_CHECKING:
        raw: str
        pydantic: Any
        json_dict: dict[str, Any] | None

    def __str__(self) -> str:
        return self.raw

    def to_dict(self) -> dict[str, Any]:
        """Return the structured answer as a dict; {} if none was asked for."""
        if self.json_dict is not None:
            return dict(self.json_dict)
        return self.pydantic.model_dump() if isinstance(self.pydantic, BaseModel) else {}

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the structured answer; of an object as they are, so that nested objects stay objects."""
        if self.json_dict is not None or not isinstance(found := self.pydantic, BaseModel):
            return self.to_dict()
        kind = type(found)
        names = (*kind.model_fields, *kind.model_computed_fields, *(found.model_extra or ()))
        return {name: getattr(found, name) for name in names}

    @property
    def json(self) -> str:
        """The structured answer as JSON. Raises ConfigError if none was asked for."""
        if self.json_dict is not None:
            return json.dumps(self.json_dict, ensure_ascii=False)
        if isinstance(self.pydantic, BaseModel):
            return self.pydantic.model_dump_json()
        raise ConfigError("There is no JSON: a text was asked for. Give the task output_json= or output_pydantic=.")


@codec.register
class TaskOutput(Hinting, Structured, BaseModel):  # type: ignore[misc]  # BaseModel.json is deprecated
    """A finished task's result. `str()` gives the text; `["key"]` looks into `json_dict` or `pydantic`."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, defer_build=True)

    name: str | None = None
    description: str
    expected_output: str = ""
    raw: str = ""
    """The agent's answer as it was given."""
    pydantic: Any = None
    """The answer as `Task.output_pydantic` asked for."""
    json_dict: dict[str, Any] | None = None
    """The answer as `Task.output_json` asked for."""
    agent: str
    """The role of who did it."""
    token_usage: Usage = Field(default_factory=Usage)
    """The usage of this task and all work inside it, delegations and crews in tools included, with all resumes."""
    skipped: bool = False
    """It is a ConditionalTask whose condition said no; `raw` is empty."""

    @property
    def summary(self) -> str:
        """The first ten words of the description, for a line in a log."""
        return " ".join(self.description.split(" ")[:10]) + "..."

    def __getitem__(self, key: str) -> Any:
        return self._fields()[key]
