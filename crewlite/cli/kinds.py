"""Crews, agents and flows: what each takes on the command line, and how it is kicked off."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias, get_type_hints

import click
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from crewlite import Agent, CheckpointConfig, Crew
from crewlite.errors import ConfigError
from crewlite.flow import FlowFunction
from crewlite.state.config import defaults

Flow: TypeAlias = FlowFunction[..., Any]
Runnable: TypeAlias = Crew | Agent | Flow
KINDS = (Crew, Agent, FlowFunction)


def kind_of(definition: Runnable) -> str:
    """The kind that its runs are recorded with: agent, flow or crew."""
    return "agent" if isinstance(definition, Agent) else "flow" if isinstance(definition, FlowFunction) else "crew"


def name_of(definition: Runnable) -> str:
    """What its runs are recorded as runs of."""
    return definition.role if isinstance(definition, Agent) else definition.name


def check_takes(definition: Runnable, inputs: Mapping[str, Any], message: str | None, model: str | None) -> None:
    """Raises UsageError for what this kind of definition does not take."""
    messages = isinstance(definition, Agent)
    if messages and inputs:
        raise click.UsageError("an agent takes no inputs; ask it something: --message TEXT")
    if not messages and message is not None:
        raise click.UsageError(f"--message is for an agent, and this is a {kind_of(definition)}: --input NAME=TEXT")
    if isinstance(definition, FlowFunction):
        if model:
            raise click.UsageError(
                f"--model is for crews and agents: what flow {definition.name!r} asks is chosen in its code"
            )
        try:
            definition.as_inputs(inputs)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None


def check_whole(definition: Runnable, inputs: Mapping[str, Any], message: str | None) -> None:
    """Raises UsageError if a new run cannot begin with no more than this. Of a crew, the run itself says so."""
    if isinstance(definition, Agent) and message is None:
        raise click.UsageError("an agent is to be asked something: --message TEXT")
    if isinstance(definition, FlowFunction):
        try:
            inspect.signature(definition.func).bind(**inputs)
        except TypeError as error:
            raise click.UsageError(f"flow {definition.name!r}: {error}. Say it: --input NAME=TEXT") from None


def with_types(definition: Runnable, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as the parameters of a flow say they are: `n=3` is a number for `n: int`. Others as they were given.

    Raises UsageError for one that is not what its parameter wants.
    """
    if not isinstance(definition, FlowFunction) or not inputs:
        return dict(inputs)
    try:
        hints = get_type_hints(definition.func)
    except (NameError, TypeError):  # a name that only type checkers know: nobody can say what is wanted
        return dict(inputs)
    return {name: _typed(name, value, hints[name]) if name in hints else value for name, value in inputs.items()}


def saving(definition: Runnable, location: str | None) -> Runnable:
    """The same, kept on disk if nothing in it says otherwise, and at this location if one is given."""
    own = definition.checkpoint
    tasks = definition.tasks if isinstance(definition, Crew) else ()
    inner = any(task.checkpoint or (task.agent and task.agent.checkpoint) for task in tasks)
    if own is None and not location and not inner:
        return _with_checkpoint(definition, True)
    if location and own is not False:
        config = own if isinstance(own, CheckpointConfig) else defaults()
        return _with_checkpoint(definition, config.overridden_by(CheckpointConfig(location=location, provider=None)))
    return definition


def on_model(definition: Runnable, model: str) -> Runnable:
    """The same with this model for everybody."""
    if isinstance(definition, Agent):
        return definition.model_copy(update={"llm": model})
    if isinstance(definition, FlowFunction):
        return definition
    people: dict[Agent, Agent] = {}
    everybody = [*definition.agents, *(task.agent for task in definition.tasks if task.agent)]
    for one in everybody:
        people.setdefault(one, one.model_copy(update={"llm": model}))
    tasks: dict[Any, Any] = {}
    for task in definition.tasks:  # a task builds on earlier ones only
        context = None if task.context is None else tuple(tasks[other] for other in task.context)
        agent = people[task.agent] if task.agent else None
        tasks[task] = task.model_copy(update={"agent": agent, "context": context})
    agents = tuple(people[agent] for agent in definition.agents)
    return definition.model_copy(update={"llm": model, "agents": agents, "tasks": tuple(tasks.values())})


def _typed(name: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value)
    except PydanticUserError:  # a class that pydantic knows nothing of: the flow takes it as it comes
        return value
    except ValidationError as error:
        problems = "; ".join(item["msg"] for item in error.errors(include_url=False))
        raise click.UsageError(f"--input {name}: {problems}. For other than text: {name}:=JSON") from None


def _with_checkpoint(definition: Runnable, setting: CheckpointConfig | bool) -> Runnable:
    if not isinstance(definition, FlowFunction):
        return definition.model_copy(update={"checkpoint": setting})
    other = copy.copy(definition)
    other.checkpoint = setting
    return other
