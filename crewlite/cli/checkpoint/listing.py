"""`crewlite checkpoint list`: checkpoints, or runs, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.info import name_of
from crewlite.cli.checkpoint.screen import STYLES, Column, Part, Screen, cost
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument, refs
from crewlite.cli.exits import notice
from crewlite.errors import JournalCorrupt
from crewlite.ids import short
from crewlite.state.reading.checkpoints import NamedPlace, by_place
from crewlite.wording import number_of

if TYPE_CHECKING:
    from crewlite.state.providers import CheckpointInfo
    from crewlite.state.reading.checkpoint import Checkpoint
    from crewlite.state.run_history import RunHistory

_COLUMNS = (
    Column("id"),
    Column("run", least=16),
    Column("branch", least=12),
    Column("trigger", spare=2),
    Column("at", least=12),
    Column("when", spare=1),
    Column("label", least=8),
)
_RUNS = (
    Column("run", least=16),
    Column("branch", least=12),
    Column("status"),
    Column("tasks", right=True, spare=1),
    Column("tokens", right=True),
    Column("cost", right=True, spare=3),
    Column("when", spare=2),
    Column("of", least=8, spare=4),
)


@click.command("list")
@ref_argument("what", "[RUN_OR_LOCATION]")
@click.option("--runs", "of_runs", is_flag=True, help="List runs and their branches instead.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--all", "whole", is_flag=True, help="All of them.")
@click.option("--before", metavar="ID", shell_complete=refs, help="Only checkpoints older than this: the next page.")
@options()
def list_(asked: Asked, what: str | None, of_runs: bool, limit: int, whole: bool, before: str | None) -> None:
    """List checkpoints, newest first.

    Of all runs kept at a location, or of one run or branch.
    """
    if of_runs and before:
        raise click.UsageError("--before is the id of a checkpoint, --runs lists runs: take one of them.")
    with asked.open(what) as opened:
        if of_runs:
            _runs(asked, opened, None if whole else limit)
        else:
            _checkpoints(asked, opened, None if whole else limit, before)


def _checkpoints(asked: Asked, opened: Opened, limit: int | None, before: str | None) -> None:
    after = opened.history.locate(before)[1] if before and len(before) < 32 else before
    more = None if limit is None else limit + 1
    if opened.ref is None:
        found: Sequence[CheckpointInfo | Checkpoint] = opened.history.checkpoints(limit=more, before=after)
    else:
        found = _of_run(opened, opened.ref, after)
    shown = found[:limit]
    left = len(found) > len(shown)
    if asked.as_json:
        names = _NAMES if opened.ref is None else (*_NAMES, "version")
        listing = [{name: getattr(one, name) for name in names} for one in shown]
        document.answer({"location": opened.location, "checkpoints": listing, "more": left})
    elif shown:
        screen = Screen()
        screen.table(_COLUMNS, [_row(screen, one) for one in by_place(shown)])
    else:
        notice(_nothing(opened, "checkpoints", before))
    if left:
        notice(f"There are older ones: --before {short(shown[-1].id)}, or --all")


_NAMES = ("id", "run_id", "branch", "seq", "parent_id", "trigger", "address", "label", "created_at", "abandoned")


def _of_run(opened: Opened, ref: str, before: str | None) -> list[CheckpointInfo | Checkpoint]:
    """The checkpoints of a run, newest first; of one branch, if the ref says which."""
    run = opened.history.run(ref)
    whole = ref == run.run_id
    branches = opened.history.runs(run.run_id) if whole else [run]
    found = {one.id: one for branch in branches for one in branch.checkpoints(abandoned=True)}
    return [found[name] for name in sorted(found, reverse=True) if before is None or name < before]


def _row(screen: Screen, place: NamedPlace[CheckpointInfo | Checkpoint]) -> list[Part]:
    one = place.checkpoint
    moment = one.created_at if isinstance(one.created_at, datetime) else datetime.fromisoformat(one.created_at)
    when: Part = (screen.when(moment), "dim")
    branch: Part = (f"{one.branch} (abandoned)", "dim") if one.abandoned else one.branch
    return [(short(one.id), "cyan"), one.run_id, branch, one.trigger, one.address, when, ", ".join(place.labels)]


def _runs(asked: Asked, opened: Opened, limit: int | None) -> None:
    found = opened.history.runs(opened.history.run(opened.ref).run_id if opened.ref else None)
    shown = found[:limit]
    left = len(found) - len(shown)
    if asked.as_json:
        listing = [document.of_run(run) for run in shown]
        document.answer({"location": opened.location, "runs": listing, "more": left > 0})
    elif shown:
        screen = Screen()
        screen.table(_RUNS, [_run_row(screen, run) for run in shown])
    else:
        notice(_nothing(opened, "runs", None))
    if left:
        notice(f"{number_of(left, 'older run')} left out: --limit {len(found)}, or --all")


def _run_row(screen: Screen, run: RunHistory) -> list[Part]:
    try:
        status, usage = run.status, run.usage
        said: Part = (run.status_text, STYLES[status])
        total = len(run.definition.get("tasks", ()))
        tasks = f"{len(run.tasks)}/{total}" if total else ""
        when: Part = (screen.when(run.started_at), "dim")
        paid: Part = cost(usage.cost) or ("" if screen.terminal else "unknown")
        name = name_of(run.definition)
    except JournalCorrupt:
        return [run.run_id, run.branch, ("damaged", STYLES["damaged"]), "", "", "", "", "see: doctor"]
    return [run.run_id, run.branch, said, tasks, f"{usage.total_tokens:,}", paid, when, name]


def _nothing(opened: Opened, what: str, before: str | None) -> str:
    older = " older than that" if before else ""
    of = f" of {opened.ref}" if opened.ref else ""
    return f"No {what}{of}{older} in {opened.location}."
