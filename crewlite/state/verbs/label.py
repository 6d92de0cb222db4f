"""Labels: the user names an earlier place of a run, such as `before-the-merge`."""

from __future__ import annotations

from crewlite import events
from crewlite.errors import RefError
from crewlite.events.event_bus import event_bus
from crewlite.ids import short
from crewlite.refs import check_name
from crewlite.state.format.checkpoints import recorded_in
from crewlite.state.format.commit import CheckpointRecord, CommitParts
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import own_entries
from crewlite.state.journal import lineage
from crewlite.state.journal.journal import Journal, journal_of
from crewlite.state.journal.manual import name_checkpoint, outcome_unless_over
from crewlite.state.providers import Commit, Store
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.subscriber import new_checkpoint
from crewlite.state.verbs.from_outside import appended, check_idle, commit_beside
from crewlite.texts.resuming import in_shell

Lines = dict[str, list[Entry]]
"""The entries of each branch of a run, by name. Those of a fork begin with the inherited ones."""


def label(store: Store, found: Checkpoint, name: str, source: object, provider: str) -> tuple[str, str]:
    """Append a checkpoint with this label at the commit of `found`, on its branch. Returns (branch, checkpoint id).

    Then emits the event, with `source` as its source and the name of the provider. If the place has the label already,
    returns the checkpoint that has it. If this process is running the branch, the run itself commits the label. Raises
    what `History.label` raises.
    """
    check_name("label", name)

    def make() -> tuple[list[Commit], tuple[str, str, bool]]:
        lines = _lines(store, found)
        record = Record.of(lines[found.branch])
        total = next((entry.sum for entry in lines[found.branch] if entry.seq == found.seq), None)
        if total is None or found.id not in record.checkpoints:
            raise lineage.gone(store, found.ref, "checkpoint")
        if same := _existing(lines, found, total, name, abandoned=not record.is_valid(found.seq)):
            is_last = same[1] == lines[same[0]][-1].commit.get("place", {}).get("id")
            return [lineage.last_commit_again(own_entries(lines[same[0]]))] if is_last else [], (*same, False)
        journal = journal_of(record.claim, store.location)
        if journal and (identifier := _give_at_work(store, journal, found, total, name)):
            return [], (found.branch, identifier, True)
        instead = in_shell(f"fork {short(found.id)} --branch {name} --no-run", store.location)
        check_idle(
            store,
            record,
            f"and only that process can give it a label now: nothing was changed. Label {short(found.id)} once the run "
            f"has ended, or name the place by a fork: {instead}",
        )
        new = _checkpoint(record, record.checkpoints[found.id], total, name)
        return [commit_beside(record, {"place": new})], (found.branch, new["id"], True)

    branch, identifier, is_new = appended(store, make)
    if is_new:
        about = {"location": store.location, "provider": provider, "run_id": found.run_id, "branch": branch}
        event_bus.emit(source, events.CheckpointLabelledEvent(**about, checkpoint_id=identifier, label=name))
    return branch, identifier


def _give_at_work(store: Store, journal: Journal, found: Checkpoint, total: str, name: str) -> str | None:
    """Have the run commit the label. Returns the id of the new checkpoint; None if the run writes no more."""

    def make() -> CommitParts:
        record = journal.record
        if found.id not in record.checkpoints:  # the run has dropped it meanwhile
            raise lineage.gone(store, found.ref, "checkpoint")
        if other := record.checkpoints.labelled(name):  # the run has given it meanwhile
            raise _label_taken(name, found.run_id, found.branch, other)
        return {"place": _checkpoint(record, record.checkpoints[found.id], total, name)}

    parts = outcome_unless_over(journal, name_checkpoint(journal, make, None))
    return parts["place"]["id"] if parts else None


def _lines(store: Store, found: Checkpoint) -> Lines:
    try:
        journals = lineage.journals_of_run(store, found.run_id)
    except lineage.UNREADABLE:  # of another branch, perhaps: its labels cannot be read
        journals = lineage.journals_of_branch(store, found.run_id, found.branch)
    if found.branch not in journals:
        raise lineage.gone(store, f"{found.run_id}/{found.branch}", "branch")
    return {name: lineage.with_inherited(journals, name) for name in journals}


def _existing(lines: Lines, found: Checkpoint, total: str, name: str, *, abandoned: bool) -> tuple[str, str] | None:
    """Return the branch and the id of the checkpoint that has the label at this place; None if no place has it.

    A label that a rewind has abandoned may be given again, but not to a place that is abandoned too, on the branch that
    holds it: `abandoned`. Raises RefError if another place has it.
    """
    for branch, entries in lines.items():
        if not any(one.get("label") == name for entry in entries for one in recorded_in(entry)):
            continue  # most branches: they need not be replayed
        record, sums = Record.of(entries), {entry.seq: entry.sum for entry in entries}
        for other in record.checkpoints.values():
            if other.get("label") == name and (abandoned or record.is_valid(other["seq"])):
                if sums[other["seq"]] == total:
                    return branch, other["id"]
                raise _label_taken(name, found.run_id, branch, other)
    return None


def _checkpoint(record: Record, place: CheckpointRecord, total: str, name: str) -> CheckpointRecord:
    about, kept = place["about"], place.get("metadata")
    return new_checkpoint(
        record, place["seq"], place["trigger"], place["address"], about=about, total=total, label=name, metadata=kept
    )


def _label_taken(name: str, run_id: str, branch: str, other: CheckpointRecord) -> RefError:
    where = f"{short(other['id'])} ({other['address'] or other['trigger']})"
    return RefError(
        name, f"labels another place of the run already, checkpoint {where} of {run_id}/{branch}: choose another label"
    )
