"""Pruning: delete old finished runs, old checkpoints, and details inside steps that no remaining checkpoint needs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import partial

from crewlite.errors import BranchConflictError, ConfigError, CrewliteError, RefError, StoreBusy, StoreUnusable
from crewlite.ids import now
from crewlite.recovery import checks
from crewlite.refs import check_name
from crewlite.state.format.commit import CheckpointRecord
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.format.turns import number_of_turn, state_id_of
from crewlite.state.journal.compaction import compact_entries, size
from crewlite.state.journal.lineage import (
    UNREADABLE,
    each_readable,
    gone,
    inherited_entries,
    journals_of_run,
    last_commit_again,
    with_inherited,
)
from crewlite.state.journal.upkeep import bases, pinned_by_forks
from crewlite.state.providers import BranchInfo, Commit, Store, results_of, run_ids
from crewlite.state.reading.locate import no_run
from crewlite.state.verbs.from_outside import check_idle, commit_beside, holder
from crewlite.system.forked import cached_property
from crewlite.texts.resuming import in_shell
from crewlite.texts.wording import listed

_NAMED = 6  # runs that an error names


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

    holding: tuple[str, ...] = ()
    """Branches, as `run/branch`, of turns of a state that were left, and because of which old turns after them stay."""

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
    checks.whole_or_none("prune", 1, keep_last=keep_last)
    limit = _seconds(older_than) if older_than is not None else None
    return _Prune(store, keep_last, limit, dry_run).all()


@dataclass(slots=True)
class _Prune:
    """A prune of a location. A run that fails it ends it for that run alone."""

    store: Store
    keep_last: int | None
    limit: float | None
    dry_run: bool
    states: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """The states of which a turn stays, so that all later ones stay too: the next turn begins with what they left.

    Each with the branches that keep the first turn that stays, until they are reported.
    """
    failed: dict[str, OSError] = field(default_factory=dict)
    """What could not be pruned because storage failed."""
    unreadable: list[str] = field(default_factory=list)
    """The ids of the runs that cannot be read, of those listed as far as they were tried."""

    def all(self) -> Pruned:
        """Prune all runs, the oldest first, so that an interrupted prune still leaves each state its newest turn."""
        runs = {info.run_id: info for info in reversed(self.store.branches())}
        self.unreadable += _unlisted(self.store, runs)
        pruned = sum(each_readable(runs.values(), self._run, skipped=self.unreadable), Pruned())
        pruned += self._unless_failed("the results kept for other runs", self._results)
        if self.failed:
            problem = next(iter(self.failed.values()))
            raise OSError(f"storage failed for {listed([*self.failed], _NAMED)}: {problem}") from problem
        return pruned + Pruned(unreadable=tuple(self.unreadable))

    def _run(self, info: BranchInfo) -> Pruned:
        return self._unless_failed(repr(info.run_id), partial(self._pruned, info.run_id))

    def _unless_failed(self, what: str, act: Callable[[], Pruned]) -> Pruned:
        try:
            return act()
        except OSError as error:
            if isinstance(error, CrewliteError):
                raise
            self.failed[what] = error
            return Pruned()

    def _results(self) -> Pruned:
        results = results_of(self.store)
        if self.limit is None or results is None:
            return Pruned()
        return Pruned(results=results.forget(self.limit, dry_run=self.dry_run))

    def _pruned(self, run_id: str) -> Pruned:
        run = _Run(self.store, run_id)  # without branches if another process has deleted it meanwhile
        kept = self._reasons_to_keep(run)
        if earlier := run.turns_before(self.unreadable):
            self.states.setdefault(run.state, earlier)
        if not kept and run.journals and run.state not in self.states:
            return self._deleted(run)
        done = self._kept_run(run, kept)
        if self.keep_last is not None:
            for branch in run.journals:
                done += run.unless_busy(partial(run.compacted, branch, self.keep_last, dry_run=self.dry_run), branch)
        return done

    def _deleted(self, run: _Run) -> Pruned:
        self.states[run.state] = ()  # unless it is deleted: storage may fail
        done = run.unless_busy(partial(run.removed, dry_run=self.dry_run), *run.journals)
        if done.runs:
            del self.states[run.state]
        return done

    def _kept_run(self, run: _Run, kept: tuple[str, ...]) -> Pruned:
        """Note that a run stays, because of the branches `kept` or of an earlier turn of its state: report that one."""
        if run.state not in self.states:
            self.states[run.state] = kept
        elif not kept:
            holding, self.states[run.state] = self.states[run.state], ()
            return Pruned(holding=holding)
        return Pruned()

    def _reasons_to_keep(self, run: _Run) -> tuple[str, ...]:
        """Return the branches because of which a run stays: unfinished ones, and those that are not old enough."""
        return tuple(
            f"{run.run_id}/{branch}"
            for branch in run.journals
            if self.limit is None or not run.finished(branch) or run.touched(branch) >= self.limit
        )


def _unlisted(store: Store, known: Container[str]) -> Iterator[str]:
    """Yield the ids of the runs that the list of all runs leaves out, with a warning, as no branch can be read."""
    for run_id in run_ids(store, ""):
        try:
            if run_id not in known:
                store.branches(run_id)
        except (StoreBusy, StoreUnusable):
            raise
        except UNREADABLE:
            yield run_id


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
    def state(self) -> tuple[str, str]:
        """The definition and the id of the state of which the run is a turn; its own id if it is a turn of none."""
        main = self.records.get("main")
        state_id = state_id_of(main) if main else None
        is_turn = state_id is not None and number_of_turn(self.run_id, state_id) is not None
        return main.run["identity"] if main else "", state_id if state_id and is_turn else self.run_id

    def turns_before(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the main branches of those runs that are earlier turns of the same state by their names."""
        numbers = {name: number_of_turn(name, self.state[1]) for name in (self.run_id, *names)}
        own = numbers[self.run_id] or 0
        return tuple(f"{name}/main" for name, number in numbers.items() if number and number < own)

    def touched(self, branch: str) -> float:
        return self.store.touched(self.run_id, branch)

    @cached_property
    def branches(self) -> list[BranchInfo]:
        """All branches, with forks created since the run was read. A rewrite refuses to break forks created later."""
        return self.store.branches(self.run_id)

    def finished(self, branch: str) -> bool:
        return self.records[branch].finished and not self.holder(branch)

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
            self.store.remove(self.run_id, {branch: own[-1].head for branch, own in self.journals.items()})
        return Pruned(runs=(self.run_id,), freed=sum(map(size, self.journals.values())))

    def compacted(self, branch: str, keep_last: int, *, dry_run: bool) -> Pruned:
        """Drop all but the newest `keep_last` droppable checkpoints of a branch, and compact its journal."""
        if self.holder(branch):
            return Pruned(busy=(f"{self.run_id}/{branch}",))
        store, own, record = self.store, self.journals[branch], self.records[branch]
        gone = record.checkpoints.droppable(bases(self.branches, branch))[:-keep_last]
        if gone:
            commit = _dropping(gone, record)
            if not dry_run:
                store.append([commit])
            own = [*own, *commit.entries]
        elif record.checkpoints.dropped and not dry_run:
            store.append([last_commit_again(own)])
        done = Pruned(checkpoints=tuple(one["id"] for one in gone))
        before = inherited_entries(self.journals, branch)
        kept_entries = compact_entries(before, own, pinned_by_forks(self.branches, branch))
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
    return commit_beside(record, {"drops": [(one["id"], one["parent"]) for one in checkpoints]})


def _seconds(older_than: timedelta | datetime) -> float:
    if isinstance(older_than, timedelta) and not timedelta(0) <= older_than < timedelta(days=365_000):
        raise ConfigError(f"older_than is {older_than!r}; wanted 0 or more days, such as timedelta(days=30)")
    moment = now() - older_than if isinstance(older_than, timedelta) else older_than
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ConfigError(f"older_than is {older_than!r}; wanted a timedelta, or a datetime with a time zone")
    return moment.timestamp()
