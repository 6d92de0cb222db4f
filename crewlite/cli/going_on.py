"""`crewlite checkpoint resume` and `fork`: going on with what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from crewlite import Agent, CheckpointConfig, Crew
from crewlite.cli.checkpoint.where import Asked, Place, location_of, ref_argument
from crewlite.cli.definitions import Runnable, find, of_the_project
from crewlite.cli.shell import Again
from crewlite.cli.stage import Manner, Stage, manner_options, pairs
from crewlite.llm.models import named

if TYPE_CHECKING:
    from crewlite.state.history import RunHistory

_CREW = "Where its definition is. [default: crew in [tool.crewlite] of pyproject.toml, else what the record holds]"


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--crew", "target", metavar="MODULE:ATTRIBUTE", help=_CREW)
@click.option("--location", metavar="PATH", help="Directory or database. [default: the one of this directory]")
@manner_options
@click.pass_context
def resume(ctx: click.Context, manner: Manner, ref: str | None, target: str | None, location: str | None) -> None:
    """Go on with a run where it stopped, and print its answer.

    REF is a run, run/branch or a checkpoint; without it, the newest run. Nothing that is recorded is paid again. Of a
    finished run, the stored answer is printed.
    """
    stage = Stage(manner)
    with stage.set_up():
        with Asked(location or location_of(ctx), False).open(ref) as place:
            run = place.history.run(place.ref or "latest")
            stage.again = Again(place.location, target, manner.model)
            if run.status == "finished" and target is None and _answer(stage, run):
                return
            source = CheckpointConfig(location=place.location, provider=None, restore_from=_exactly(place, run))
            definition = _definition(stage, run, source, target)
        stage.say(f"Going on with {_named(run)}.")
        stage.kickoff(definition, source=source)


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--branch", metavar="NAME", help="Name of the new branch; one is made up if it is left out.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input to change; NAME:=JSON likewise.")
@click.option("--message", metavar="TEXT", help="What to ask instead, of an agent.")
@click.option("--no-run", is_flag=True, help="Only make the branch, and print its name.")
@click.option("--crew", "target", metavar="MODULE:ATTRIBUTE", help=_CREW)
@click.option("--location", metavar="PATH", help="Directory or database. [default: the one of this directory]")
@manner_options
@click.pass_context
def fork(
    ctx: click.Context,
    manner: Manner,
    ref: str | None,
    branch: str | None,
    inputs: Sequence[str],
    message: str | None,
    no_run: bool,
    target: str | None,
    location: str | None,
) -> None:
    """Begin a branch at a checkpoint, run it, and print its answer.

    REF is a checkpoint, or a run or run/branch, which is forked at its head; without it, the newest run. What was
    recorded before is shared and not paid again, except where --input changes what was asked. The run itself stays as
    it is.
    """
    given = pairs(inputs, "--input")
    if no_run and (given or message or manner.model or manner.answers or manner.rerun):
        raise click.UsageError("--no-run only makes the branch; inputs and models are for the run of it")
    stage = Stage(manner)
    with stage.set_up():
        with Asked(location or location_of(ctx), False).open(ref) as place:
            run = place.history.run(place.ref or "latest")
            stage.again = Again(place.location, target, manner.model)
            if no_run:
                made = place.history.fork(place.ref or "latest", branch=branch)
                name = f"{made.run_id}/{made.branch}"
                stage.say(f"Made {name}. To run it: {stage.again.line('resume', name)}")
                return stage.branch(made.run_id, made.branch)
            source = CheckpointConfig(location=place.location, provider=None, restore_from=_exactly(place, run))
            definition = _definition(stage, run, source, target)  # first: what cannot be run is not forked
            _check_takes(definition, given, message)
            made = place.history.fork(place.ref or "latest", branch=branch)
        stage.say(f"Forked {_named(run)}: {made.run_id}/{made.branch}.")
        there = source.model_copy(update={"restore_from": f"{made.run_id}/{made.branch}"})
        stage.kickoff(definition.bound_to(None), inputs=given or None, message=message, source=there)
    return None


def _answer(stage: Stage, run: RunHistory) -> bool:
    """Print the stored answer of a finished run. False if it is of a kind that has none to print."""
    outcome = next((step.value for step in run.steps if step.address == ""), None)
    raw = _raw(outcome, run)
    if raw is None:
        return False
    stage.say(f"{_named(run)} has finished before; this is its stored answer. To run it with what was changed: --crew.")
    stage.answer(raw, run.run_id, run.usage.model_dump(), None)
    return True


def _raw(outcome: Any, run: RunHistory) -> str | None:
    """The text of a recorded result: of an agent, its answer; of a crew, that of its last task."""
    if not isinstance(outcome, dict):
        return None
    if isinstance(outcome.get("raw"), str):
        return str(outcome["raw"])
    tasks = outcome.get("tasks") or [None]
    last = next((step.value for step in run.steps if step.address == tasks[-1]), None)
    return str(last["raw"]) if isinstance(last, dict) and isinstance(last.get("raw"), str) else None


def _exactly(place: Place, run: RunHistory) -> str:
    """The ref to go on from: the checkpoint that was named, or the head of the branch, whatever is newest later."""
    found = f"{run.run_id}/{run.branch}"
    return found if place.ref in (None, "latest", run.run_id, run.branch, found) else str(place.ref)


def _definition(stage: Stage, run: RunHistory, source: CheckpointConfig, target: str | None) -> Runnable:
    """What the run is of: as named, as the project names it if that fits, else rebuilt from the record."""
    if target is not None:
        return find(target)
    if project := of_the_project():
        definition = find(project)
        if _name_of(definition) == (run.definition["kind"], run.definition["name"]):
            return definition
        stage.say(
            f"pyproject.toml names {' '.join(_name_of(definition))} ({project}), and this run is of "
            f"{run.definition['kind']} {run.definition['name']}; it is rebuilt from its record."
        )
        stage.again = replace(stage.again, target=None)
    kind = Agent if run.definition["kind"] == "agent" else Crew
    model = stage.manner.model
    return kind.from_checkpoint(source, bind={"llm": named(model)} if model else None)


def _name_of(definition: Runnable) -> tuple[str, str]:
    return ("agent", definition.role) if isinstance(definition, Agent) else ("crew", definition.name)


def _named(run: RunHistory) -> str:
    """The run in words."""
    return f"{run.run_id}/{run.branch} ({run.definition['kind']} {run.definition['name']})"


def _check_takes(definition: Runnable, inputs: dict[str, Any], message: str | None) -> None:
    if isinstance(definition, Agent) and inputs:
        raise click.UsageError("an agent takes no inputs; to ask it something else: --message TEXT")
    if not isinstance(definition, Agent) and message is not None:
        raise click.UsageError("--message is for an agent, and this is a crew: --input NAME=TEXT")
