"""The dict that `Checkpoint.to_dict` returns: its fields, and the check of a dict that claims to be one."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.errors import ConfigError, SchemaTooNew
from crewlite.state.format import commit, fields
from crewlite.usage import UsageRecord
from crewlite.wording import an

SCHEMA = 1
HEAD = {"crewlite": "checkpoint", "schema": SCHEMA}
PLAIN = ("id", "run_id", "branch", "parent_id", "seq", "version", "trigger", "address", "label", "ref")
"""The fields that are written as they are: texts, numbers and None."""


@with_config(commit.STRICT)
class Written(TypedDict):
    """The keys of `Checkpoint.to_dict()` besides `HEAD`."""

    id: fields.Hex
    run_id: fields.RunName
    branch: fields.BranchName
    parent_id: fields.Hex | None
    seq: fields.Number
    version: fields.Number
    trigger: fields.Text
    address: fields.Text
    created_at: fields.Time
    label: fields.Text | None
    metadata: fields.Coded
    inputs: fields.Inputs
    definition: dict[fields.Text, Any]
    usage: UsageRecord
    ref: fields.Text
    values: dict[fields.Text, Any]
    versions: dict[fields.Text, fields.Number]
    tasks: list[fields.Text]
    events: list[Heard]


def checked(data: object) -> dict[str, Any]:
    """Check `data` and return a copy.

    Raises ConfigError if it is not a dict that Checkpoint.to_dict() returned, SchemaTooNew if a newer release wrote it.
    """
    if not isinstance(data, dict) or data.get("crewlite") != "checkpoint" or type(data.get("schema")) is not int:
        raise misfit(f'it is {an(type(data).__name__)} without "crewlite": "checkpoint" and a schema number')
    if data["schema"] > SCHEMA:
        raise SchemaTooNew("this checkpoint", data["schema"], SCHEMA)
    try:
        return {**_reader().validate_python(data)}
    except ValidationError as error:
        raise misfit(commit.first_problem(error, "the checkpoint")) from None


def misfit(problem: str) -> ConfigError:
    """Build the error for data that is not a written checkpoint."""
    return ConfigError(f"This is not a checkpoint: {problem}. Pass a dict that Checkpoint.to_dict() returned.")


Heard = Annotated[tuple[fields.Text, fields.Text, fields.Text, fields.Text, fields.Number], Strict(strict=False)]


@cache
def _reader() -> TypeAdapter[Written]:
    return TypeAdapter(Written)
