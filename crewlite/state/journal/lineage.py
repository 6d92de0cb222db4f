"""Read a branch together with the branches that it is forked from, a run with all its branches, or many runs.

A fork copies nothing: its first entry is chained to an entry of another branch, its base. Each branch is read once,
forks before their bases: a base may grow meanwhile, but is never removed while a fork needs it. So the entries read
form a consistent state of the run, unless it was deleted and started again in between; then it is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from crewlite.errors import CrewliteError, JournalCorrupt, RefError, StoreBusy, StoreError, StoreUnusable
from crewlite.state.format.checkpoints import recorded_in
from crewlite.state.format.commit import ForkBase
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.providers import BranchInfo, Commit, Store
from crewlite.texts.logs import logger

T = TypeVar("T")
log = logger("crewlite.run")
Journals = dict[str, list[Entry]]
"""The entries of each branch itself, by branch; a base comes before its forks."""


class Lineage(NamedTuple):
    """What a branch adds up to: its entries with those that it inherits, and the checkpoints among them that it lacks.

    A branch lacks the checkpoints that were dropped, and those that its base branches created after the fork. It does
    not lack those that a fork starts from: the fork has a copy.
    """

    entries: list[Entry]
    lacks: dict[str, str | None]
    """The ids of these checkpoints, each with the id of its parent."""

    def record(self) -> Record:
        """Return the record of the branch; an empty one if it does not exist. Raises JournalCorrupt."""
        return Record.of(self.entries, self.lacks)


def recorded(store: Store, run_id: str, branch: str) -> Record:
    """Read the record of a branch. Raises RefError if the branch was deleted meanwhile, JournalCorrupt."""
    return read_lineage(store, run_id, branch).record()


def read_lineage(store: Store, run_id: str, branch: str) -> Lineage:
    """Read a branch as `find_lineage` does. Raises RefError if it does not exist any more."""
    if (found := find_lineage(store, run_id, branch)).entries:
        return found
    raise gone(store, f"{run_id}/{branch}", "branch")


def gone(store: Store, name: str, kind: str) -> RefError:
    """Build the error for a run, branch or checkpoint (`kind`) that was deleted after it was found."""
    return RefError(name, f"names no {kind} in {store.location} any more: it was deleted")


def find_lineage(store: Store, run_id: str, branch: str) -> Lineage:
    """Read a branch with what it is forked from; without entries if there is no such branch. Raises JournalCorrupt."""
    entries, lacks, stood = list[Entry](), dict[str, str | None](), set[str]()
    for own in journals_of_branch(store, run_id, branch).values():
        if base := base_of(own):
            later = [entry for entry in entries if entry.seq > base["seq"]]
            lacks |= {one["id"]: one["parent"] for entry in later for one in recorded_in(entry)}
            stood |= {base["place"]["id"]} if base["place"] else set()
            entries = entries[: len(entries) - len(later)]
        for entry in own:
            lacks |= entry.commit.get("drops", ())
        entries += own
    return Lineage(entries, {at: parent for at, parent in lacks.items() if at not in stood})


def journals_of_branch(store: Store, run_id: str, branch: str) -> Journals:
    """Read a branch and the branches that it is forked from; {} if the branch does not exist. Raises JournalCorrupt."""
    return _bases_first(store, run_id, lambda: dict(_with_bases(store, run_id, branch)))


def journals_of_run(store: Store, run_id: str) -> Journals:
    """Read all branches of a run; {} if there is no such run. Raises JournalCorrupt."""

    def forks_first() -> Journals:
        infos = store.branches(run_id)
        infos.sort(key=lambda info: (info.base["seq"] if info.base else 0, info.branch), reverse=True)
        return {info.branch: store.read(run_id, info.branch) for info in infos}

    return _bases_first(store, run_id, forks_first)


UNREADABLE = JournalCorrupt, StoreError
"""The errors for a branch that cannot be read: damaged, written by a newer crewlite, or not read by the system now."""


def readable_branches(store: Store, run_id: str, wanted: str = "main") -> list[BranchInfo]:
    """Return the branches of a run that can be read (see UNREADABLE).

    Raises StoreError if the system does not read a branch at the moment, and `wanted` is not among the others.
    """
    try:
        return store.branches(run_id)
    except UNREADABLE as problem:  # the list of all runs leaves these branches out
        found = [info for info in store.branches() if info.run_id == run_id]
        if isinstance(problem, StoreError) and not any(info.branch == wanted for info in found):
            raise
        return found


def each_readable(
    branches: Iterable[BranchInfo],
    read: Callable[[BranchInfo], T],
    errors: type[CrewliteError] | tuple[type[CrewliteError], ...] = UNREADABLE,
    *,
    skipped: list[str] | None = None,
) -> Iterator[T]:
    """Yield what `read` returns for each branch of a listing. Skip one for which it raises one of these errors.

    Every verb about all runs of a location calls this, so that one damaged run never ends a job for all others.
    A warning names the run and says what to do, and the run's id is added to `skipped`. A branch that was deleted since
    it was listed is left out. Raises StoreBusy and StoreUnusable, which are about a complete location.
    """
    for info in branches:
        try:
            found = read(info)
        except (StoreBusy, StoreUnusable):
            raise
        except errors as problem:
            about = {"run_id": info.run_id}
            log.warning("run %s cannot be read and is skipped: %s", info.run_id, problem, extra=about)
            if skipped is not None:
                skipped.append(info.run_id)
        except RefError:
            continue
        else:
            yield found


def base_of(own: Sequence[Entry]) -> ForkBase | None:
    """Return the commit that a branch with these own entries is forked from; None if it is not a fork."""
    return own[0].commit["run"].get("base")


def inherited_entries(journals: Mapping[str, Sequence[Entry]], branch: str) -> list[Entry]:
    """Return the entries that a branch inherits from its base, from the start of the run; [] if it is not a fork."""
    base = base_of(journals[branch])
    if not base:
        return []
    return [entry for entry in with_inherited(journals, base["branch"]) if entry.seq <= base["seq"]]


def with_inherited(journals: Mapping[str, Sequence[Entry]], branch: str) -> list[Entry]:
    """Return the entries of a branch from the start of the run: those that it inherits, then its own."""
    return [*inherited_entries(journals, branch), *journals[branch]]


def last_commit_again(own: Sequence[Entry]) -> Commit:
    """Build a commit of the last of a branch's own entries, which is stored already.

    Appending it changes nothing in the journal, but makes the store complete the files that an interrupted call has
    left out.
    """
    commit = commit_of(own)
    return commit if len(own) == 1 else Commit(*commit.key, *own[-2].head, (own[-1],))


def commit_of(own: Sequence[Entry]) -> Commit:
    """Build the commit of all of a branch's own entries, which creates the branch: no other run can get its entries."""
    run, base = own[0].commit["run"], base_of(own)
    before = (base["seq"], base["sum"]) if base else (0, "")
    return Commit(run["run_id"], run["branch"], *before, tuple(own))


def _with_bases(store: Store, run_id: str, branch: str) -> Iterator[tuple[str, list[Entry]]]:
    """Yield (name, own entries) of a branch, then of its base branch, and so on."""
    seen, own = {branch}, store.read(run_id, branch)
    while own:
        yield branch, own
        base = base_of(own)
        if base is None or base["branch"] in seen:
            return
        branch = base["branch"]
        seen.add(branch)
        own = store.read(run_id, branch)


def lost_base(journals: Mapping[str, Sequence[Entry]], branch: str) -> str | None:
    """Return a sentence about the entry that a branch is forked from if these journals lack it; None if they do not."""
    base = base_of(journals[branch])
    if not base or (base["seq"], base["sum"]) in [one.head for one in journals.get(base["branch"], ())]:
        return None
    return f"the commit that it is forked from (commit {base['seq']} of {base['branch']}) is missing"


def _bases_first(store: Store, run_id: str, read: Callable[[], Journals]) -> Journals:
    """Return the journals from `read`, which returns forks before their bases, with bases before their forks.

    Reads again if one of them is empty or lacks its base: the run may have been deleted and started again meanwhile.
    Raises JournalCorrupt if the same branches are found again, as then the run is damaged.
    """
    before: dict[str, str] = {}
    while True:
        found = read()
        adrift = next((name for name, own in found.items() if not own or lost_base(found, name)), None)
        if adrift is None:
            return dict(reversed(found.items()))
        beginnings = {name: own[0].seal if own else "" for name, own in found.items()}
        if beginnings == before:
            problem = (lost_base(found, adrift) if found[adrift] else None) or "its journal is missing"
            raise JournalCorrupt(f"{store.location}, run {run_id}, branch {adrift}", problem, None, store.location)
        before = beginnings
