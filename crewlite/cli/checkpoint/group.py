"""The group `crewlite checkpoint`. Without a subcommand it prints the tree of runs."""

from __future__ import annotations

import click

from crewlite.cli.checkpoint.where import Asked, options
from crewlite.cli.lazy_group import LazyGroup
from crewlite.lazy import lazy

tree = lazy("crewlite.cli.checkpoint.tree")

_HOME = "crewlite.cli.checkpoint"


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    late={
        "answer": (f"{_HOME}.answer:answer", "Answer a question that a run waits with."),
        "cancel": (f"{_HOME}.cancel:cancel", "Stop a run, wherever it is at work."),
        "delete": (f"{_HOME}.maintenance:delete_", "Delete a run with all its branches."),
        "doctor": (f"{_HOME}.maintenance:doctor", "Find what is not as it was written, and mend it."),
        "export": (f"{_HOME}.maintenance:export", "Write a whole run to one JSON file."),
        "fork": ("crewlite.cli.going_on:fork", "Begin a branch at a checkpoint, run it, and print its answer."),
        "import": (f"{_HOME}.maintenance:import_", "Bring in a run that export wrote."),
        "info": (f"{_HOME}.info:info", "Show one checkpoint, and how to go on from it."),
        "list": (f"{_HOME}.listing:list_", "List checkpoints, newest first."),
        "prune": (f"{_HOME}.maintenance:prune", "Take away old checkpoints and old finished runs."),
        "resume": ("crewlite.cli.going_on:resume", "Go on with a run where it stopped, and print its answer."),
        "show": (f"{_HOME}.show:show", "Show one run: its steps, failed attempts, events."),
        "tree": (f"{_HOME}.tree:tree", "Show runs, their forks and checkpoints as a tree."),
    },
)
@options()
@click.pass_context
def checkpoint(ctx: click.Context, asked: Asked) -> None:
    """Look at what is recorded, and care for it.

    Without a command: the tree of the runs kept here, which is ./.checkpoints/ or ./.checkpoints.db unless --location
    says otherwise.
    """
    if ctx.invoked_subcommand is None:
        tree.draw(asked)
