"""`crewlite checkpoint explore`: variants of a run from a file, run side by side and compared."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Column, Part, Screen
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument
from crewlite.cli.exits import Failed, ended_by_signals
from crewlite.cli.going_on import Recorded
from crewlite.cli.options import RunOptions, allow_effects_option, crew_option, unless_refused
from crewlite.cli.runner import Runner
from crewlite.cli.shell import Again
from crewlite.console.text import style_of
from crewlite.errors import VariantsRefused
from crewlite.llm.models import named
from crewlite.project.yaml_file import YamlFile, read
from crewlite.runtime.exploring.exploration import Exploration, numbers_of, said_by

_COLUMNS = (
    Column("variant"),
    Column("status"),
    *(Column(name, right=True) for name in ("score", "tokens", "cost", "time")),
    Column("branch"),
)


@click.command()
@ref_argument("ref", "REF", required=True)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--judge", metavar="MODEL", help="The model that scores the results, from 0 to 10.")
@click.option("--study", metavar="NAME", help="Name of the comparison. [default: from the place that is explored]")
@click.option(
    "--max-concurrency", type=click.IntRange(min=1), default=4, help="Variants that run at once. [default: 4]"
)
@allow_effects_option
@crew_option
@options()
def explore(
    asked: Asked,
    ref: str,
    file: Path,
    judge: str | None,
    study: str | None,
    max_concurrency: int,
    allow_effects: bool,
    target: str | None,
) -> None:
    """Fork one place into several variants, and compare them.

    REF is a run, run/branch or a checkpoint. FILE is YAML or JSON: names of variants, and below each what it changes:
    model, prompt, inputs, edits, rerun. Each variant gets a branch, named in the table, to go on with. Run again, the
    command continues, and nothing that is recorded is paid again.
    """
    variants = _variants_in(file)
    try:
        with contextlib.redirect_stdout(sys.stderr), ended_by_signals(), asked.open(ref) as opened:
            recorded = Recorded(Runner(RunOptions(asked.as_json)), opened, target)
            definition = recorded.definition(f"History({opened.location!r}).fork(...)").bound_to(None)
            how: dict[str, Any] = {"max_concurrency": max_concurrency, "study": study}
            given = [{"name": name, **keys} for name, keys in variants.entries.items()]
            scored_by = named(judge) if judge else None
            found = unless_refused(
                lambda allow: definition.explore(recorded.source, given, scored_by, **how, allow_effects=allow),
                allow_effects=allow_effects,
            )
    except VariantsRefused as refused:
        raise _refused([(variants.line(name), name, text) for name, text in refused.mistakes], file) from refused
    _show(asked, opened, found)


def _variants_in(file: Path) -> YamlFile:
    """Read the variants of a file. Raises Failed for one that is not understood."""
    found = read(file, Path())
    if found.problems:
        raise _refused([(line, "", text) for line, text in found.problems], file)
    if not found.entries:
        raise Failed(f"{file} holds no variants; wanted names, and below each what it changes, such as model: ...")
    return found


def _refused(mistakes: list[tuple[int, str, str]], file: Path) -> Failed:
    """Build the error for variants that cannot be explored: a line for each mistake, with the line in the file."""
    found = sorted(mistakes, key=lambda one: one[0])
    lines = [f"{file}, line {line}: {f'{name}: ' if name else ''}{text}" for line, name, text in found]
    return Failed("nothing was forked or run.", *lines)


def _show(asked: Asked, opened: Opened, found: Exploration) -> None:
    if asked.as_json:
        # without the object that the kickoff returned: `output` is its text
        rows = [{name: value for name, value in document.plain(row).items() if name != "result"} for row in found]
        about = {"study": found.study, "run_id": found.run_id, "base": found.base}
        return opened.answer(**about, best=found.best and found.best.name, rows=rows)
    screen = Screen()
    shown: list[list[Part]] = [
        [row.name, (row.status, style_of(row.status)), *numbers_of(row), row.ref] for row in found
    ]
    screen.table(_COLUMNS, shown)
    screen.line()
    for row in found:
        screen.line((row.name, "bold"), f": {said_by(row)}")
    lines = Again(opened.location)
    for row in found:
        for address in row.waiting:
            screen.line(("to answer   ", "dim"), lines.line("answer", row.ref, address, "VALUE"), whole=True)
    best = found.best or next((row for row in found if row.status == "finished"), None)
    if best:
        screen.line()
        screen.line(("to read     ", "dim"), lines.line("show", best.ref), whole=True)
        screen.line(("to compare  ", "dim"), lines.line("diff", found.run_id, best.ref), whole=True)
    return None
