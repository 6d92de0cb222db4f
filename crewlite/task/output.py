"""What a task produced."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from crewlite import codec
from crewlite.usage import Usage


@codec.register
class TaskOutput(BaseModel):
    """A finished task's result. `str()` gives the text; `["key"]` looks into `json_dict` or `pydantic`."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, defer_build=True)

    name: str | None = None
    description: str
    expected_output: str
    raw: str
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

    def __str__(self) -> str:
        return self.raw

    def __getitem__(self, key: str) -> Any:
        return self.to_dict()[key]

    def to_dict(self) -> dict[str, Any]:
        """The structured answer as a dict; empty if none was asked for."""
        return structured(self.pydantic, self.json_dict)


def structured(pydantic: object, json_dict: dict[str, Any] | None) -> dict[str, Any]:
    """A structured answer as a dict; empty if there is none."""
    if json_dict is not None:
        return dict(json_dict)
    return pydantic.model_dump() if isinstance(pydantic, BaseModel) else {}
