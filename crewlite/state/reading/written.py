"""A checkpoint as a dict of plain data: what it holds, and whether some dict is one."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.errors import ConfigError, SchemaTooNew, an
from crewlite.state.format import commit
from crewlite.usage import UsageRecord

SCHEMA = 1
HEAD = {"crewlite": "checkpoint", "schema": SCHEMA}
PLAIN = ("id", "run_id", "branch", "parent_id", "seq", "version", "trigger", "address", "label", "ref")
"""What a checkpoint says in plain text and numbers."""


@with_config(commit.STRICT)
class Written(TypedDict):
    """What `Checkpoint.to_dict` gives, but for its head."""

    id: commit.Hex
    run_id: commit.RunName
    branch: commit.BranchName
    parent_id: commit.Hex | None
    seq: commit.Number
    version: commit.Number
    trigger: commit.Text
    address: commit.Text
    created_at: commit.Time
    label: commit.Text | None
    metadata: commit.Coded
    inputs: commit.Inputs
    definition: dict[commit.Text, Any]
    usage: UsageRecord
    ref: commit.Text
    values: dict[commit.Text, Any]
    versions: dict[commit.Text, commit.Number]
    tasks: list[commit.Text]
    events: list[Heard]


def checked(data: object) -> dict[str, Any]:
    """The data, if it is a checkpoint that was written. Raises ConfigError, SchemaTooNew."""
    if not isinstance(data, dict) or data.get("crewlite") != "checkpoint" or type(data.get("schema")) is not int:
        raise misfit(f"it is {an(type(data).__name__)} without the mark of one")
    if data["schema"] > SCHEMA:
        raise SchemaTooNew("this checkpoint", data["schema"], SCHEMA)
    try:
        return {**_reader().validate_python(data)}
    except ValidationError as error:
        raise misfit(commit.first_problem(error, "the checkpoint")) from None


def misfit(problem: str) -> ConfigError:
    """What to raise for data that is no checkpoint."""
    return ConfigError(f"This is no checkpoint ({problem}); wanted a dict as Checkpoint.to_dict() gives it")


Heard = Annotated[tuple[commit.Text, commit.Text, commit.Text, commit.Text, commit.Number], Strict(strict=False)]


@cache
def _reader() -> TypeAdapter[Written]:
    return TypeAdapter(Written)
