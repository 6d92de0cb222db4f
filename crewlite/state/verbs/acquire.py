"""Taking a branch for writing: opened, read and claimed by this process, or let go again."""

from __future__ import annotations

from collections.abc import Callable

from crewlite import background
from crewlite.errors import BranchConflictError, CrewliteError, JournalCorrupt, StoreUnusable
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import Record
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.compact import bases
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import whole
from crewlite.state.journal.writer import Lane, Writer, open_writer, opened_already
from crewlite.state.providers import Store
from crewlite.state.reading.locate import Located

Taken = tuple[Located, Lane, Record]


async def taken(target: Callable[[], Located]) -> Taken:
    """`take`, off the caller's loop."""
    return await background.acquire(lambda: take(target()), _let_go)


def take(target: Located) -> Taken:
    """Take a branch for writing, and read its record.

    Raises BranchConflictError if somebody alive writes it, JournalCorrupt if it is damaged, StoreUnusable.
    """
    lane = _entered(open_writer(target.provider, target.location), target)
    try:
        return target, lane, _read(lane.store, lane, target)
    except BaseException:
        lane.leave()
        raise


async def taken_new(target: Located) -> Taken:
    """Take the branch of a new run, without reading it."""
    if writer := opened_already(target.provider, target.location):
        return target, _entered(writer, target), Record()

    def opened() -> Taken:
        return target, _entered(open_writer(target.provider, target.location), target), Record()

    return await background.acquire(opened, _let_go)


def _entered(writer: Writer, target: Located) -> Lane:
    try:
        return writer.enter(target.run_id, target.branch)
    except BaseException:
        writer.release()
        raise


async def claimed(journal: Journal, facts: CommitParts) -> None:
    """Claim the branch with a commit. Once it is stored, the store is known to accept commits."""
    mine = journal.take_claim()  # also if this is cancelled before it is known to be stored
    try:
        await journal.store({**facts, "claim": mine})
    except Exception as error:
        journal.give_up_claim()  # nothing was started, so there is nothing to save later
        if isinstance(error, CrewliteError):
            raise
        raise StoreUnusable(journal.location or "", f"nothing can be saved ({error}); nothing was started") from error


def _let_go(taken: Taken) -> None:
    taken[1].leave()


def _read(store: Store, lane: Lane, target: Located) -> Record:
    """What a branch holds."""
    record = Record.of(whole(store, target.run_id, target.branch))
    if holder := held_by(record.claim, store.touched(target.run_id, target.branch)):
        raise BranchConflictError(target.run_id, target.branch, holder=holder)
    lane.seq, lane.sum = record.head
    try:
        lane.bases = bases(store.branches(target.run_id), target.branch)
    except JournalCorrupt:  # nobody knows what that branch stands on, so nothing is dropped
        lane.bases = frozenset(record.places)
    return record
