"""The doctor: says what at a location is not as it was written, and repairs what can be.

Journals come first, then the forks that stand on them, then the index of branches and checkpoints, which is what the
journals say it is. A repair never deletes what is damaged. It is quarantined, and the run is what is left of it: sound,
up to its newest sound commit. Cut in the middle, it can be done again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crewlite.errors import CrewliteError, JournalCorrupt, SchemaTooNew
from crewlite.ids import short
from crewlite.state.format.commit import Claim
from crewlite.state.format.entry import Entry, Unsound, unseal, without_checkpoint
from crewlite.state.journal.holder import holder_at
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import Store
from crewlite.state.providers.reading import check_follows, ends_claim, newest_sound_checkpoint
from crewlite.state.providers.salvage import Flaw, RawBranch, Salvage, Unreadable, loosely
from crewlite.state.verbs.transfer import document

_UPGRADE = "Upgrade crewlite; left untouched."
Branch = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something at a location that is not as it was written."""

    what: str
    """A short code that never changes: `torn_tail`, `damaged_journal`, `dangling_fork`, `stale_index`, ..."""
    where: str
    """The file and line, or the run and branch."""
    problem: str
    remedy: str
    """What to do, or what the repair did."""
    sound: str | None = None
    """The ref of the newest sound checkpoint there."""
    repaired: bool = False


def doctor(store: Store, *, repair: bool = False) -> list[Finding]:
    """What is found broken in a store; [] if all is well. A branch that somebody is at work on is left alone.

    Raises OSError if the store cannot be read, or a repair cannot be written.
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
    """What a store that cannot be repaired says of a branch itself."""
    try:
        find_lineage(store, run_id, branch)
    except SchemaTooNew as newer:
        return Finding("newer_schema", newer.where, str(newer), "Upgrade crewlite.")
    except JournalCorrupt as damage:
        remedy = "Bring back a copy that is whole: how this store is repaired only its provider knows."
        return Finding("damaged_journal", damage.where, str(damage), remedy, damage.sound)
    return None


def _beyond_repair(store: Store, problem: str) -> Finding:
    sound, lost = list[str](), "other runs may be in it that cannot be listed"
    with contextlib.suppress(CrewliteError):
        for run_id in dict.fromkeys(info.run_id for info in store.branches()):
            with contextlib.suppress(CrewliteError):
                document(store, run_id)
                sound.append(run_id)
        lost = "the others are not"
    saved = f"These runs are sound: {', '.join(sound)}; {lost}. Export them" if sound else "No run in it is sound"
    remedy = f"{saved}, or bring back a copy. The database is left as it is."
    return Finding("damaged_database", store.location, f"SQLite cannot read it: {problem}", remedy)


class _Visit:
    """One look at one location: at each run while nobody else writes to it."""

    def __init__(self, store: Store, salvage: Salvage, found: list[Finding], *, repair: bool) -> None:
        self._store, self._salvage, self._found, self._repair = store, salvage, found, repair
        self._writers: dict[Branch, str | None] = {}
        self._unknown: set[Branch] = set()
        """Branches that are left as they are, though there is more to them than can be read."""

    def look(self) -> None:
        """All there is to say, and with `repair` to do."""
        for run_id in self._salvage.runs():
            with self._salvage.held(run_id):
                self._run(run_id)
        with contextlib.closing(self._salvage.strays()) as strays:
            for flaw in strays:
                if flaw.branch not in self._unknown and not self._writers.get(flaw.branch):
                    self._report(flaw)

    def _run(self, run_id: str) -> None:
        journals, raws = dict[str, list[Entry]](), dict[str, RawBranch]()
        for found in self._salvage.branches(run_id):
            raw, entries = self._branch(found)
            if entries:
                journals[raw.branch], raws[raw.branch] = entries, raw
        for branch, problem in adrift(journals, {name for run, name in self._unknown if run == run_id}).items():
            self._cut("dangling_fork", raws[branch], (), problem, "bring back a copy that holds what it stands on")
            del journals[branch]
        for branch, entries in journals.items():
            stale = None if (run_id, branch) in self._unknown else self._salvage.index(raws[branch], entries)
            if stale:
                self._report(stale, entries)

    def _branch(self, raw: RawBranch) -> tuple[RawBranch, list[Entry]]:
        """The sound commits of a branch. What is broken is told, and with `repair` mended."""
        key = (raw.run_id, raw.branch)
        if raw.homeless:
            self._cut("damaged_journal", raw, (), "its commits are of no branch that is here", "")
            return raw, []
        try:
            part = sound_part(raw)
        except SchemaTooNew as newer:
            self._found.append(Finding("newer_schema", newer.where, str(newer), _UPGRADE))
            self._unknown.add(key)
            return raw, []
        entries, problem = part.entries, part.problem
        said = [
            *(entry.commit for entry in entries),
            *(loosely(record.body) for record in raw.records[len(entries) :]),
        ]
        self._writers[key] = _writer_of(self._store.location, raw, said)
        if part.without:
            raw = self._without_checkpoints(raw, part)
        if ends := self._salvage.ending(raw, entries, problem):
            self._cut(ends[0], raw, entries, ends[1], f"the run goes on after commit {entries[-1].seq}")
        elif problem or not entries:
            left = f"the branch ends at commit {entries[-1].seq}" if entries else "nothing in it is sound"
            self._cut("damaged_journal", raw, entries, problem or "no commit of it is left", left)
        return raw, entries

    def _cut(self, what: str, raw: RawBranch, entries: Sequence[Entry], problem: str, then: str) -> None:
        """Let a branch end with its sound commits, the rest in quarantine; without any, all of it."""
        lost = len(raw.records) - len(entries) or not entries
        act = "; ".join(
            filter(None, [self._salvage.quarantined(raw) if lost else "taken for what there is of it", then])
        )
        head = (entries[-1].seq, entries[-1].sum) if entries else None
        mend = self._salvage.rewrite(raw, raw.records[: len(entries)], head, problem)
        where = _after(raw, entries) if what == "damaged_journal" else raw.where
        self._report(Flaw(what, where, problem, act, mend, (raw.run_id, raw.branch)), entries)
        if self._writers.get((raw.run_id, raw.branch)):
            self._unknown.add((raw.run_id, raw.branch))

    def _without_checkpoints(self, raw: RawBranch, part: SoundPart) -> RawBranch:
        """Commits that name a checkpoint of another commit lose that alone. Returns the branch as it is then."""
        records = list(raw.records)
        for at in part.without:
            entry = part.entries[at]
            records[at] = records[at]._replace(seal=entry.seal, body=entry.body, line=entry.line + b"\n")
        problem = f"checkpoint {', '.join(map(short, part.without.values()))} is not of the commit that names it"
        act = f"a copy {self._salvage.quarantined(raw)}, and that checkpoint taken away; the run loses nothing"
        where = _after(raw, part.entries[: min(part.without)])
        mend = self._salvage.rewrite(raw, records, None, problem)
        flaw = Flaw("wrong_checkpoint", where, problem, act, mend, (raw.run_id, raw.branch))
        return replace(raw, records=records) if self._report(flaw, part.entries) else raw

    def _report(self, flaw: Flaw, entries: Sequence[Entry] = ()) -> bool:
        """Keep what was found; and mend it, if that may be done. Returns whether it was."""
        writer, repaired = self._writers.get(flaw.branch), False
        if flaw.mend is None:
            remedy = flaw.act
        elif writer:
            remedy = f"{writer} is at work on this branch, so it is left alone: ask again when that has ended."
        elif not self._repair:
            remedy = f"With repair=True: {flaw.act}."
        else:
            try:
                flaw.mend()
                remedy, repaired = f"Done: {flaw.act}.", True
            except FileExistsError:
                remedy = "It was written to in this very moment, so it was left alone: ask again."
        sound = newest_sound_checkpoint(entries, self._store.ref)
        self._found.append(Finding(flaw.what, flaw.where, flaw.problem, remedy, sound, repaired))
        return repaired


def _after(raw: RawBranch, sound: Sequence[Entry]) -> str:
    """Where the record is that comes after these commits."""
    if raw.records and raw.records[0].seq is not None:
        return f"{raw.where}, commit {sound[-1].seq + 1}" if sound else raw.where
    return f"{raw.where}, line {len(sound) + 1}"


@dataclass(frozen=True, slots=True)
class SoundPart:
    """The entries of a branch before the first fault, and the fault."""

    entries: list[Entry]
    problem: str | None = None
    without: dict[int, str] = field(default_factory=dict)
    """The id of the checkpoint that was removed from an entry, which is sound without it, by its index in `entries`."""


def sound_part(raw: RawBranch) -> SoundPart:
    """Read what can be read: stop at the first fault, and keep what comes before it. Raises SchemaTooNew."""
    found, without = list[Entry](), dict[int, str]()
    for seal, body, seq, _ in raw.records:
        after = found[-1].sum if found else None
        try:
            try:
                entry = unseal(body, seal, after=after, where=raw.where)
            except Unsound:
                mended = without_checkpoint(body, seal, after=after)
                if mended is None:
                    raise
                entry, without[len(found)] = mended, mended.commit["drops"][-1][0]
            check_follows(entry, found, raw.run_id, raw.branch, entry.seq if seq is None else seq)
        except Unsound as problem:
            return SoundPart(found, str(problem), {at: gone for at, gone in without.items() if at < len(found)})
        found.append(entry)
    return SoundPart(found, None, without)


def adrift(journals: Mapping[str, Sequence[Entry]], unknown: Collection[str]) -> dict[str, str]:
    """The forks of a run that stand on what is gone, each with what that was.

    `unknown` are branches of which more may be there than `journals` say; forks of those are left out.
    """
    lost: dict[str, str] = {}
    bases = {name: entries[0].commit["run"].get("base") for name, entries in journals.items() if entries}
    for name, base in sorted(bases.items(), key=lambda item: item[1]["seq"] if item[1] else 0):
        if base and base["branch"] not in unknown:
            heads = [(entry.seq, entry.sum) for entry in journals.get(base["branch"], ())]
            if base["branch"] in lost or (base["seq"], base["sum"]) not in heads:
                lost[name] = f"what it was forked from ({base['branch']}, commit {base['seq']}) is gone"
    return lost


def _writer_of(location: str, raw: RawBranch, commits: Iterable[object]) -> str | None:
    """Who, alive, is at work on a branch; `commits` are its commits, as far as they can be read at all."""
    claim: Claim | None = None
    for commit in commits:
        if isinstance(commit, dict):
            claim = commit.get("claim", None if ends_claim(commit) else claim)
    try:
        return holder_at(location, raw.run_id, raw.branch, claim, raw.touched)
    except (LookupError, TypeError, ValueError):
        return None  # a claim among what is damaged
