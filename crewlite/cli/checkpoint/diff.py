"""`crewlite checkpoint diff`: two runs, branches or checkpoints beside each other."""

from __future__ import annotations

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.export import check_free, is_page, write_page
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument

LINE_STYLES = {"-": "red", "+": "green", "@": "cyan", "\\": "dim", "~": "yellow"}


@click.command("diff")
@ref_argument("a", "A", required=True)
@ref_argument("b", "B", required=True)
@click.option("-o", "--output", metavar="FILE.html", help="Write a page instead.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@options()
def diff(asked: Asked, a: str, b: str, output: str | None, force: bool) -> None:
    """Compare two runs, branches or checkpoints.

    Inputs, settings, the outputs of steps, state, tokens, cost and time of B beside those of A. A checkpoint stands for
    its run as it was there.
    """
    if output is not None:
        if not is_page(output):
            raise click.UsageError(f"--output is {output!r}; wanted a page, such as diff.html. For data: --json.")
        check_free(output, force=force)
    with asked.open(a) as opened:
        found = opened.history.diff(opened.ref or "latest", b)
        if output is not None:
            write_page(found.as_html(), output)
        if asked.as_json:
            return document.answer({"location": opened.location, "differ": bool(found), **document.plain(found)})
        screen = Screen()
        if output is not None:
            return screen.line(f"wrote {output}", whole=True)
        screen.lines([(line, LINE_STYLES.get(mark, ""))] for mark, line in found.marked_lines())
    return None
