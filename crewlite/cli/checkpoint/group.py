"""The group `crewlite checkpoint`. Without a subcommand it opens the terminal view, or prints the tree of runs."""

from __future__ import annotations

import importlib.util
import sys

import click

from crewlite.cli.checkpoint.where import Asked, options
from crewlite.cli.exits import notice
from crewlite.cli.lazy_group import LazyGroup
from crewlite.lazy import lazy

tree = lazy("crewlite.cli.checkpoint.tree")
view = lazy("crewlite.tui.verbs")

_HOME = "crewlite.cli.checkpoint"


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    late={
        "answer": (f"{_HOME}.answer:answer", "Answer a question that a run waits with."),
        "cancel": (f"{_HOME}.cancel:cancel", "Stop a run, wherever it is at work."),
        "delete": (f"{_HOME}.maintenance:delete_", "Delete a run with all its branches."),
        "diff": (f"{_HOME}.diff:diff", "Compare two runs, branches or checkpoints."),
        "doctor": (f"{_HOME}.maintenance:doctor", "Find what is not as it was written, and mend it."),
        "explore": ("crewlite.cli.exploring:explore", "Fork one place into several variants, and compare them."),
        "export": (f"{_HOME}.export:export", "Write a whole run to one file: a page, or JSON."),
        "fork": ("crewlite.cli.going_on:fork", "Begin a branch at a checkpoint, run it, and print its answer."),
        "import": (f"{_HOME}.maintenance:import_", "Bring in a run that export wrote."),
        "info": (f"{_HOME}.info:info", "Show one checkpoint, and how to go on from it."),
        "label": (f"{_HOME}.label:label", "Give a place a name, by which every command takes it: run@label:NAME."),
        "list": (f"{_HOME}.listing:list_", "List checkpoints, newest first."),
        "preview": (
            "crewlite.cli.previewing:preview",
            "Say what a resume or a fork would do: which steps answer from the record, which run, and why.",
        ),
        "prune": (f"{_HOME}.maintenance:prune", "Take away old checkpoints and old finished runs."),
        "resume": ("crewlite.cli.going_on:resume", "Go on with a run where it stopped, and print its answer."),
        "rewind": (f"{_HOME}.rewind:rewind", "Go back to a place: the run continues from there when it is resumed."),
        "show": (f"{_HOME}.show:show", "Show one run: its steps, failed attempts, events."),
        "tail": (
            f"{_HOME}.tail:tail",
            "Follow a run, whichever process is at work on it: its events, as they are recorded.",
        ),
        "tree": (f"{_HOME}.tree:tree", "Show runs, their forks and checkpoints as a tree."),
    },
)
@options()
@click.pass_context
def checkpoint(ctx: click.Context, asked: Asked) -> None:
    """Look at what is recorded, and care for it.

    Without a command, at a terminal: a view in which to browse the runs kept here, to resume and to fork them.
    Elsewhere the tree of these runs. Here is ./.checkpoints/ or ./.checkpoints.db unless --location says otherwise.
    """
    if ctx.invoked_subcommand is not None:
        return
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not asked.as_json
    if at_terminal and importlib.util.find_spec("textual"):
        with asked.open() as opened:
            location = opened.location
        view.open_view(location)
    else:
        tree.draw(asked)
        if at_terminal:
            notice("To browse these runs in a view, resume and fork them: pip install 'crewlite[tui]'")
