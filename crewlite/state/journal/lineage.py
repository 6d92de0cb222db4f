"""Reading a branch with all it stands on, and a run with all its branches.

Nothing is ever copied. A fork is a branch whose first entry is chained to an entry of another branch. Each branch is
read once, forks before what they stand on: that may grow meanwhile, and is never taken away under them. So what was
read is one moment of one run, unless the run was deleted and begun anew in between; then it is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from crewlite.errors import JournalCorrupt, RefError
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.providers import BranchInfo, Store

Journals = dict[str, list[Entry]]
"""Own entries by branch, what forks stand on before them."""


def recorded(store: Store, run_id: str, branch: str) -> Record:
    """The record of a branch. Raises RefError if there is no such branch any more, JournalCorrupt."""
    return Record.of(read_lineage(store, run_id, branch))


def read_lineage(store: Store, run_id: str, branch: str) -> list[Entry]:
    """`find_lineage`, of a branch that must be there. Raises RefError if it was deleted since it was found."""
    if entries := find_lineage(store, run_id, branch):
        return entries
    raise gone(store, f"{run_id}/{branch}", "branch")


def gone(store: Store, name: str, kind: str) -> RefError:
    """The error for what somebody has deleted since it was looked for."""
    return RefError(name, f"names no {kind} in {store.location} any more")


def find_lineage(store: Store, run_id: str, branch: str) -> list[Entry]:
    """The journal of a branch from the beginning of the run, what it stands on included; [] if there is none.

    Raises JournalCorrupt if the branches do not fit together.
    """
    return trace(store, run_id, branch)[0]


def trace(store: Store, run_id: str, branch: str) -> tuple[list[Entry], dict[str, str | None]]:
    """`find_lineage`, and its checkpoints that the branches it stands on have dropped since, each with its parent.

    Those that forks stand on are not among them, as forks hold them too.
    """
    entries, lost, stood = list[Entry](), dict[str, str | None](), set[str]()
    for own in journals_of_branch(store, run_id, branch).values():
        if base := own[0].commit["run"].get("base"):
            lost |= {at: parent for e in entries if e.seq > base["seq"] for at, parent in e.commit.get("drops", ())}
            entries = [entry for entry in entries if entry.seq <= base["seq"]]
            stood |= {base["place"]["id"]} if base["place"] else set()
        entries += own
    return entries, {at: parent for at, parent in lost.items() if at not in stood}


def journals_of_branch(store: Store, run_id: str, branch: str) -> Journals:
    """The journals of a branch and of all it stands on; {} if there is no such branch. Raises JournalCorrupt."""
    before: Mapping[str, str] = {}
    while (found := dict(_downward(store, run_id, branch))) and (adrift := _adrift(found)):
        before = _unless_damaged(store, run_id, found, before, adrift)
    return dict(reversed(found.items()))


def journals_of_run(store: Store, run_id: str) -> Journals:
    """The journals of all branches of a run; {} if there is no such run. Raises JournalCorrupt."""
    before: Mapping[str, str] = {}
    while infos := sorted(store.branches(run_id), key=_begins, reverse=True):
        found = {info.branch: store.read(run_id, info.branch) for info in infos}
        if not (adrift := _adrift(found)):
            return dict(reversed(found.items()))
        before = _unless_damaged(store, run_id, found, before, adrift)
    return {}


def standing_on(journals: Mapping[str, Sequence[Entry]], branch: str) -> list[Entry]:
    """What a branch stands on, from the beginning of the run."""
    base = journals[branch][0].commit["run"].get("base")
    if not base:
        return []
    below = [*standing_on(journals, base["branch"]), *journals[base["branch"]]]
    return [entry for entry in below if entry.seq <= base["seq"]]


def _begins(info: BranchInfo) -> tuple[int, str]:
    """What a branch stands on lies before it; so in this order, bases come before their forks."""
    return (info.base["seq"] if info.base else 0), info.branch


def _downward(store: Store, run_id: str, branch: str) -> Iterator[tuple[str, list[Entry]]]:
    """The journals of a branch and of what it stands on, the branch first."""
    seen, own = {branch}, store.read(run_id, branch)
    while own:
        yield branch, own
        base = own[0].commit["run"].get("base")
        if base is None or base["branch"] in seen:
            return
        branch = base["branch"]
        seen.add(branch)
        own = store.read(run_id, branch)


def _adrift(journals: Mapping[str, Sequence[Entry]]) -> str | None:
    """A branch that has no entries, or stands on an entry that is not there."""
    for branch, own in journals.items():
        base = own[0].commit["run"].get("base") if own else None
        there = journals.get(base["branch"], ()) if base else ()
        if not own or (base and (base["seq"], base["sum"]) not in [(entry.seq, entry.sum) for entry in there]):
            return branch
    return None


def _unless_damaged(
    store: Store, run_id: str, found: Journals, before: Mapping[str, str], adrift: str
) -> Mapping[str, str]:
    """The first seal of each branch that was read.

    Raises JournalCorrupt if the reading `before` had the same: the run was not begun anew, so the journal is damaged.
    """
    beginnings = {branch: own[0].seal if own else "" for branch, own in found.items()}
    if beginnings != before:
        return beginnings
    where, base = f"{store.location}, run {run_id}, branch {adrift}", None
    if own := found[adrift]:
        base = own[0].commit["run"]["base"]
    lost = f"what it was forked from ({base['branch']}, commit {base['seq']})" if base else "what it holds"
    raise JournalCorrupt(where, f"{lost} is gone", None)
