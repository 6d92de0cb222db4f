"""Compaction of a journal: it merges commits, and leaves out the work of models that has ended and no checkpoint needs.

A finished task, agent or tool call is answered by its own outcome, so the outcomes of the steps inside it are needed
only by checkpoints that lie in the middle of it, and those of calls with effect="once" by the next attempt at a step
around it. Kept are all steps outside of such work, which a fork may ask for again, all usage, all events, and outcomes
that end something recorded before a place to keep. The commits between two places to keep (`_ends`) become one commit,
with the checksum of the last of them, to which the next commit and all forks are chained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from crewlite.errors import JournalCorrupt
from crewlite.state.format.addresses import around, is_in_work_of_a_model, outers, subject
from crewlite.state.format.commit import (
    AskedQuestion,
    CheckpointRecord,
    CommitData,
    CommitParts,
    Compacted,
    LateChanges,
    StepRecord,
    ValueChanges,
    invalidated,
)
from crewlite.state.format.entry import SCHEMA, Entry, seal
from crewlite.state.format.kept import order_of_late
from crewlite.state.format.operations import difference
from crewlite.state.format.outcome import Outcome, causes_of, resolved
from crewlite.state.format.paid import Paid
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import ends_of_tails
from crewlite.state.format.times import Times
from crewlite.state.format.undecided import undecided
from crewlite.state.journal.effects import once_calls
from crewlite.state.journal.lineage import base_of


def compact_entries(before: Sequence[Entry], own: Sequence[Entry], pinned: Iterable[int]) -> list[Entry]:
    """Return a branch's own entries, without details that no checkpoint, nor the head, nor a pinned entry needs.

    `before` are the entries that it inherits, `pinned` the numbers of entries that must not be merged with later ones.
    The first entry stays too, as it tells when the branch was created. Raises JournalCorrupt if an entry is missing.
    """
    _check_contiguous([*before, *own])
    record, live, compacted = Record.of([*before, *own]), Record.of(before), list[Entry]()
    ends = {one["seq"] for one in record.checkpoints.values()} | _ends(own) | _begun_inside(own, live) | {*pinned}
    ends |= {entry.seq for entry in own if _checkpoint_of(entry, record)}
    base, read, once = base_of(own), list(before), once_calls([*before, *own])
    tails = [[*before, *(entry for entry in own if entry.seq <= end)] for end in ends_of_tails(own)]
    after, shortened = base["sum"] if base else "", _StepsLeftOut([record, *map(Record.of, tails)])
    for part in _parts(own, ends):
        live = live.before(part[0], read)
        commit = _Part(part, live).merged(record, shortened)
        if made := [call for call in once if part[0].first <= call["seq"] <= part[-1].seq]:
            commit["made"] = made
        merged = seal(commit, after=after)
        timed = _timed([merged]) - _timed(part)  # else the next compaction would take them from what this one leaves
        compacted += [merged] if timed or len(merged.line) < size(part) else part
        after = part[-1].sum
        read += part
    return compacted


def _timed(entries: Iterable[Entry]) -> set[str]:
    """Return the addresses of the steps whose outcomes in these entries say how long they had worked."""
    return {step["address"] for entry in entries for step in entry.commit.get("steps", ()) if "worked" in step}


def _ends(own: Sequence[Entry]) -> set[int]:
    """Return the numbers of the entries of a branch that are not merged with later ones, whatever its checkpoints."""
    ends, halted = {own[0].seq, own[-1].seq}, "base" in own[0].commit["run"]  # nobody has kicked off a new fork
    for entry in own:
        commit = entry.commit
        if back := commit.get("rewind"):  # the commits that a rewind abandons are compacted separately
            ends |= {back["seq"], entry.first - 1, entry.seq}  # and the rewind keeps its time
        if "definition" in commit or "inputs" in commit:  # what ended before was done by the earlier ones
            ends.add(entry.first - 1)
        if "claim" in commit and halted:  # the run goes on: merged with a later release, it would be left out
            ends |= {entry.first - 1, entry.seq}
        if any(subject(one["address"]) != one["address"] for one in commit.get("asked", ())):
            ends.add(entry.seq)  # it takes the place of an earlier question, also once it is answered and left out
        halted = "claim" not in commit and (halted or back is not None or _halts(commit))
    return ends


def _begun_inside(own: Sequence[Entry], before: Record) -> set[int]:
    """Return the numbers of the entries with the last intents of calls without an outcome in steps that have finished.

    These are calls with effect="once" that failed, or that took no effect. In one commit with the end of the step
    around the call, the intent would invalidate that. `before`: the record of the entries that the branch inherits.
    """
    found, inside = set[int](), defaultdict[str, dict[str, int]](dict)
    intents = [(before.seq, at, effect) for at, effect in before.intents.items() if at not in before.outcomes]
    for entry in own:
        for step in entry.commit.get("steps", ()):
            if "value" in step:
                found.update(inside[step["address"]].values())
            for outer in outers(step["address"]) if "error" not in step else ():
                inside[outer].pop(step["address"], None)
        intents += [(entry.seq, at, effect) for at, effect, *_ in entry.commit.get("intents", ())]
        for seq, at, effect in intents:
            for outer in outers(at):
                if effect == "once" or at in inside[outer]:
                    inside[outer][at] = seq
        intents.clear()
    return found


def _halts(commit: CommitData) -> bool:
    """Return whether a commit records that the run failed or a budget stopped it, which is so until the next claim."""
    failed = (step.get("error", {}).get("final") for step in commit.get("steps", ()) if not step["address"])
    return "stopped" in commit or any(failed)


def _check_contiguous(entries: Sequence[Entry]) -> None:
    """Raise JournalCorrupt if an entry is missing: a compaction would hide the gap."""
    seq = 0
    for entry in entries:
        if entry.first != seq + 1:
            raise JournalCorrupt(f"compaction before commit {entry.seq}", f"commit {seq + 1} is missing", None)
        seq = entry.seq


def _parts(entries: Sequence[Entry], ends: set[int]) -> Iterator[list[Entry]]:
    """Yield groups of consecutive entries, each ending with an entry whose number is in `ends`."""
    part: list[Entry] = []
    for entry in entries:
        part.append(entry)
        if entry.seq in ends:
            yield part
            part = []


class _Part:
    """Consecutive entries that become one commit, with what was valid before them.

    `live`: the record before the entries. They are applied to it, so from then on it is the record at their end.
    """

    def __init__(self, entries: Sequence[Entry], live: Record) -> None:
        self.entries, self.live = entries, live
        self.earlier = self._outcomes_before()
        self.ending = self._ending()
        self.values_before, self.restored_before = live.kept, live.restored
        for entry in entries:
            live.apply(entry)

    def _outcomes_before(self) -> dict[str, Outcome]:
        """Return the outcomes, as they were before, of the steps in the entries and of the steps that enclose them."""
        about = {step["address"] for entry in self.entries for step in entry.commit.get("steps", ())}
        about |= {address for entry in self.entries for address, *_ in entry.commit.get("intents", ())}
        outcomes = self.live.outcomes
        return {at: outcomes[at] for at in about | around(about) if at in outcomes}

    def _ending(self) -> set[str]:
        """Return the steps whose outcomes here settle something older: a call that began, a failure, its question.

        Without these outcomes, the call would be in doubt, the failure would count, the question would be open.
        """
        live = self.live
        known = (live.intents.keys() - live.outcomes.keys()) | live.attempts.keys() | undecided(live).keys()
        steps = (step for entry in self.entries for step in entry.commit.get("steps", ()))
        failed = live.failures.keys()
        return {at for step in steps if (at := step["address"]) in known or not failed.isdisjoint(causes_of(step))}

    def merged(self, record: Record, shortened: _StepsLeftOut) -> CommitData:
        """Build the one commit. It leaves out the steps in the work of a model that has finished by its end.

        `record`: that of the complete branch. `shortened`: the steps whose child steps were left out of the commits
        built so far.
        """
        live, last, paid, begins = self.live, self.entries[-1], Paid(), CommitParts()
        steps = [step for entry in self.entries for step in _dated(entry, last)]
        stay = self.ending | live.edited.keys()  # whether a change has taken effect follows from the outcome
        # a fork that runs the code around these again takes them from the record
        stay |= {at for step in steps if not is_in_work_of_a_model(at := step["address"])}
        if not record.finished:  # calls that may answer a next attempt around them
            stay |= set(live.once)
        gone = {at for step in steps if (at := step["address"]) not in stay and self._is_settled(at)}
        shortened.add(gone)
        for entry in self.entries:
            parts = entry.commit
            names = (name for name in ("run", "rewind", "definition", "inputs", "auto_approve") if name in parts)
            begins |= cast(CommitParts, {name: parts[name] for name in names})
            paid.count({"usage": parts.get("usage", {}), "usage_inside": parts.get("usage_inside", {})})
        paid.count({"steps": [step for step in steps if step["address"] in gone]})
        kept = [shortened.timed(_resolved(step, gone, live)) for step in steps if step["address"] not in gone]
        commit: CommitData = {
            "schema": SCHEMA,
            "seq": last.seq,
            "at": last.commit["at"],
            **begins,
            "folded": self._folded(),
            **self._lists([*self._tombstones(), *kept]),
            **paid.parts(left_out=lambda at: live.is_inside(at) and at not in stay),
            **self._ends(_checkpoint_of(last, record)),
        }
        self._add_values(commit)
        return commit

    def _is_settled(self, address: str) -> bool:
        """Return whether a step around this one has finished here: an earlier outcome may be about to be replaced."""
        outcomes = self.live.outcomes
        return any(at in outcomes and outcomes[at] is not self.earlier.get(at) for at in outers(address))

    def _folded(self) -> Compacted:
        """Return what the commit tells of the entries that it replaces."""
        first, last, numbers = self.entries[0].first, self.entries[-1], list[int]()
        claims = [seq for seq in self.live.events.claims if first <= seq <= last.seq]
        folded: Compacted = {"first": first, "sum": last.sum, "claims": claims}
        for entry in self.entries:  # which may be a merged commit itself
            numbers += entry.commit.get("folded", {}).get("events") or [entry.seq] * len(entry.commit.get("events", ()))
        if numbers:
            folded["events"] = numbers
        return folded

    def _tombstones(self) -> list[StepRecord]:
        """Build tombstones for the outcomes in `earlier` that no longer count, as the steps ran again.

        Without them, an earlier outcome of such a step would count again once the later one is left out.
        """
        live = self.live
        return [
            invalidated(address, outcome.kind)
            for address, outcome in self.earlier.items()
            if live.is_inside(address) and live.outcomes.get(address) is not outcome
        ]

    def _lists(self, steps: list[StepRecord]) -> CommitParts:
        """Return the parts of the commit that are lists: its `steps`, and what it keeps of the entries."""
        live, commits = self.live, [entry.commit for entry in self.entries]
        intents = (call for commit in commits for call in commit.get("intents", ()))
        answered = dict.fromkeys(answer["address"] for commit in commits for answer in commit.get("answers", ()))
        lists: CommitParts = {
            "steps": steps,
            # the intent of a finished call would invalidate its outcome again
            "intents": [call for call in intents if not live.settled(call[0])],
            "asked": [
                cast(AskedQuestion, {"seq": entry.seq, **asked})
                for entry in self.entries
                for asked in entry.commit.get("asked", ())
                if not live.settled(asked["address"])
            ],
            # in the form in which a question in these entries has accepted them
            "answers": [live.answers[at] for at in answered if at in live.answers and not live.settled(at)],
            "events": [event for commit in commits for event in commit.get("events", ())],
            "drops": [drop for commit in commits for drop in commit.get("drops", ())],
            "copied": [total for commit in commits for total in commit.get("copied", ())],
            "late": [late for entry in self.entries for late in _late(entry, live)],
            "worked": [
                worked
                for commit in commits
                for worked in commit.get("worked", ())
                if live.worked[worked["address"]] is worked and not live.settled(worked["address"])
            ],
        }
        return cast(CommitParts, {name: items for name, items in lists.items() if items})

    def _ends(self, checkpoint: CheckpointRecord | None) -> CommitParts:
        """Return the parts of the commit that say how the run stands at its end."""
        ends: CommitParts = {"claim": self.live.claim} if self.live.claim else {"released": True}
        if self.live.died:
            ends["died"] = True
        if self.live.cancelled:
            ends["cancelled"] = True
        if self.live.stopped:
            ends["stopped"] = self.live.stopped
        if checkpoint:
            ends["place"] = checkpoint
        return ends

    def _add_values(self, commit: CommitData) -> None:
        """Add the changes from the values before the entries to those after them, if there are any."""
        before, live, changed = self.values_before, self.live, ValueChanges()
        commit["values"] = changed  # for `before.after(commit)`, which applies what is in it so far
        if own := difference(before.own, live.kept.own):
            changed["ops"] = own
        if seen := difference(before.after(commit).values, live.values):
            changed["seen_after"] = seen
        counted = before.after(commit).versions
        if versions := {name: number for name, number in live.kept.versions.items() if counted.get(name) != number}:
            changed["versions"] = versions
        if live.restored != self.restored_before:
            changed["restored"] = live.restored
        if not changed:
            del commit["values"]


def _dated(entry: Entry, last: Entry) -> list[StepRecord]:
    """Return the steps of an entry, with their place and time, which merging would lose."""
    steps: list[StepRecord] = [
        {"recorded": (entry.seq, n), **step} for n, step in enumerate(entry.commit.get("steps", ()))
    ]
    at = entry.commit["at"]
    return steps if at == last.commit["at"] else [{"at": at, **step} for step in steps]


def _late(entry: Entry, live: Record) -> list[LateChanges]:
    """Return the late changes of handlers to steps whose outcomes are still valid, with their order."""
    return [
        {"order": [*order_of_late(entry.seq, number)], **late}
        for number, late in enumerate(entry.commit.get("late", ()))
        if not live.is_inside(at := late["address"])
        and any(operations is late["ops"] for _, operations in live.late.get(at, ()))
    ]


def _resolved(step: StepRecord, gone: set[str], live: Record) -> StepRecord:
    """Return a step with its references to removed steps replaced by their texts."""
    if "value" not in step:
        return step
    return {**step, "value": resolved(step["value"], lambda at: live.outcomes[at].value["text"], gone)}


def _checkpoint_of(entry: Entry, record: Record) -> CheckpointRecord | None:
    """Return the checkpoint that an entry creates, if it is to be kept; None otherwise.

    The one with the highest version stays in the journal after it was dropped, so that no other gets that version.
    """
    checkpoint = entry.commit.get("place")
    kept = checkpoint and (
        checkpoint["id"] in record.checkpoints or checkpoint.get("version") == record.checkpoints.highest_version
    )
    return checkpoint if kept else None


class _StepsLeftOut:
    """The steps of a branch whose child steps a compaction leaves out. Their times must be recorded with them.

    `records`: that of the branch, and those right before its rewinds.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._records, self._steps = [(record, Times(record)) for record in records], set[str]()

    def add(self, gone: Iterable[str]) -> None:
        """Note that the compaction leaves out these steps."""
        self._steps |= {at for step in gone for at in (*outers(step), "")}

    def timed(self, step: StepRecord) -> StepRecord:
        """Return the record of a step; with its time, if it is the outcome of a step with child steps left out."""
        if (at := step["address"]) not in self._steps or "worked" in step:
            return step
        for record, times in self._records:
            outcome = record.outcomes.get(at)
            if outcome and "value" in step and step["recorded"][0] == outcome.seq:
                return {**step, "worked": times.milliseconds(at)}
        return step


def size(entries: Iterable[Entry]) -> int:
    """Return the size of these entries in bytes, without newlines."""
    return sum(len(entry.line) for entry in entries)
