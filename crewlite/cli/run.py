"""`crewlite run`: kick off a crew, an agent or a flow of the user's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

import click

from crewlite.cli.checkpoint.where import Asked
from crewlite.cli.definitions import find, of_the_project
from crewlite.cli.kinds import check_takes, check_whole, saving, with_types
from crewlite.cli.options import RunOptions, pairs, run_options
from crewlite.cli.runner import Runner
from crewlite.cli.shell import Again


@click.command()
@click.argument("target", metavar="[MODULE:ATTRIBUTE]", required=False)
@click.option("--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input; NAME:=JSON for other than text.")
@click.option("--inputs-file", type=click.File(encoding="utf-8"), metavar="F.json", help="Inputs; - for stdin.")
@click.option("--message", metavar="TEXT", help="What to ask, of an agent.")
@click.option("--run-id", metavar="ID", help="Name of the run; the same name goes on with it.")
@click.option("--resume", is_flag=True, help="Go on with its newest unfinished run with these inputs, if there is one.")
@run_options(location="Where to keep it. [default: what it says itself, or ./.checkpoints]")
def run(
    asked: Asked,
    chosen: RunOptions,
    target: str | None,
    inputs: Sequence[str],
    inputs_file: IO[str] | None,
    message: str | None,
    run_id: str | None,
    resume: bool,
) -> None:
    """Kick off a crew, an agent or a flow, and print its answer.

    MODULE:ATTRIBUTE, or path/to/file.py:ATTRIBUTE, is a Crew, an Agent, a function that makes one, or a flow: a
    function with @flow, whose inputs are its parameters, or a class, whose inputs set fields of its state. Without it,
    what `crew` in [tool.crewlite] of pyproject.toml names. Only the answer goes to stdout; what happens meanwhile is
    shown on stderr. Each step is saved, so a run that was interrupted, or waits for people, can go on: how is said when
    it ends.
    """
    if resume and run_id is not None:
        raise click.UsageError(
            "--resume searches for an unfinished run, but --run-id names one: pass only one of the two"
        )
    if resume and chosen.wait:
        raise click.UsageError("--resume leaves runs alone that are running: to wait for one, name it with --run-id")
    given = {**from_file(inputs_file), **pairs(inputs, "--input")}
    runner = Runner(chosen)
    with runner.set_up():
        target, to_name = target_or_project(target)
        definition = find(target)
        check_takes(definition, given, message, chosen.model)
        if run_id is None:
            check_whole(definition, given, message)
        given = with_types(definition, given)
        definition = saving(definition, asked.location)
        runner.again = Again(asked.location, to_name, chosen.model)
        runner.kickoff(definition, inputs=given or None, message=message, run_id=run_id, resume=resume, target=target)


def target_or_project(target: str | None) -> tuple[str, str | None]:
    """Return the target, else that of the project; and the target that later commands must name, None for none.

    Raises UsageError if there is none.
    """
    project = of_the_project()
    if found := target or project:
        return found, None if found == project else found
    raise click.UsageError(
        "nothing says what to run: wanted MODULE:ATTRIBUTE, or crew in [tool.crewlite] of pyproject.toml"
    )


def from_file(file: IO[str] | None) -> dict[str, Any]:
    """Return the inputs in a file; {} without one. Raises UsageError."""
    if file is None:
        return {}
    try:
        told = json.load(file)
    except ValueError as error:
        raise click.UsageError(f"--inputs-file: {file.name} is no JSON ({error})") from error
    if not isinstance(told, dict):
        raise click.UsageError(f"--inputs-file: {file.name} holds {type(told).__name__}; wanted an object of inputs")
    return told
