"""The doctor: reports damage at a location, and repairs it where that is possible.

It checks journals first, then the forks of their entries, then the index of branches and checkpoints, which is derived
from the journals. A repair never deletes damaged data: it moves that data to a quarantine, and the branch then ends at
its newest intact commit. A repair that was interrupted can be repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from crewlite.errors import CrewliteError, JournalCorrupt, SchemaTooNew
from crewlite.state.format.commit import Claim
from crewlite.state.format.entry import Entry
from crewlite.state.journal.lineage import base_of, find_lineage, lost_base
from crewlite.state.providers import BranchKey, Store
from crewlite.state.providers.reading import ends_claim, newest_sound_checkpoint, sound_part
from crewlite.state.providers.salvage import Flaw, RawBranch, Salvage, Unreadable, loosely
from crewlite.state.verbs.from_outside import holder_at
from crewlite.state.verbs.transfer import document

_UPGRADE = "Upgrade crewlite; left untouched."


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of damage that the doctor found, and what to do about it."""

    what: str
    """A short code that never changes: `torn_tail`, `damaged_journal`, `dangling_fork`, `stale_index`, ..."""
    where: str
    """The file and line, or the run and branch."""
    problem: str
    remedy: str
    """The action to take; after a repair, the action that was taken."""
    sound: str | None = None
    """The ref of the newest undamaged checkpoint of the branch; None if there is none."""
    repaired: bool = False


def doctor(store: Store, *, repair: bool = False) -> list[Finding]:
    """Look for damage in a store, and with `repair` mend it; return the findings. See `History.doctor`.

    Raises OSError if the store cannot be read, or if a repair cannot be written.
    """
    salvage: Callable[..., contextlib.AbstractContextManager[Salvage | None]] | None = getattr(store, "salvage", None)
    if salvage is None:
        return [finding for info in store.branches() if (finding := _damage(store, info.run_id, info.branch))]
    found: list[Finding] = []
    try:
        with salvage(repair=repair) as opened:
            if opened:
                _Visit(store, opened, found, repair=repair).look()
    except SchemaTooNew as newer:
        found.append(Finding("newer_schema", newer.where, str(newer), _UPGRADE))
    except Unreadable as problem:
        found.append(_beyond_repair(store, str(problem)))
    return found


def _damage(store: Store, run_id: str, branch: str) -> Finding | None:
    """Return the damage of a branch, found by reading it. Serves stores that the doctor cannot repair."""
    try:
        find_lineage(store, run_id, branch)
    except SchemaTooNew as newer:
        return Finding("newer_schema", newer.where, str(newer), "Upgrade crewlite.")
    except JournalCorrupt as damage:
        remedy = "Restore an intact copy: this storage provider has no repair that crewlite can run."
        return Finding("damaged_journal", damage.where, str(damage), remedy, damage.sound)
    return None


def _beyond_repair(store: Store, problem: str) -> Finding:
    sound, lost = list[str](), "it may hold other runs that cannot be listed"
    with contextlib.suppress(CrewliteError):
        for run_id in dict.fromkeys(info.run_id for info in store.branches()):
            with contextlib.suppress(CrewliteError):
                document(store, run_id)
                sound.append(run_id)
        lost = "the others are not"
    saved = f"These runs are intact: {', '.join(sound)}; {lost}. Export them" if sound else "No run in it is intact"
    remedy = f"{saved}, or restore an intact copy. The database is left as it is."
    return Finding("damaged_database", store.location, f"SQLite cannot read it: {problem}", remedy)


class _Visit:
    """One pass over a location. Each run is locked against other writers while it is checked."""

    def __init__(self, store: Store, salvage: Salvage, found: list[Finding], *, repair: bool) -> None:
        self._store, self._salvage, self._found, self._repair = store, salvage, found, repair
        self._writers: dict[BranchKey, str | None] = {}
        self._unknown: set[BranchKey] = set()
        """Branches that cannot be read completely and are not repaired: they may have more entries than were read."""

    def look(self) -> None:
        """Check every run, and the files or rows that belong to no run; repair them if `repair`. Adds to `found`."""
        for run_id in self._salvage.runs():
            with self._salvage.held(run_id):
                self._run(run_id)
        with contextlib.closing(self._salvage.strays()) as strays:
            for flaw in strays:
                if flaw.branch not in self._unknown and not self._writers.get(flaw.branch):
                    self._report(flaw)

    def _run(self, run_id: str) -> None:
        journals, raws = dict[str, list[Entry]](), dict[str, RawBranch]()
        for raw in self._salvage.branches(run_id):
            if entries := self._branch(raw):
                journals[raw.branch], raws[raw.branch] = entries, raw
        lost = adrift(journals, {name for run, name in self._unknown if run == run_id})
        if lost and self._repair:  # some of them may have been cut above
            raws |= {raw.branch: raw for raw in self._salvage.branches(run_id)}
        for branch, problem in lost.items():
            self._cut("dangling_fork", raws[branch], (), problem, "restore a copy that has that commit")
            del journals[branch]
        for branch, entries in journals.items():
            stale = None if (run_id, branch) in self._unknown else self._salvage.index(raws[branch], entries)
            if stale:
                self._report(stale, entries)

    def _branch(self, raw: RawBranch) -> list[Entry]:
        """Check a branch, and repair it if the caller wants that. Return its valid entries."""
        if raw.orphaned:
            self._cut("damaged_journal", raw, (), "its commits belong to no branch that is stored here", "")
            return []
        try:
            records = ((record.body, record.seal, record.seq) for record in raw.records)
            entries, problem = sound_part(records, *raw.key, raw.where)
        except SchemaTooNew as newer:
            self._found.append(Finding("newer_schema", newer.where, str(newer), _UPGRADE))
            self._unknown.add(raw.key)
            return []
        commits = [
            *(entry.commit for entry in entries),
            *(loosely(record.body) for record in raw.records[len(entries) :]),
        ]
        self._writers[raw.key] = _writer_of(self._store.location, raw, commits)
        if ends := self._salvage.ending(raw, entries, problem):
            self._cut(ends[0], raw, entries, ends[1], f"a resume continues after commit {entries[-1].seq}")
        elif problem or not entries:
            left = f"the branch ends at commit {entries[-1].seq}" if entries else "nothing in it is intact"
            self._cut("damaged_journal", raw, entries, problem or "it has no commits", left)
        return entries

    def _cut(self, what: str, raw: RawBranch, entries: Sequence[Entry], problem: str, then: str) -> None:
        """Report damage whose repair keeps the intact commits of a branch and quarantines the rest.

        Without intact commits, the repair quarantines the complete branch. `then` ends the description of the repair.
        """
        lost = len(raw.records) - len(entries) or not entries
        done = self._salvage.quarantined(raw) if lost else "the commits that are left are accepted"
        act = f"{done}; {then}" if then else done
        mend = self._salvage.cut(raw, entries, problem)
        where = _after(raw, entries) if what == "damaged_journal" else raw.where
        self._report(Flaw(what, where, problem, act, mend, raw.key), entries)
        if self._writers.get(raw.key):
            self._unknown.add(raw.key)

    def _report(self, flaw: Flaw, entries: Sequence[Entry] = ()) -> None:
        """Add a finding; repair it if `repair` and no process runs the branch."""
        writer, repaired = self._writers.get(flaw.branch), False
        if flaw.mend is None:
            remedy = flaw.act
        elif writer:
            remedy = f"{writer} is running this branch, so nothing was changed: repair it when that process has ended."
        elif not self._repair:
            remedy = f"With repair=True: {flaw.act}."
        else:
            try:
                flaw.mend()
                remedy, repaired = f"Done: {flaw.act}.", True
            except FileExistsError:
                remedy = "Another process wrote to the branch meanwhile, so nothing was changed: repair it again."
        sound = newest_sound_checkpoint(entries, self._store.ref)
        self._found.append(Finding(flaw.what, flaw.where, flaw.problem, remedy, sound, repaired))


def _after(raw: RawBranch, sound: Sequence[Entry]) -> str:
    """Return the place of the first record after these intact commits: a line of a file, or a commit of a database."""
    if raw.records and raw.records[0].seq is not None:
        return f"{raw.where}, commit {sound[-1].seq + 1}" if sound else raw.where
    return f"{raw.where}, line {len(sound) + 1}"


def adrift(journals: Mapping[str, Sequence[Entry]], unknown: Collection[str]) -> dict[str, str]:
    """Find the forks of a run whose base entry is missing, or whose base branch is itself such a fork.

    Returns {branch: a sentence about what is missing}. Forks of the branches in `unknown` are left out: those branches
    may hold entries that `journals` lacks.
    """
    lost: dict[str, str] = {}
    bases = {name: base_of(entries) for name, entries in journals.items() if entries}
    for name, base in sorted(bases.items(), key=lambda item: item[1]["seq"] if item[1] else 0):
        if base and base["branch"] not in unknown:
            there = {} if base["branch"] in lost else journals
            if problem := lost_base({**there, name: journals[name]}, name):
                lost[name] = problem
    return lost


def _writer_of(location: str, raw: RawBranch, commits: Iterable[object]) -> str | None:
    """Return the live process that runs a branch; None if none does. `commits`: its commits, damaged ones too."""
    claim: Claim | None = None
    for commit in commits:
        if isinstance(commit, dict):
            claim = commit.get("claim", None if ends_claim(commit) else claim)
    try:
        return holder_at(location, *raw.key, claim, raw.touched)
    except (LookupError, TypeError, ValueError):
        return None  # the claim itself is damaged
