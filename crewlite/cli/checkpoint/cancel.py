"""`crewlite checkpoint cancel`: stop a run, wherever it is at work."""

from __future__ import annotations

import click

from crewlite.cli.checkpoint import document, hints
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument


@click.command()
@ref_argument("ref", "REF", required=True)
@options()
def cancel(asked: Asked, ref: str) -> None:
    """Stop a run, wherever it is at work.

    REF is a run or run/branch. Whoever is at work on it, here or on another machine, stops within a second. What is
    recorded is kept, and the run goes on when it is resumed. One that waits for people, or was cut, is marked.
    """
    with asked.open(ref) as opened:
        opened.history.cancel(opened.ref or "latest")
        run = opened.history.run(opened.ref or "latest")
        if asked.as_json:
            name = {"run_id": run.run_id, "branch": run.branch, "status": run.status}
            return document.answer({"location": opened.location, **name})
        screen = Screen()
        screen.line(screen.mark(run.status), f" {run.run_id}/{run.branch} is cancelled", whole=True)
        screen.line()
        hints.tell(screen, opened, run)
    return None
