"""A checkpoint as a dict of plain data: what it holds, and whether some dict is one."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.errors import ConfigError, SchemaTooNew, an
from crewlite.state import shape

SCHEMA = 1
HEAD = {"crewlite": "checkpoint", "schema": SCHEMA}
PLAIN = ("id", "run_id", "branch", "parent_id", "seq", "version", "trigger", "address", "label", "ref")
"""What a checkpoint says in plain text and numbers."""


class Written(TypedDict):
    """What `Checkpoint.to_dict` gives, but for its head."""

    __pydantic_config__ = shape.STRICT  # type: ignore[misc]
    id: shape.Hex
    run_id: shape.RunName
    branch: shape.BranchName
    parent_id: shape.Hex | None
    seq: shape.Number
    version: shape.Number
    trigger: shape.Text
    address: shape.Text
    created_at: shape.Time
    label: shape.Text | None
    metadata: shape.Coded
    inputs: shape.Named
    definition: dict[shape.Text, Any]
    usage: shape.Paid
    ref: shape.Text
    values: dict[shape.Text, Any]
    versions: dict[shape.Text, shape.Number]
    tasks: list[shape.Text]
    events: list[Heard]


def checked(data: object) -> dict[str, Any]:
    """The data, if it is a checkpoint that was written. Raises ConfigError, SchemaTooNew."""
    if not isinstance(data, dict) or data.get("crewlite") != "checkpoint" or type(data.get("schema")) is not int:
        raise misfit(f"it is {an(type(data).__name__)} without the mark of one")
    if data["schema"] > SCHEMA:
        raise SchemaTooNew("this checkpoint", data["schema"], SCHEMA)
    try:
        return {**_whole().validate_python(data)}
    except ValidationError as error:
        raise misfit(shape.first_problem(error, "the checkpoint")) from None


def misfit(problem: str) -> ConfigError:
    """What to raise for data that is no checkpoint."""
    return ConfigError(f"This is no checkpoint ({problem}); wanted a dict as Checkpoint.to_dict() gives it")


Heard = Annotated[tuple[shape.Text, shape.Text, shape.Text, shape.Text, shape.Number], Strict(strict=False)]


@cache
def _whole() -> TypeAdapter[Written]:
    return TypeAdapter(Written)
