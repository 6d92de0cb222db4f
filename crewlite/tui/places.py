"""The lines of the tree: runs, the branches forked off them, and the checkpoints along each.

They come from listings and from the one branch that is opened, so that a location of any size opens at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from crewlite.cli.checkpoint.screen import Part
from crewlite.cli.checkpoint.words import ago, name_of
from crewlite.errors import RefError
from crewlite.state.providers import BranchInfo
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.checkpoints import NamedPlace, by_place
from crewlite.system.forked import cached_property
from crewlite.texts.resuming import branch_ref
from crewlite.texts.wording import number_of
from crewlite.tui.words import line, mark

PAGE = 200
"""How many runs, or checkpoints of a branch, are listed at first, and more at each request for more."""


@dataclass(frozen=True, slots=True)
class Place:
    """A branch, what a rewind of it has abandoned, or a checkpoint of one of these."""

    run_id: str
    branch: str
    checkpoint: str = ""
    """The id of the checkpoint; "" for the head of the branch."""
    abandoned: int = 0
    """The number of the rewind that has abandoned it; 0 for what the branch goes on from."""

    @property
    def name(self) -> str:
        """The ref of the branch."""
        return f"{self.run_id}/{self.branch}"

    @property
    def ref(self) -> str:
        """The ref of this place."""
        tail = f"{self.name}@abandoned:{self.abandoned}" if self.abandoned else self.name
        return self.checkpoint or tail

    @property
    def head(self) -> Place:
        """The branch that it belongs to."""
        return Place(self.run_id, self.branch)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the tree.

    With `more` it stands for the lines that are not listed yet: of the branch `place`, or of all runs.
    """

    place: Place | None
    text: Text
    opens: bool
    """Whether there are lines below it."""
    more: bool = False
    ids: frozenset[str] = frozenset()
    """The ids of the checkpoints at this place, from which forks may start."""

    @property
    def key(self) -> tuple[Place | None, bool]:
        """What the line is about: the same for a line whose text has changed since."""
        return self.place, self.more


@dataclass(frozen=True)
class Listing:
    """The branches of a location, newest run first."""

    branches: tuple[BranchInfo, ...] = ()

    @cached_property
    def _by_name(self) -> dict[Place, BranchInfo]:
        return {Place(info.run_id, info.branch): info for info in self.branches}

    @cached_property
    def _forks(self) -> dict[Place, list[BranchInfo]]:
        """The forks of each place, by the branch and the checkpoint that they start from."""
        found: dict[Place, list[BranchInfo]] = {}
        for info in self.branches:
            if info.base:
                at = info.base["place"]
                place = Place(info.run_id, info.base["branch"], at["id"] if at else "")
                found.setdefault(place, []).append(info)
        return found

    @cached_property
    def _begun(self) -> list[BranchInfo]:
        """The branches that no other branch of the listing is the parent of."""
        return [info for info in self.branches if not info.base or Place(info.run_id, info.base["branch"]) not in self]

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len({info.run_id for info in self.branches})

    def first(self, count: int = PAGE) -> list[Line]:
        """Return the lines of the newest runs, at most `count`."""
        lines = [_run(info) for info in self._begun[:count]]
        if left := len(self._begun) - len(lines):
            lines.append(Line(None, line((f"… {number_of(left, 'older run')}", "dim")), opens=False, more=True))
        return lines

    def below(
        self,
        branch: Place,
        checkpoints: Sequence[Checkpoint],
        count: int = PAGE,
        reasons: Sequence[str] = (),
        abandoned: Collection[str] = (),
    ) -> list[Line]:
        """Return the lines below a branch: of its own checkpoints the last `count`, and of forks from other places.

        `reasons` are those of its rewinds, each of which has abandoned what came after; `abandoned` are the ids of the
        checkpoints there.
        """
        own = by_place(one for one in checkpoints if one.branch == branch.branch)
        ids = {at for one in own for at in one.ids}.union(abandoned)
        elsewhere = [
            info
            for place, forks in self._forks.items()
            if place.head == branch and place.checkpoint not in ids and not branch.abandoned
            for info in forks
        ]
        lines = [_fork(info) for info in elsewhere]
        if hidden := len(own[:-count]):
            lines.append(
                Line(branch, line((f"… {number_of(hidden, 'earlier checkpoint')}", "dim")), opens=False, more=True)
            )
        lines += [self._checkpoint(branch, one) for one in own[-count:]]
        return lines + [_abandoned(branch, number, why) for number, why in enumerate(reasons, 1)]

    def forks(self, line: Line) -> list[Line]:
        """Return the lines of the forks that start from the checkpoints of a line."""
        return [_fork(info) for info in self._starting(line.place, line.ids)] if line.place else []

    def _starting(self, place: Place, ids: Collection[str]) -> list[BranchInfo]:
        return [info for at in sorted(ids) for info in self._forks.get(Place(place.run_id, place.branch, at), ())]

    def __contains__(self, branch: Place) -> bool:
        return branch in self._by_name

    def info(self, branch: Place) -> BranchInfo:
        """Return the branch of this name. Raises RefError."""
        if branch not in self._by_name:
            raise RefError(branch.name, "is not there any more")
        return self._by_name[branch]

    def _checkpoint(self, branch: Place, named: NamedPlace[Checkpoint]) -> Line:
        one = named.checkpoint
        place = Place(branch.run_id, branch.branch, one.id, branch.abandoned)
        at = one.address if one.trigger == "task_completed" and one.address else ""
        parts: list[Part] = [mark("checkpoint"), " ", at or " ".join(filter(None, (one.address, one.trigger)))]
        parts += [(f"  {label}", "magenta") for label in named.labels]
        text = line(*parts, (f"  {ago(one.created_at)}", "dim"))
        return Line(place, text, opens=bool(self._starting(place, named.ids)), ids=named.ids)


def _run(info: BranchInfo) -> Line:
    name = branch_ref(info.run_id, info.branch)
    about = name_of({"kind": info.kind, "name": info.name})
    when = ago(datetime.fromisoformat(info.started_at))
    return Line(Place(info.run_id, info.branch), line((name, "bold"), (f"  {about}  {when}", "dim")), opens=True)


def _abandoned(branch: Place, number: int, why: str) -> Line:
    words = line(mark("open"), (f" abandoned:{number}", "dim"), (f"  {why}", "dim"))
    return Line(Place(branch.run_id, branch.branch, abandoned=number), words, opens=True)


def _fork(info: BranchInfo) -> Line:
    when = ago(datetime.fromisoformat(info.started_at))
    return Line(Place(info.run_id, info.branch), line((info.branch, "bold"), (f"  {when}", "dim")), opens=True)
