"""`crewlite checkpoint prune`, `delete` and `doctor`: care for what is stored."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Part, Screen
from crewlite.cli.checkpoint.where import Asked, options, ref_argument
from crewlite.cli.exits import FAILED, notice, sees_terminal
from crewlite.ids import short
from crewlite.texts.wording import listed, number_of

if TYPE_CHECKING:
    from crewlite.state.verbs.doctor import Finding
    from crewlite.state.verbs.prune import Pruned

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_NAMED = 6  # runs or checkpoints that are listed; of the rest only the number is printed


def _span(text: str) -> timedelta:
    """Convert a number and a unit, such as 7d, 24h or 30m, to a span of time."""
    found = re.fullmatch(r"(\d{1,6})([wdhms])", text.strip().lower())
    if not found:
        raise click.BadParameter(f"{text!r} is not a span of time; wanted a number and a unit: 30m, 24h, 7d, 2w.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


_YES = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@click.command()
@click.option("--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep so many checkpoints of each branch.")
@click.option(
    "--older-than",
    type=_span,
    metavar="SPAN",
    help="Delete finished runs, and results kept for others, of so long ago: 7d, 24h.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be taken away.")
@_YES
@options()
@click.pass_context
def prune(
    ctx: click.Context, asked: Asked, keep_last: int | None, older_than: timedelta | None, dry_run: bool, yes: bool
) -> None:
    """Take away old checkpoints and old finished runs.

    Labelled checkpoints and those that forks start from stay, unfinished runs too, and every run that stays can be
    resumed and forked. On a terminal it asks first; elsewhere --dry-run shows what would go. Ends with exit code 1 if
    a run was left alone because it cannot be read; the others are pruned all the same.
    """
    if keep_last is None and older_than is None:
        raise click.UsageError("nothing says what to prune; pass --keep-last 5, or --older-than 30d, or both.")
    with asked.open() as opened:
        if not dry_run and not yes and sees_terminal():
            rehearsed = opened.history.prune(keep_last=keep_last, older_than=older_than, dry_run=True)
            if rehearsed.runs or rehearsed.checkpoints or rehearsed.results:
                _tell(Screen(stderr=True), rehearsed, rehearsal=True)
                click.confirm("Go on?", abort=True, err=True)
        done = opened.history.prune(keep_last=keep_last, older_than=older_than, dry_run=dry_run)
        if asked.as_json:
            opened.answer(dry_run=dry_run, **document.plain(done))
        else:
            _tell(Screen(), done, rehearsal=dry_run)
    if done.unreadable:
        ctx.exit(FAILED)


@click.command("delete")
@ref_argument("run", "RUN", required=True)
@_YES
@options()
def delete_(asked: Asked, run: str, yes: bool) -> None:
    """Delete a run with all its branches.

    Finished or not; not while a process runs it. On a terminal the command asks first; elsewhere it wants --yes.
    """
    if run == "latest":
        raise click.UsageError("delete needs the name of a run, as another run may have become the latest by now.")
    with asked.open(run) as opened:
        name = opened.ref or run
        branches = [one.branch for one in opened.history.runs() if one.run_id == name]
        if branches and not yes:
            if not sees_terminal():
                raise click.UsageError(f"there is no terminal to ask whether {name} may be deleted: add --yes.")
            notice(f"{name} in {opened.location}: {', '.join(branches)}")
            click.confirm("Delete it?", abort=True, err=True)
        done = opened.history.delete(name)
        if asked.as_json:
            return opened.answer(**document.plain(done))
        return _tell(Screen(), done, rehearsal=False)


def _tell(screen: Screen, done: Pruned, *, rehearsal: bool) -> None:
    would = "would be " if rehearsal else ""
    if done.runs:
        screen.line(f"{number_of(len(done.runs), 'run')} {would}deleted: {listed(done.runs, _NAMED)}", whole=True)
    if done.checkpoints:
        ids = [short(one) for one in done.checkpoints]
        screen.line(f"{number_of(len(ids), 'checkpoint')} {would}taken away: {listed(ids, _NAMED)}", whole=True)
    if done.freed:
        screen.line(f"{_bytes(done.freed)} of journals {would}freed")
    if done.results:
        screen.line(f"{number_of(done.results, 'kept result')} of steps {would}forgotten")
    if not (done.runs or done.checkpoints or done.freed or done.results):
        screen.line("nothing to take away")
    if done.busy:
        screen.line(f"left alone, because processes run them: {listed(done.busy, _NAMED)}", whole=True)
    if done.holding:
        branches = listed(done.holding, _NAMED)
        why = "old turns are kept, because earlier ones of their states stay"
        screen.line(f"{why}: {branches}. Finish, repair or delete these", whole=True)
    if done.unreadable:
        screen.line(f"left alone, because they cannot be read: {listed(done.unreadable, _NAMED)}", whole=True)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@click.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended. What is damaged is set aside, never deleted.")
@options()
@click.pass_context
def doctor(ctx: click.Context, asked: Asked, repair: bool) -> None:
    """Find what is not as it was written, and mend it.

    Ends with exit code 1 if something is wrong that was not mended.
    """
    with asked.open() as opened:
        found = opened.history.doctor(repair=repair)
        if asked.as_json:
            opened.answer(findings=found)
        else:
            _report(Screen(), opened.location, found)
    if not all(finding.repaired for finding in found):
        ctx.exit(FAILED)


def _report(screen: Screen, location: str, found: list[Finding]) -> None:
    if not found:
        screen.line(screen.mark("finished"), f" all is well in {location}", whole=True)
    for finding in found:
        mark = screen.mark("finished" if finding.repaired else "failed")
        screen.line(mark, " ", (finding.what, "bold"), f"  {finding.where}", whole=True)
        remedy = finding.remedy.removeprefix("Done: ").replace("With repair=True", "With --repair")
        rows: list[tuple[str, Part]] = [
            ("found", finding.problem),
            ("done" if finding.repaired else "to do", remedy),
            ("intact up to", finding.sound or ""),
        ]
        screen.fields(rows, indent=2)
    left = [finding for finding in found if not finding.repaired]
    if left:
        screen.line()
        screen.line(f"{len(left)} of {len(found)} not mended" if len(left) < len(found) else f"{len(left)} found")
