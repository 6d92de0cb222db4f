"""The `crewlite` command."""

from __future__ import annotations

import click

from crewlite import __version__
from crewlite.cli.demo import demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="crewlite")
def main() -> None:
    """Crews of LLM agents whose runs survive being killed."""


main.add_command(demo)
