"""Forgetting: inner detail that no checkpoint needs, checkpoints, and whole runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby

from crewlite.errors import BranchConflictError, ConfigError, RefError
from crewlite.ids import now
from crewlite.state.cache import remembers
from crewlite.state.claim import held_by
from crewlite.state.entry import Entry, Facts
from crewlite.state.fold import size
from crewlite.state.lineage import whole
from crewlite.state.providers import BranchInfo, Commit, Store
from crewlite.state.providers.base import Head
from crewlite.state.record import Record
from crewlite.state.tidy import bases, folded
from crewlite.state.writer import at_work


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was taken away, or would be."""

    runs: tuple[str, ...] = ()
    """Whole runs, by id."""
    checkpoints: tuple[str, ...] = ()
    """Checkpoints of runs that stay, by id."""
    freed: int = 0
    """Bytes of journals."""
    results: int = 0
    """Results of steps that were kept for other runs."""
    busy: tuple[str, ...] = ()
    """Branches, as `run/branch`, that were left alone because somebody is at work on them."""

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(
            self.runs + other.runs,
            self.checkpoints + other.checkpoints,
            self.freed + other.freed,
            self.results + other.results,
            self.busy + other.busy,
        )


def prune(
    store: Store, *, keep_last: int | None, older_than: timedelta | datetime | None, dry_run: bool = False
) -> Pruned:
    """Take away finished runs not heard of since `older_than`, and all but the newest checkpoints of the others.

    What steps left for other runs before `older_than` goes too.

    Raises ConfigError if it is told nothing, JournalCorrupt for a run that cannot be read, OSError if storage fails;
    what was cut in the middle can be done again.
    """
    if keep_last is None and older_than is None:
        raise ConfigError("prune what? keep_last=5 keeps five checkpoints a branch, older_than=timedelta(days=30) runs")
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise ConfigError(f"keep_last is {keep_last!r}; wanted a number of checkpoints, at least 1")
    limit = _seconds(older_than) if older_than is not None else None
    done = Pruned()
    if limit is not None and remembers(store):
        done += Pruned(results=store.forget(limit, dry_run=dry_run))
    for run_id, branches in groupby(store.branches(), key=lambda info: info.run_id):
        run = _Run(store, run_id, list(branches))
        if not run.branches:
            continue
        if limit is not None and run.finished and run.touched < limit:
            done += _unless_busy(partial(run.removed, dry_run=dry_run), run_id, *run.records)
        elif keep_last is not None:
            for info in run.branches:
                thinned = partial(run.thinned, info.branch, keep_last, dry_run=dry_run)
                done += _unless_busy(thinned, run_id, info.branch)
    return done


def delete(store: Store, run_id: str) -> Pruned:
    """Take a whole run away, finished or not. Raises RefError, and BranchConflictError if somebody is at work on it."""
    run = _Run(store, run_id, store.branches(run_id))
    if not run.branches:
        raise RefError(run_id, f"names no run in {store.location} any more")
    for branch in run.records:
        if holder := run.holder(branch):
            raise BranchConflictError(run_id, branch, holder=holder)
    return run.removed(dry_run=False)


def _unless_busy(act: Callable[[], Pruned], run_id: str, *branches: str) -> Pruned:
    """Act; or leave alone what has begun to move since it was looked at."""
    try:
        return act()
    except BranchConflictError:
        return Pruned(busy=tuple(f"{run_id}/{branch}" for branch in branches))


class _Run:
    """A run as it was when it was looked at."""

    def __init__(self, store: Store, run_id: str, branches: list[BranchInfo]) -> None:
        self.store, self.run_id = store, run_id
        found = {info.branch: store.read(run_id, info.branch) for info in branches}
        self.journals = {branch: own for branch, own in found.items() if own}  # the others were deleted meanwhile
        self.branches = [info for info in branches if info.branch in self.journals]
        self.records = {branch: Record.of(whole(store, run_id, branch)) for branch in self.journals}
        self.touched = max((store.touched(run_id, info.branch) for info in branches), default=0.0)

    @property
    def finished(self) -> bool:
        return all(record.finished for record in self.records.values()) and not any(map(self.holder, self.records))

    def holder(self, branch: str) -> str | None:
        """Who, alive, is at work on a branch."""
        if at_work(self.store.location, self.run_id, branch):
            return "this process"
        return held_by(self.records[branch].claim, self.store.touched(self.run_id, branch))

    def removed(self, *, dry_run: bool) -> Pruned:
        if not dry_run:
            self.store.remove(self.run_id, {branch: _head(own) for branch, own in self.journals.items()})
        return Pruned(runs=(self.run_id,), freed=sum(map(size, self.journals.values())))

    def thinned(self, branch: str, keep_last: int, *, dry_run: bool) -> Pruned:
        """Drop all but the newest places of a branch, but for labelled ones and those that forks stand on."""
        if self.holder(branch):
            return Pruned(busy=(f"{self.run_id}/{branch}",))
        store, own, record = self.store, self.journals[branch], self.records[branch]
        kept = bases(store, self.run_id, branch) | record.inherited
        places = [p for p in record.places.values() if not p.get("label") and p["id"] not in kept]
        gone = places[:-keep_last]
        if gone:
            commit = _dropping(gone, record)
            if not dry_run:
                store.append([commit])
            own = [*own, *commit.entries]
        elif record.dropped and not dry_run:
            store.append([_end(self.run_id, branch, own)])
        kept_entries = folded(branch, self._before(branch), own, self.branches)
        if not dry_run and size(kept_entries) < size(own):
            store.rewrite(self.run_id, branch, own, kept_entries)
        freed = max(0, size(self.journals[branch]) - size(kept_entries))
        self.journals[branch] = kept_entries  # what forks stand on from here on, also if this is only a rehearsal
        return Pruned(checkpoints=tuple(place["id"] for place in gone), freed=freed)

    def _before(self, branch: str) -> list[Entry]:
        """What a branch stands on."""
        base = self.journals[branch][0].facts["run"].get("base")
        if not base:
            return []
        return [*self._before(base["branch"]), *(e for e in self.journals[base["branch"]] if e.seq <= base["seq"])]


def _dropping(places: Iterable[Facts], record: Record) -> Commit:
    facts: Facts = {"drops": [[place["id"], place["parent"]] for place in places]}
    facts |= {"released": True} if record.claim else {}  # its holder is dead: this must not be taken for a sign of life
    return Commit.saying(record.run["run_id"], record.run["branch"], record.head, facts)


def _end(run_id: str, branch: str, own: list[Entry]) -> Commit:
    """The end of a branch once more. It is no news; but a store that has it looks after what an earlier try left."""
    base = own[0].facts["run"].get("base")
    before: Head = _head(own[:-1]) if own[1:] else (base["seq"], base["sum"]) if base else (0, "")
    return Commit(run_id, branch, *before, (own[-1],))


def _head(own: list[Entry]) -> Head:
    return own[-1].seq, own[-1].sum


def _seconds(older_than: timedelta | datetime) -> float:
    if isinstance(older_than, timedelta) and not timedelta(0) <= older_than < timedelta(days=365_000):
        raise ConfigError(f"older_than is {older_than!r}; wanted how long ago, such as timedelta(days=30)")
    moment = now() - older_than if isinstance(older_than, timedelta) else older_than
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ConfigError(f"older_than is {older_than!r}; wanted a timedelta, or a datetime with a time zone")
    return moment.timestamp()
