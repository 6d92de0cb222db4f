"""`crewlite checkpoint label`: give a place of a run a name."""

from __future__ import annotations

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument
from crewlite.ids import short


@click.command()
@ref_argument("ref", "REF", required=True)
@click.argument("name", metavar="NAME")
@options()
def label(asked: Asked, ref: str, name: str) -> None:
    """Give a place a name, by which every command takes it: run@label:NAME.

    REF is a checkpoint, or a run or branch, which means its newest one. A name is of one place of a run alone. It is
    kept by a new checkpoint at that place, which list and tree show as one with the first. Pruning keeps it.
    """
    with asked.open(ref) as opened:
        made = opened.history.label(opened.ref or "latest", name)
        if asked.as_json:
            return document.answer({"location": opened.location, **document.of_checkpoint(made)})
        screen, at = Screen(), made.address or made.trigger
        said = f" {short(made.id)} {at} is {made.run_id}/{made.branch}@label:{name}"
        screen.line(screen.mark("checkpoint"), said, whole=True)
    return None
