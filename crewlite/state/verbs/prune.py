"""Pruning: delete old finished runs, old checkpoints, and details inside steps that no remaining checkpoint needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import partial

from crewlite.errors import BranchConflictError, ConfigError, RefError
from crewlite.forked import cached_property
from crewlite.ids import now
from crewlite.refs import check_name
from crewlite.resuming import in_shell
from crewlite.state.format.checkpoints import droppable
from crewlite.state.format.commit import CheckpointRecord, CommitParts
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.compaction import bases, compacted_entries, size
from crewlite.state.journal.lineage import gone, head_of, journals_of_run, standing_on, stored_already, with_inherited
from crewlite.state.providers import BranchInfo, Commit, Store, results_of
from crewlite.state.reading.locate import no_run
from crewlite.state.reading.over_runs import each
from crewlite.state.verbs.from_outside import check_idle, holder


@dataclass(frozen=True, slots=True)
class Pruned:
    """The report of a prune: what it deleted or, with `dry_run`, would delete."""

    runs: tuple[str, ...] = ()
    """Ids of the deleted runs."""
    checkpoints: tuple[str, ...] = ()
    """Ids of the deleted checkpoints, of runs that remain."""
    freed: int = 0
    """The number of bytes by which the journals shrink."""
    results: int = 0
    """The number of deleted step results that other runs could have reused."""
    busy: tuple[str, ...] = ()
    """Branches, as `run/branch`, that were left alone because a live process runs them."""
    unreadable: tuple[str, ...] = ()
    """Ids of the runs that were left as they are because they, or forks of them, cannot be read."""

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def prune(
    store: Store, *, keep_last: int | None, older_than: timedelta | datetime | None, dry_run: bool = False
) -> Pruned:
    """Do what `History.prune` describes. Raises the same errors, but OSError instead of StoreError if storage fails."""
    if keep_last is None and older_than is None:
        raise ConfigError(
            "prune() has no limit. Give keep_last=5 to keep five checkpoints of each branch, or "
            "older_than=timedelta(days=30) to delete finished runs that have not changed for 30 days"
        )
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise ConfigError(f"keep_last is {keep_last!r}; wanted a number of checkpoints, at least 1")
    limit = _seconds(older_than) if older_than is not None else None
    done = Pruned()
    if limit is not None and (results := results_of(store)):
        done += Pruned(results=results.forget(limit, dry_run=dry_run))
    runs, skipped = {info.run_id: info for info in store.branches()}, list[str]()
    act = partial(_prune_run, store, keep_last, limit, dry_run=dry_run)
    return sum(each(runs.values(), act, skipped=skipped), done) + Pruned(unreadable=tuple(skipped))


def _prune_run(store: Store, keep_last: int | None, limit: float | None, info: BranchInfo, *, dry_run: bool) -> Pruned:
    run = _Run(store, info.run_id)  # without branches if another process has deleted it meanwhile
    if limit is not None and run.journals and run.finished and run.touched < limit:
        return run.unless_busy(partial(run.removed, dry_run=dry_run), *run.journals)
    done = Pruned()
    if keep_last is not None:
        for branch in run.journals:
            done += run.unless_busy(partial(run.compacted, branch, keep_last, dry_run=dry_run), branch)
    return done


def delete(store: Store, run_id: str) -> Pruned:
    """Delete a complete run, finished or not. Raises RefError if it does not exist, BranchConflictError if it runs."""
    if isinstance(run_id, str) and "/" in run_id:
        whole, _, branch = run_id.partition("/")
        raise RefError(run_id, f"names branch {branch!r}, which cannot be deleted alone: delete run {whole!r}")
    if not store.branches(check_name("run_id", run_id)):
        runs = [info for info in store.branches() if info.branch == "main"]  # a fork cannot be deleted alone
        raise no_run(run_id, run_id, f"names no run in {store.location}", runs)
    run = _Run(store, run_id)
    if not run.journals:
        raise gone(store, run_id, "run")
    for branch in run.journals:
        cancel = in_shell(f"cancel {run_id}/{branch}", store.location)
        check_idle(store, run.records[branch], f"so the run was not deleted. Cancel it first: {cancel}")
    try:
        return run.removed(dry_run=False)
    except BranchConflictError:
        if store.branches(run_id):
            raise
        raise gone(store, run_id, "run") from None


class _Run:
    """A run that was read once. All decisions and commits follow from that reading."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.journals = journals_of_run(store, run_id)
        self.records = {b: Record.of(with_inherited(self.journals, b)) for b in self.journals}

    @cached_property
    def touched(self) -> float:
        return max(self.store.touched(self.run_id, branch) for branch in self.journals)

    @cached_property
    def branches(self) -> list[BranchInfo]:
        """All branches, with forks created since the run was read. A rewrite refuses to break forks created later."""
        return self.store.branches(self.run_id)

    @property
    def finished(self) -> bool:
        return all(record.finished for record in self.records.values()) and not any(map(self.holder, self.records))

    def holder(self, branch: str) -> str | None:
        return holder(self.store, self.run_id, branch, self.records[branch].claim)

    def unless_busy(self, act: Callable[[], Pruned], *branches: str) -> Pruned:
        """Call `act`. Report branches as busy if they changed since they were read, nothing if the run was deleted."""
        try:
            return act()
        except (BranchConflictError, OSError) as error:
            if not self.store.branches(self.run_id):
                return Pruned()
            if isinstance(error, OSError):
                raise
            return Pruned(busy=tuple(f"{self.run_id}/{branch}" for branch in branches))

    def removed(self, *, dry_run: bool) -> Pruned:
        if not dry_run:
            self.store.remove(self.run_id, {branch: head_of(own) for branch, own in self.journals.items()})
        return Pruned(runs=(self.run_id,), freed=sum(map(size, self.journals.values())))

    def compacted(self, branch: str, keep_last: int, *, dry_run: bool) -> Pruned:
        """Drop all but the newest `keep_last` droppable checkpoints of a branch, and compact its journal."""
        if self.holder(branch):
            return Pruned(busy=(f"{self.run_id}/{branch}",))
        store, own, record = self.store, self.journals[branch], self.records[branch]
        kept = bases(self.branches, branch) | record.inherited
        gone = droppable(record.checkpoints.values(), record.counts, kept)[:-keep_last]
        if gone:
            commit = _dropping(gone, record)
            if not dry_run:
                store.append([commit])
            own = [*own, *commit.entries]
        elif record.dropped and not dry_run:
            store.append([stored_already(own)])
        done = Pruned(checkpoints=tuple(one["id"] for one in gone))
        kept_entries = compacted_entries(branch, standing_on(self.journals, branch), own, self.branches)
        if size(kept_entries) >= size(own):
            self.journals[branch] = own
            return done
        compact = partial(self._compact, branch, own, kept_entries, dry_run=dry_run)
        return done + self.unless_busy(compact, branch)

    def _compact(self, branch: str, own: list[Entry], kept: list[Entry], *, dry_run: bool) -> Pruned:
        before, self.journals[branch] = self.journals[branch], own
        if not dry_run:
            self.store.rewrite(self.run_id, branch, own, kept)
        self.journals[branch] = kept  # forks of this branch are pruned on top of it, in a dry run too
        return Pruned(freed=max(0, size(before) - size(kept)))


def _dropping(checkpoints: Iterable[CheckpointRecord], record: Record) -> Commit:
    parts: CommitParts = {"drops": [(one["id"], one["parent"]) for one in checkpoints]}
    parts |= {"released": True} if record.claim else {}  # its holder is dead: this commit is no sign of its life
    return Commit.saying(record.run["run_id"], record.run["branch"], record.head, parts)


def _seconds(older_than: timedelta | datetime) -> float:
    if isinstance(older_than, timedelta) and not timedelta(0) <= older_than < timedelta(days=365_000):
        raise ConfigError(f"older_than is {older_than!r}; wanted 0 or more days, such as timedelta(days=30)")
    moment = now() - older_than if isinstance(older_than, timedelta) else older_than
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ConfigError(f"older_than is {older_than!r}; wanted a timedelta, or a datetime with a time zone")
    return moment.timestamp()
