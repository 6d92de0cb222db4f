"""Rewinding: a branch goes back to an earlier commit of its own, and its next kickoff continues from there.

One commit is appended and none is erased. What came after stays readable as an abandoned tail, which can be forked and
gone back to. Usage keeps counting what was paid.
"""

from __future__ import annotations

from collections.abc import Sequence

from crewlite import events
from crewlite.errors import ConfigError, RefError
from crewlite.events.event_bus import event_bus
from crewlite.state.format.commit import CommitParts, RewindTarget
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import ends_of_tails, own_entries
from crewlite.state.journal.effects import check_effects
from crewlite.state.journal.lineage import last_commit_again, read_lineage
from crewlite.state.providers import Commit, Store
from crewlite.state.reading.locate import abandoned_by
from crewlite.state.reading.located import Located
from crewlite.state.verbs.from_outside import appended, check_idle
from crewlite.texts.resuming import in_shell
from crewlite.texts.secrets import Secrets


def rewind(store: Store, found: Located, source: object, *, ref: str, reason: str, allow_effects: bool = False) -> None:
    """Append the commit that rewinds a branch to `found`: a checkpoint, or the end of what an earlier rewind abandoned.

    Then emits the event, with `source` as its source. Does nothing if the branch is at that place already. Raises what
    `History.rewind` raises.
    """
    if not isinstance(reason, str):
        raise ConfigError(f"reason is {reason!r}; wanted a text")
    run_id, branch, masked = found.run_id, found.branch, Secrets.of().mask(reason)

    def make() -> tuple[list[Commit], int | None]:
        entries, lacks = read_lineage(store, run_id, branch)
        record = Record.of(entries, lacks)
        check_idle(
            store,
            record,
            f"so it cannot go back. Cancel it first ({in_shell(f'cancel {run_id}/{branch}', store.location)}), or fork "
            f"the place: {in_shell(f'fork {ref}', store.location)}",
        )
        own = own_entries(entries)
        back, last = _target(entries, own, record, found, ref), own[-1]
        if last.commit.get("rewind", {}).get("seq") == back["seq"] and last.first == last.seq:  # it stands there
            return [last_commit_again(own)], None
        if not allow_effects:
            check_effects(entries, back["seq"], ref)
        parts: CommitParts = {"rewind": back | ({"reason": masked} if masked else {}), "released": True}
        return [Commit.of(run_id, branch, last.head, parts)], len(ends_of_tails(entries)) + 1

    if number := appended(store, make):
        about = found.event_fields | {"checkpoint_id": found.checkpoint, "abandoned": number, "reason": masked}
        event_bus.emit(source, events.CheckpointRewoundEvent(**about))


def _target(entries: Sequence[Entry], own: Sequence[Entry], record: Record, found: Located, ref: str) -> RewindTarget:
    """Return the commit to go back to. Raises RefError if it is not among `own`, those of the branch itself."""
    if found.abandoned is not None:
        seq = abandoned_by(entries, found.abandoned, ref)[-1].seq
    elif found.checkpoint is None:
        raise RefError(ref, "names no place to go back to; wanted a checkpoint, such as run@task:name, run~1 or an id")
    elif found.checkpoint in record.checkpoints:
        seq = record.checkpoints[found.checkpoint]["seq"]
    else:
        raise RefError(ref, f"names no checkpoint of {found.run_id}/{found.branch} any more: it was pruned or deleted")
    if seq == record.base:  # where a fork begins: with its own first commit, which holds its edits and inputs
        seq = own[0].seq
    total = next((entry.sum for entry in own if entry.seq == seq), None)
    if total is None:
        raise RefError(
            ref, f"is before the place at which {found.run_id}/{found.branch} was forked: fork that place instead"
        )
    return {"seq": seq, "sum": total}
