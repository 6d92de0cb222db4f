"""`crewlite checkpoint list` and `tree`: checkpoints or runs, newest first, and runs with the forks along each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.hints import status_of_run
from crewlite.cli.checkpoint.screen import Column, Node, Part, Screen
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument, refs
from crewlite.cli.checkpoint.words import name_of
from crewlite.cli.exits import notice
from crewlite.console.text import style_of
from crewlite.ids import short
from crewlite.pages.rendering import cost
from crewlite.state.journal.lineage import UNREADABLE
from crewlite.state.reading.checkpoints import NamedPlace, by_place
from crewlite.texts.wording import number_of

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


_SHOWN = 10  # runs of a tree that are shown without --all
_FIRST, _LAST = 2, 3  # checkpoints of a branch that are shown without --all
_NAMES = ("id", "run_id", "branch", "seq", "parent_id", "trigger", "address", "label", "created_at", "abandoned")


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
        raise click.UsageError("--before is the id of a checkpoint, --runs lists runs: pass only one of the two.")
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
        opened.answer(checkpoints=listing, more=left)
    elif shown:
        screen = Screen()
        screen.table(_COLUMNS, [_row(screen, one) for one in by_place(shown)])
    else:
        notice(_nothing(opened, "checkpoints", before))
    if left:
        notice(f"There are older ones: --before {short(shown[-1].id)}, or --all")


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
        opened.answer(runs=listing, more=left > 0)
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
        said: Part = (run.status_text, style_of(status))
        total = len(run.definition.get("tasks", ()))
        tasks = f"{len(run.tasks)}/{total}" if total else ""
        when: Part = (screen.when(run.started_at), "dim")
        paid: Part = cost(usage.cost) or ("" if screen.terminal else "unknown")
        name = name_of(run.definition)
    except UNREADABLE as problem:
        bad = document.status_of_unreadable(problem)
        return [run.run_id, run.branch, (bad, style_of(bad)), "", "", "", "", "see: doctor"]
    return [run.run_id, run.branch, said, tasks, f"{usage.total_tokens:,}", paid, when, name]


def _nothing(opened: Opened, what: str, before: str | None) -> str:
    older = " older than that" if before else ""
    of = f" of {opened.ref}" if opened.ref else ""
    return f"No {what}{of}{older} in {opened.location}."


@click.command()
@ref_argument("what", "[RUN_OR_LOCATION]")
@click.option("--run", "run", metavar="RUN", shell_complete=refs, help="Only this run.")
@click.option("--all", "whole", is_flag=True, help="All runs and all checkpoints, not only the first and last.")
@options()
def tree(asked: Asked, what: str | None, run: str | None, whole: bool) -> None:
    """Show runs, their forks and checkpoints as a tree."""
    with asked.open(what) as opened:
        named = run or opened.ref
        wanted = opened.history.run(named).run_id if named else None
        branches = opened.history.runs(wanted)
        runs = [(run_id, list(group)) for run_id, group in groupby(branches, key=lambda one: one.run_id)]
        shown = runs if whole else runs[:_SHOWN]
        if asked.as_json:
            return _answer(opened, shown, len(runs) - len(shown))
        if not runs:
            notice(f"No runs in {opened.location}.")
        screen = Screen()
        for number, (run_id, group) in enumerate(shown):
            if number:
                screen.line()
            screen.tree([_Run(screen, run_id, group, whole).root])
        if left := len(runs) - len(shown):
            screen.line()
            screen.line((f"... {number_of(left, 'older run')}: --all", "dim"))
    return None


def _answer(opened: Opened, runs: Sequence[tuple[str, Sequence[RunHistory]]], left: int) -> None:
    """Answer in JSON. `left`: how many older runs are left out."""
    branches = [
        document.of_run(one, checkpoints=document.of_checkpoints(_own(one, abandoned=True) or ()))
        for _, group in runs
        for one in group
    ]
    opened.answer(runs=branches, more=left > 0)
    if left:
        notice(f"{number_of(left, 'older run')} left out: --all")


def _own(run: RunHistory, *, abandoned: bool = False) -> list[Checkpoint] | None:
    """Return the checkpoints of the branch itself, without inherited ones; None if the branch cannot be read."""
    try:
        return [one for one in run.checkpoints(abandoned=abandoned) if one.branch == run.branch]
    except UNREADABLE:
        return None


class _Run:
    """One run as a tree. A fork is placed below the checkpoint it is forked from, or, without one, below its base."""

    def __init__(self, screen: Screen, run_id: str, branches: Sequence[RunHistory], whole: bool) -> None:
        self._screen, self._whole = screen, whole
        self._branches = {one.branch: (self._head(one), one) for one in branches}
        self._checkpoints = {name: _own(one) for name, (_, one) in self._branches.items()}
        self._forks: dict[tuple[str, str | None], list[Node]] = {}
        self.root = Node([(run_id, "bold"), *self._about(branches)])
        for name, (head, one) in self._branches.items():
            self._hang(name, head, one)
        for name, (head, one) in self._branches.items():
            head.below += self._forks.get((name, None), [])
            if (checkpoints := self._checkpoints[name]) is not None:
                head.below += self._lines(name, checkpoints, first=_FIRST)
                head.below += self._tails(one)

    def _about(self, branches: Sequence[RunHistory]) -> list[Part]:
        for one in branches:
            try:
                return ["  ", (f"{name_of(one.definition)}, begun {self._screen.when(one.started_at)}", "dim")]
            except UNREADABLE:
                continue
        return []

    def _head(self, run: RunHistory) -> Node:
        """Build the line of a branch."""
        try:
            status, usage, tasks, now = run.status, run.usage, run.tasks, status_of_run(run)
            total = len(run.definition.get("tasks", ()))
        except UNREADABLE as problem:
            bad = document.status_of_unreadable(problem)
            return Node([self._screen.mark(bad), " ", run.branch, "  ", (bad, style_of(bad)), f": {problem}"])
        has = "inherits " if status == "unfinished" and not run.kicked_off else ""
        done = f", {has}{len(tasks)} of {number_of(total, 'task')}" if total else ""
        about = f"{done}, {number_of(usage.total_tokens, 'token')}"
        head: list[Part] = [self._screen.mark(status), " ", (run.branch, "bold")]
        return Node([*head, "  ", (now, style_of(status)), (about, "dim")])

    def _hang(self, name: str, head: Node, run: RunHistory) -> None:
        """Place a branch in the tree: below the run, or below the checkpoint that it is forked from."""
        base = None if self._checkpoints[name] is None else run.base
        if base is None or base.branch not in self._branches:
            self.root.below.append(head)
            return
        there = [one.id for one in _own(self._branches[base.branch][1], abandoned=True) or ()]
        at = base.checkpoint_id if base.checkpoint_id in there else None
        self._forks.setdefault((base.branch, at), []).append(head)

    def _lines(self, branch: str, checkpoints: Sequence[Checkpoint], *, first: int) -> list[Node]:
        """Build the lines of checkpoints: the `first` ones and the last ones, and those with a label or a fork."""
        nodes, places, hidden = list[Node](), by_place(checkpoints), 0
        every = self._whole or len(places) <= first + _LAST + 1
        for number, place in enumerate(places):
            forks = [fork for at in sorted(place.ids) for fork in self._forks.get((branch, at), [])]
            shown = every or number < first or number >= len(places) - _LAST
            if not (forks or place.labels or shown):
                hidden += 1
                continue
            if hidden:
                nodes.append(Node([(f"... {hidden} more: --all", "dim")]))
                hidden = 0
            nodes.append(Node(self._checkpoint(place, last=bool(first) and number == len(places) - 1), forks))
        return nodes

    def _tails(self, run: RunHistory) -> list[Node]:
        """Build a line for each tail that a rewind has abandoned, with the checkpoints that it alone has."""
        nodes, shown = list[Node](), set[str]()
        for tail, rewind in zip(run.abandoned, run.rewinds, strict=True):
            own = [one for one in tail.checkpoints() if one.abandoned and one.id not in shown]
            shown |= {one.id for one in own}
            said = f"  {tail.status}, abandoned {self._screen.when(rewind.at)}"
            why = f": {rewind.reason}" if rewind.reason else ""
            line: list[Part] = [self._screen.mark("open"), f" @abandoned:{tail.abandoned_by}", (f"{said}{why}", "dim")]
            nodes.append(Node(line, self._lines(run.branch, own, first=0)))
        return nodes

    def _checkpoint(self, place: NamedPlace[Checkpoint], *, last: bool) -> list[Part]:
        checkpoint = place.checkpoint
        plain = checkpoint.trigger == "task_completed" and checkpoint.address
        at = plain or "  ".join(filter(None, (checkpoint.address, checkpoint.trigger)))
        parts: list[Part] = [self._screen.mark("checkpoint"), " ", (short(checkpoint.id), "cyan"), f"  {at}"]
        if last:
            parts.append(("  head", "bold"))
        parts += [(f"  label:{label}", "magenta") for label in place.labels]
        return [*parts, (f"  {self._screen.when(checkpoint.created_at)}", "dim")]
