"""`crewlite checkpoint preview`: what a resume or a fork would do, without doing it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from crewlite import CheckpointConfig
from crewlite.cli.checkpoint import hints
from crewlite.cli.checkpoint.where import Asked, options, ref_argument
from crewlite.cli.going_on import EDIT, check_runs, definition_for, exactly, foreseen
from crewlite.cli.kinds import check_takes, with_types
from crewlite.cli.options import CREW, RunOptions, pairs
from crewlite.cli.runner import Runner
from crewlite.cli.shell import Again


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--input", "inputs", multiple=True, metavar="NAME=TEXT", help="An input to change; NAME:=JSON likewise.")
@click.option("--edit", "edits", multiple=True, metavar="ADDRESS=TEXT", help=EDIT)
@click.option("--rerun", multiple=True, metavar="ADDRESS", help="A finished step to run again.")
@click.option("--model", metavar="M", help="Ask this model, whatever the agents have of their own.")
@click.option("--crew", "target", metavar="MODULE:ATTRIBUTE", help=CREW)
@options()
def preview(
    asked: Asked,
    ref: str | None,
    inputs: Sequence[str],
    edits: Sequence[str],
    rerun: Sequence[str],
    model: str | None,
    target: str | None,
) -> None:
    """Say what a resume or a fork would do: which steps answer from the record, which run, and why.

    REF is a run or run/branch, for what a resume would do; a checkpoint, or a run with --input, --edit or --rerun, for
    what a fork there would do. No model is asked, no step runs and nothing is written.
    """
    given, edited = pairs(inputs, "--input"), pairs(edits, "--edit", of="ADDRESS=TEXT", files=True, typed=True)
    runner = Runner(RunOptions(asked.as_json, model))
    with runner.set_up():
        with asked.open(ref) as opened:
            run = opened.history.run(opened.ref or "latest")
            runner.again = Again(opened.location, target, model)
            check_runs(run, f"History({opened.location!r})")
            at = exactly(opened, run)
            source = CheckpointConfig(location=opened.location, provider=None, restore_from=at)
            definition = definition_for(runner, run, source, target)
            check_takes(definition, given, None, model)
            changes = (edited, rerun, with_types(definition, given))
            forks = any(changes) or at not in (run.run_id, f"{run.run_id}/{run.branch}")
            found = foreseen(definition, model, source, changes if forks else None)
        runner.output.preview(found)
        if not forks and (open_calls := run.unsettled):
            runner.say(runner.again.to_settle(hints.ref_of(run), *next(iter(open_calls.items()))))
