"""Labels: a name for an earlier place of a run, given from outside, such as `before-the-merge`."""

from __future__ import annotations

from crewlite.errors import BranchConflictError, JournalCorrupt, RefError
from crewlite.ids import now_text, short
from crewlite.refs import check_name
from crewlite.state.format.commit import CheckpointRecord, CommitParts
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.holder import holder
from crewlite.state.journal.lineage import gone, journals_of_branch, journals_of_run, standing_on, stored_already
from crewlite.state.providers import Commit, Store
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.subscriber import new_checkpoint

_TRIES = 10  # somebody else may prune the branch meanwhile, though hardly ten times in a row


Lines = dict[str, list[Entry]]
"""The entries of each branch of a run, with those that it is forked from."""


def label(store: Store, found: Checkpoint, name: str) -> tuple[str, str]:
    """Append a checkpoint with this label at the commit of `found`, on its branch. Returns that branch and its id.

    If the place has the label already, returns those of the checkpoint with it. Raises RefError if another place of
    the run has it, BranchConflictError if a live process runs the branch.
    """
    check_name("label", name)
    for left in reversed(range(_TRIES)):
        lines = _lines(store, found)
        record = Record.of(lines[found.branch])
        total = next((entry.sum for entry in lines[found.branch] if entry.seq == found.seq), None)
        if total is None or found.id not in record.checkpoints:
            raise gone(store, found.ref, "checkpoint")
        if same := _labelled(lines, found, total, name):
            if same[1] == lines[same[0]][-1].commit.get("place", {}).get("id"):
                store.append([stored_already(_own(lines[same[0]]))])
            return same
        if by := holder(store, found.run_id, found.branch, record.claim):
            raise _at_work(found.run_id, found.branch, by)
        commit = _commit(record, record.checkpoints[found.id], total, name)
        try:
            store.append([commit])
            break
        except BranchConflictError:
            if not left:
                raise
    return found.branch, commit.entries[0].commit["place"]["id"]


def _own(entries: list[Entry]) -> list[Entry]:
    return entries[max(at for at, entry in enumerate(entries) if "run" in entry.commit) :]


def _lines(store: Store, found: Checkpoint) -> Lines:
    try:
        journals = journals_of_run(store, found.run_id)
    except JournalCorrupt:  # another branch may be damaged; its labels cannot be read
        journals = journals_of_branch(store, found.run_id, found.branch)
    if found.branch not in journals:
        raise gone(store, f"{found.run_id}/{found.branch}", "branch")
    return {branch: [*standing_on(journals, branch), *own] for branch, own in journals.items()}


def _labelled(lines: Lines, found: Checkpoint, total: str, name: str) -> tuple[str, str] | None:
    """Return the branch and the id of the checkpoint that has the label at this place; None if no place has it.

    A label that a rewind has abandoned may be given again. Raises RefError if another place has it.
    """
    for branch, entries in lines.items():
        record, sums = Record.of(entries), {entry.seq: entry.sum for entry in entries}
        for other in record.checkpoints.values():
            if other.get("label") == name and (found.abandoned or record.counts(other["seq"])):
                if sums[other["seq"]] == total:
                    return branch, other["id"]
                raise _taken(name, found.run_id, branch, other)
    return None


def _commit(record: Record, place: CheckpointRecord, total: str, name: str) -> Commit:
    about, said = place["about"], place.get("metadata")
    new = new_checkpoint(
        record, place["seq"], place["trigger"], place["address"], about=about, total=total, label=name, metadata=said
    )
    new["at"] = now_text()
    parts: CommitParts = {"place": new}
    parts |= {"released": True} if record.claim else {}  # its holder is dead: this must not pass for a sign of life
    return Commit.saying(record.run["run_id"], record.run["branch"], record.head, parts)


def _taken(name: str, run_id: str, branch: str, other: CheckpointRecord) -> RefError:
    where = f"{short(other['id'])} ({other['address'] or other['trigger']})"
    return RefError(
        name, f"labels another place of the run already, checkpoint {where} of {run_id}/{branch}: choose another label"
    )


def _at_work(run_id: str, branch: str, by: str) -> BranchConflictError:
    problem = (
        f"is being run by {by}, so no label was given. Wait for it to end; or label within the run, with "
        f"state.snapshot(label=...)"
    )
    return BranchConflictError(run_id, branch, holder=by, problem=problem)
