"""`crewlite export`: a run as a page of HTML, or as the JSON file that `import` reads."""

from __future__ import annotations

import os
from pathlib import Path

import click

from crewlite import disk
from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument
from crewlite.cli.exits import Failed


@click.command()
@ref_argument("ref", "REF", required=True)
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False), required=False)
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="The same as FILE.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@options()
def export(asked: Asked, ref: str, file: str | None, output: str | None, force: bool) -> None:
    """Write a whole run to one file: a page, or JSON.

    All branches of the run that REF names. A FILE.html is a page to look at: timelines, prompts, costs, and what
    differs between branches. Any other FILE is JSON for `crewlite checkpoint import`. Both hold what the run recorded:
    share them as you would share that.
    """
    path = output or file
    if path is None or (output and file):
        raise click.UsageError("wanted one file, such as -o run.html for a page, or -o run.json to import elsewhere.")
    check_free(path, force=force)
    with asked.open(ref) as opened:
        run = opened.history.run(opened.ref or "latest")
        if is_page(path):
            digest = run.digest
            write_page(opened.history.as_html(run), path)
        else:
            digest = opened.history.export(run, path)
        if asked.as_json:
            said = {"location": opened.location, "run_id": run.run_id, "file": path, "digest": digest}
            return document.answer(said)
        about = "" if is_page(path) else f", digest {digest}"
        Screen().line(f"exported {run.run_id} to {path}{about}", whole=True)
    return None


def is_page(path: str) -> bool:
    """Return whether a file is to hold a page."""
    return path.lower().endswith((".html", ".htm"))


def check_free(path: str, *, force: bool) -> None:
    """Raise UsageError for a file that exists, unless it may be overwritten."""
    if os.path.exists(path) and not force:
        raise click.UsageError(f"{path} exists already; choose another name, or overwrite it with --force.")


def write_page(text: str, path: str) -> None:
    """Write a page to a file, all or nothing. Raises Failed."""
    try:
        disk.replace(Path(path).absolute(), text.encode("utf-8", "replace"), mode=0o600, durable=False)
    except OSError as error:
        raise Failed(f"the page was not written: {error}") from error
