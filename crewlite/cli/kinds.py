"""The arguments that crews, agents and flows take on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import click
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from crewlite import Agent, CheckpointConfig, Crew
from crewlite.errors import ConfigError
from crewlite.flow import FlowFunction
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.state.config import defaults

Definition: TypeAlias = Runnable[Any]
D = TypeVar("D", bound=Definition)
KINDS: dict[str, type[Definition]] = {kind.run_kind.name: kind for kind in (Crew, Agent, FlowFunction)}
"""The classes of definitions, by the kind that their runs are recorded as."""


def check_takes(definition: Definition, inputs: Mapping[str, Any], message: str | None, model: str | None) -> None:
    """Raise UsageError for inputs, a message or a model that this definition does not take."""
    kind = definition.run_kind
    if definition.run_kind.takes_messages and inputs:
        raise click.UsageError(f"an {kind} takes no inputs; pass a message instead: --message TEXT")
    if message is not None and not definition.run_kind.takes_messages:
        raise click.UsageError(f"--message is for an agent, and this is a {kind}; pass inputs: --input NAME=TEXT")
    try:
        if model:
            definition.with_model(model)
        if inputs:
            definition.as_inputs(inputs)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def check_whole(definition: Definition, inputs: Mapping[str, Any], message: str | None) -> None:
    """Raise UsageError if a message or an input is missing that a new run needs. For a crew, the run itself checks."""
    if definition.run_kind.takes_messages:
        if message is None:
            raise click.UsageError(f"an {definition.run_kind} needs a message: --message TEXT")
    elif missing := [repr(name) for name in definition.required_inputs() if name not in inputs]:
        what = f"{definition.run_kind} {definition.run_name!r}: missing {', '.join(missing)}"
        raise click.UsageError(f"{what}. Pass it: --input NAME=TEXT")


def with_types(definition: Definition, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs converted to the types of the definition: `n=3` is a number for `n: int`.

    Inputs without a declared type stay as they are. Raises UsageError for an input that does not fit its type.
    """
    types = definition.input_types() if inputs else {}
    return {name: _typed(name, value, types[name]) if name in types else value for name, value in inputs.items()}


def saving(definition: D, location: str | None) -> D:
    """Return the definition with its runs saved at `location`, or at its own; by default on disk.

    A definition with checkpoint=False, or one whose inner definitions have a store, is not changed.
    """
    own = definition.checkpoint
    if own is None and not location and not any(definition.inner_settings()):
        return definition.with_checkpoint(True)
    if location and own is not False:
        config = own if isinstance(own, CheckpointConfig) else defaults()
        return definition.with_checkpoint(config.overridden_by(CheckpointConfig(location=location, provider=None)))
    return definition


def _typed(name: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value)
    except PydanticUserError:  # pydantic cannot convert to this class: the flow gets the value as it is
        return value
    except ValidationError as error:
        problems = "; ".join(item["msg"] for item in error.errors(include_url=False))
        raise click.UsageError(f"--input {name}: {problems}. For other than text: {name}:=JSON") from None
