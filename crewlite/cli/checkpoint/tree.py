"""`crewlite checkpoint tree`: runs, their forks where they branch off, and the checkpoints along each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from crewlite.cli.checkpoint import document, hints
from crewlite.cli.checkpoint.info import name_of
from crewlite.cli.checkpoint.screen import STYLES, Node, Part, Screen
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument, refs
from crewlite.cli.exits import notice
from crewlite.errors import JournalCorrupt
from crewlite.ids import short
from crewlite.state.reading.checkpoints import by_place
from crewlite.wording import number_of

if TYPE_CHECKING:
    from crewlite.state.reading.checkpoint import Checkpoint
    from crewlite.state.reading.checkpoints import NamedPlace
    from crewlite.state.run_history import RunHistory

_RUNS = 10  # shown without --all
_FIRST, _LAST = 2, 3  # checkpoints of a branch that are shown without --all


@click.command()
@ref_argument("what", "[RUN_OR_LOCATION]")
@click.option("--run", "run", metavar="RUN", shell_complete=refs, help="Only this run.")
@click.option("--all", "whole", is_flag=True, help="All runs and all checkpoints, not only the first and last.")
@options()
def tree(asked: Asked, what: str | None, run: str | None, whole: bool) -> None:
    """Show runs, their forks and checkpoints as a tree."""
    draw(asked, what, run=run, whole=whole)


def draw(asked: Asked, what: str | None = None, *, run: str | None = None, whole: bool = False) -> None:
    """Draw the tree of a location, or of one run in it."""
    with asked.open(what) as opened:
        named = run or opened.ref
        wanted = opened.history.run(named).run_id if named else None
        branches = opened.history.runs(wanted)
        runs = [(run_id, list(group)) for run_id, group in groupby(branches, key=lambda one: one.run_id)]
        shown = runs if whole else runs[:_RUNS]
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
    branches = []
    for _, group in runs:
        for one in group:
            checkpoints = _own(one, abandoned=True)
            branches.append(document.of_run(one, checkpoints=document.of_checkpoints(checkpoints or ())))
    document.answer({"location": opened.location, "runs": branches, "more": left > 0})
    if left:
        notice(f"{number_of(left, 'older run')} left out: --all")


def _own(run: RunHistory, *, abandoned: bool = False) -> list[Checkpoint] | None:
    """Return the checkpoints of the branch itself, without inherited ones; None if the branch cannot be read."""
    try:
        return [one for one in run.checkpoints(abandoned=abandoned) if one.branch == run.branch]
    except JournalCorrupt:
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
            self._fill(name, head)
            if self._checkpoints[name] is not None:
                head.below += self._tails(one)

    def _about(self, branches: Sequence[RunHistory]) -> list[Part]:
        for one in branches:
            try:
                return ["  ", (f"{name_of(one.definition)}, begun {self._screen.when(one.started_at)}", "dim")]
            except JournalCorrupt:
                continue
        return []

    def _head(self, run: RunHistory) -> Node:
        """Build the line of a branch."""
        try:
            status, usage, tasks, now = run.status, run.usage, run.tasks, hints.status_of_run(run)
            total = len(run.definition.get("tasks", ()))
        except JournalCorrupt as error:
            said: list[Part] = [run.branch, "  ", ("damaged", STYLES["damaged"]), f": {error}"]
            return Node([self._screen.mark("damaged"), " ", *said])
        has = "inherits " if status == "unfinished" and not run.kicked_off else ""
        done = f", {has}{len(tasks)} of {number_of(total, 'task')}" if total else ""
        about: list[Part] = [
            (now, STYLES[status]),
            (f"{done}, {number_of(usage.total_tokens, 'token')}", "dim"),
        ]
        return Node([self._screen.mark(status), " ", (run.branch, "bold"), "  ", *about])

    def _hang(self, name: str, head: Node, run: RunHistory) -> None:
        """Place a branch in the tree: below the run, or below the checkpoint that it is forked from."""
        base = None if self._checkpoints[name] is None else run.base
        if base is None or base.branch not in self._branches:
            self.root.below.append(head)
            return
        there = [one.id for one in _own(self._branches[base.branch][1], abandoned=True) or ()]
        at = base.checkpoint_id if base.checkpoint_id in there else None
        self._forks.setdefault((base.branch, at), []).append(head)

    def _fill(self, name: str, head: Node) -> None:
        """Add the checkpoints of a branch below it, each with the forks made from it."""
        head.below += self._forks.get((name, None), [])
        head.below += self._lines(name, self._checkpoints[name] or [], first=_FIRST)

    def _lines(self, branch: str, checkpoints: Sequence[Checkpoint], *, first: int) -> list[Node]:
        """Build the lines of checkpoints: the `first` ones and the last ones, and those with a label or a fork."""
        nodes, places, hidden = list[Node](), by_place(checkpoints), 0
        for number, place in enumerate(places):
            forks = [fork for at in sorted(place.ids) for fork in self._forks.get((branch, at), [])]
            if not (forks or place.labels or self._shows(number, len(places), first)):
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

    def _shows(self, number: int, count: int, first: int) -> bool:
        return self._whole or count <= first + _LAST + 1 or number < first or number >= count - _LAST

    def _checkpoint(self, place: NamedPlace[Checkpoint], *, last: bool) -> list[Part]:
        checkpoint = place.checkpoint
        plain = checkpoint.trigger == "task_completed" and checkpoint.address
        at = plain or "  ".join(filter(None, (checkpoint.address, checkpoint.trigger)))
        parts: list[Part] = [self._screen.mark("checkpoint"), " ", (short(checkpoint.id), "cyan"), f"  {at}"]
        if last:
            parts.append(("  head", "bold"))
        parts += [(f"  label:{label}", "magenta") for label in place.labels]
        return [*parts, (f"  {self._screen.when(checkpoint.created_at)}", "dim")]
