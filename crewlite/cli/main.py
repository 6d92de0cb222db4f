"""The `crewlite` command."""

from __future__ import annotations

import click

from crewlite import __version__
from crewlite.cli.lazy_group import LazyGroup


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    late={
        "checkpoint": ("crewlite.cli.checkpoint.group:checkpoint", "Look at what is recorded, and care for it."),
        "completion": ("crewlite.cli.completion:completion", "Print the script that completes crewlite in a shell."),
        "create": ("crewlite.cli.create:create", "Write a small project into a new folder NAME."),
        "demo": ("crewlite.cli.demo:demo", "Run a crew, kill it half way, let it go on: nothing recorded runs again."),
        "export": ("crewlite.cli.checkpoint.export:export", "Write a whole run to one file: a page, or JSON."),
        "plot": ("crewlite.cli.plot:plot", "Draw a flow of methods, or one of its runs, as a page of HTML."),
        "test": ("crewlite.cli.trials:test", "Kick off a crew several times, and have a model score each answer."),
        "train": (
            "crewlite.cli.trials:train",
            "Kick off a crew several times, and write down what its agents learn from feedback on their answers.",
        ),
        "run": ("crewlite.cli.run:run", "Kick off a crew, an agent or a flow, and print its answer."),
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="crewlite")
def main() -> None:
    """Crews of LLM agents whose runs survive being killed."""
