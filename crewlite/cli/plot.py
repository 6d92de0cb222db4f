"""`crewlite plot`: draw a flow of methods, or what happened in one of its runs."""

from __future__ import annotations

from typing import Any

import click

from crewlite import CheckpointConfig
from crewlite.cli.checkpoint.where import refs
from crewlite.cli.definitions import find, of_the_project, saving
from crewlite.cli.exits import Failed, writing
from crewlite.cli.shell import detected
from crewlite.flow import Flow


@click.command()
@click.argument("what", metavar="[MODULE:FLOW | RUN]", required=False, shell_complete=refs)
@click.option("--crew", "target", metavar="MODULE:FLOW", help="The flow of RUN. [default: crew in pyproject.toml]")
@click.option("-o", "--output", metavar="F.html", help="Where to write the page. [default: crewlite_flow.html]")
@click.option("--mermaid", is_flag=True, help="Print the graph as Mermaid text instead.")
@click.option("--show", is_flag=True, help="Open the page in a browser.")
@click.option("--location", metavar="PATH", help="Where the run is kept. [default: what the flow says itself]")
def plot(
    what: str | None, target: str | None, output: str | None, mermaid: bool, show: bool, location: str | None
) -> None:
    """Draw a flow of methods, or one of its runs, as a page of HTML.

    MODULE:FLOW, or path/to/file.py:FLOW, is a class of flows: the page shows its graph. RUN is a run_id or another ref:
    the page shows what happened in it, be it at work, waiting, failed or finished. The path of the page goes to stdout.
    """
    named = what if what and ":" in what else None
    run = what if named is None else None
    if named and target:
        raise click.UsageError(
            f"{named} names a flow, and so does --crew: name one flow, or pass RUN --crew MODULE:FLOW"
        )
    if mermaid and (run or output or show):
        raise click.UsageError(
            "--mermaid prints the graph alone, and writes no page: leave out RUN, --output and --show"
        )
    flow = _flow(named or target or of_the_project())
    if mermaid:
        with writing():
            click.echo(flow.mermaid(), nl=False)
        return
    if run and not isinstance(flow.checkpoint, CheckpointConfig):
        location = location or detected()
    try:
        path = saving(flow, location).plot(output or "crewlite_flow.html", show, run_id=run)
    except OSError as error:
        raise Failed(f"the page was not written: {error}") from error
    with writing():
        click.echo(path)


def _flow(target: str | None) -> Flow[Any]:
    """Import and return the flow. Raises UsageError without a target, and for one that is no flow of methods."""
    if target is None:
        raise click.UsageError(
            'no flow is named: wanted MODULE:FLOW, a run with --crew MODULE:FLOW, or crew = "MODULE:FLOW" under '
            "[tool.crewlite] in pyproject.toml"
        )
    flow = find(target)
    if not isinstance(flow, Flow):
        raise click.UsageError(f"{target} is {flow.run_kind} {flow.run_name!r}; wanted a class of flows, with methods")
    return flow
