"""`crewlite run`: kick off a crew or an agent of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import click

from crewlite import Agent, CheckpointConfig
from crewlite.cli.definitions import Runnable, find, of_the_project
from crewlite.cli.shell import Again
from crewlite.cli.stage import Manner, Stage, manner_options, pairs
from crewlite.state.config import defaults


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@click.option("--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input; NAME:=JSON for other than text.")
@click.option("--inputs-file", type=click.File(encoding="utf-8"), metavar="F.json", help="Inputs; - for stdin.")
@click.option("--message", metavar="TEXT", help="What to ask, of an agent.")
@click.option("--run-id", metavar="ID", help="Name of the run; the same name goes on with it.")
@click.option("--location", metavar="PATH", help="Where to keep it. [default: what it says itself, or ./.checkpoints]")
@manner_options
def run(
    manner: Manner,
    target: str,
    inputs: Sequence[str],
    inputs_file: IO[str] | None,
    message: str | None,
    run_id: str | None,
    location: str | None,
) -> None:
    """Kick off a crew or an agent, and print its answer.

    MODULE:ATTRIBUTE, or path/to/file.py:ATTRIBUTE, is a Crew, an Agent, or a function that makes one. Only the answer
    goes to stdout; what happens meanwhile is shown on stderr. Each step is saved, so a run that was interrupted can go
    on: how is said when it ends.
    """
    given = {**_from_file(inputs_file), **pairs(inputs, "--input")}
    stage = Stage(manner)
    with stage.set_up():
        definition = find(target)
        _check_fits(definition, given, message, run_id)
        definition = saving(definition, location)
        stage.again = Again(location, None if target == of_the_project() else target, manner.model)
        stage.kickoff(definition, inputs=given or None, message=message, run_id=run_id, target=target)


def saving(definition: Runnable, location: str | None) -> Runnable:
    """The same, kept on disk if nothing in it says otherwise, and at this location if one is given."""
    own = definition.checkpoint
    tasks = () if isinstance(definition, Agent) else definition.tasks
    inner = any(task.checkpoint or (task.agent and task.agent.checkpoint) for task in tasks)
    if own is None and not location and not inner:
        return definition.model_copy(update={"checkpoint": True})
    if location and own is not False:
        config = own if isinstance(own, CheckpointConfig) else defaults()
        there = CheckpointConfig(location=location, provider=None)
        return definition.model_copy(update={"checkpoint": config.overridden_by(there)})
    return definition


def _check_fits(definition: Runnable, inputs: dict[str, Any], message: str | None, run_id: str | None) -> None:
    """Raises UsageError for what this kind of definition does not take."""
    if isinstance(definition, Agent):
        if inputs:
            raise click.UsageError("an agent takes no inputs; ask it something: --message TEXT")
        if message is None and run_id is None:
            raise click.UsageError("an agent is to be asked something: --message TEXT")
    elif message is not None:
        raise click.UsageError("--message is for an agent, and this is a crew: --input NAME=TEXT")


def _from_file(file: IO[str] | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        told = json.load(file)
    except ValueError as error:
        raise click.UsageError(f"--inputs-file: {file.name} is no JSON ({error})") from error
    if not isinstance(told, dict):
        raise click.UsageError(f"--inputs-file: {file.name} holds {type(told).__name__}; wanted an object of inputs")
    return told
