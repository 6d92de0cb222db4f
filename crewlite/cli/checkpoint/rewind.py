"""`crewlite checkpoint rewind`: let a branch go back to an earlier place."""

from __future__ import annotations

import click

from crewlite.cli import effects
from crewlite.cli.checkpoint import document, hints
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument
from crewlite.ids import short


@click.command()
@ref_argument("ref", "REF", required=True)
@click.option("--reason", metavar="TEXT", default="", help="Why, for whoever looks at the run later.")
@click.option("--allow-effects", is_flag=True, help=effects.OPTION)
@options()
def rewind(asked: Asked, ref: str, reason: str, *, allow_effects: bool) -> None:
    """Go back to a place: the run continues from there when it is resumed.

    REF is a checkpoint of the branch that goes back: an id or 8 characters of one, run/branch@task:name, run~1, a
    label; run/branch@abandoned:1 undoes the first rewind. Nothing is erased: what came after stays readable and can be
    forked. To keep the branch as it is, fork the place instead.
    """
    with asked.open(ref) as opened:
        run = effects.unless_refused(
            lambda allow: opened.history.rewind(opened.ref or "latest", reason=reason, allow_effects=allow),
            allow_effects=allow_effects,
        )
        left = run.abandoned[-1] if run.abandoned else None
        if asked.as_json:
            return document.answer({"location": opened.location, **document.of_run(run)})
        screen, newest = Screen(), run.checkpoint()
        at = f" at {short(newest.id)} {newest.address or newest.trigger}" if newest else ""
        screen.line(screen.mark(run.status), f" {run.run_id}/{run.branch} stands{at} again", whole=True)
        if left is not None:
            screen.line(("what came after is   ", "dim"), left.ref, whole=True)
        screen.line()
        hints.tell(screen, opened, run)
    return None
