"""`crewlite checkpoint export`, `import` and `diff`: runs as files, and two places beside each other."""

from __future__ import annotations

import os
from pathlib import Path

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument
from crewlite.cli.exits import Failed
from crewlite.cli.shell import DIRECTORY, detected
from crewlite.errors import RefError
from crewlite.lazy import lazy
from crewlite.system import disk

history = lazy("crewlite.state.history")
LINE_STYLES = {"-": "red", "+": "green", "@": "cyan", "\\": "dim", "~": "yellow", "?": "dim"}
"""The styles of the lines of a difference, by their marks."""
_force = click.option("--force", is_flag=True, help="Write over a file that is there.")


@click.command()
@ref_argument("ref", "REF", required=True)
@click.argument("file", metavar="[FILE]", type=click.Path(dir_okay=False), required=False)
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="The same as FILE.")
@_force
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
    _check_free(path, force=force)
    with asked.open(ref) as opened:
        run = opened.run()
        if _is_page(path):
            digest = run.digest
            write_page(opened.history.as_html(run), path)
        else:
            digest = opened.history.export(run, path)
        if asked.as_json:
            return opened.answer(run_id=run.run_id, file=path, digest=digest)
        about = "" if _is_page(path) else f", digest {digest}"
        return Screen().line(f"exported {run.run_id} to {path}{about}", whole=True)


@click.command("import")
@click.argument("file", type=click.Path())
@options()
def import_(asked: Asked, file: str) -> None:
    """Bring in a run that export wrote.

    Whole or not at all. A location that is not there yet is made: ./.checkpoints/ unless --location says otherwise.
    """
    location = asked.location or detected() or DIRECTORY
    if not os.path.exists(file):
        raise RefError(file, "does not exist")  # before a location is created for it
    with history.History(location, make=True) as opened:
        run = opened.import_run(file)
        if asked.as_json:
            return document.answer({"location": location, "digest": run.digest, **document.of_run(run)})
        return Screen().line(f"imported {run.run_id} ({run.status}) into {location}", whole=True)


@click.command("diff")
@ref_argument("a", "A", required=True)
@ref_argument("b", "B", required=True)
@click.option("-o", "--output", metavar="FILE.html", help="Write a page instead.")
@_force
@options()
def diff(asked: Asked, a: str, b: str, output: str | None, force: bool) -> None:
    """Compare two runs, branches or checkpoints.

    Inputs, settings, the outputs of steps, state, tokens, cost and time of B beside those of A. A checkpoint stands for
    its run as it was there.
    """
    if output is not None:
        if not _is_page(output):
            raise click.UsageError(f"--output is {output!r}; wanted a page, such as diff.html. For data: --json.")
        _check_free(output, force=force)
    with asked.open(a) as opened:
        found = opened.history.diff(opened.ref or "latest", b)
        if output is not None:
            write_page(found.as_html(), output)
        if asked.as_json:
            return opened.answer(differ=bool(found), **document.plain(found))
        if output is not None:
            return Screen().line(f"wrote {output}", whole=True)
        return Screen().lines([(line, LINE_STYLES.get(mark, ""))] for mark, line in found.marked_lines())


def write_page(text: str, path: str) -> None:
    """Write a page to a file, all or nothing. Raises Failed."""
    try:
        disk.replace(Path(path).absolute(), text.encode("utf-8", "replace"), mode=0o600, durable=False)
    except OSError as error:
        raise Failed(f"the page was not written: {error}") from error


def _is_page(path: str) -> bool:
    return path.lower().endswith((".html", ".htm"))


def _check_free(path: str, *, force: bool) -> None:
    """Raise UsageError for a file that exists, unless it may be overwritten."""
    if os.path.exists(path) and not force:
        raise click.UsageError(f"{path} exists already; choose another name, or overwrite it with --force.")
