"""Acquire a branch for writing: open it, read it and claim it with a commit, so that no other process may write it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crewlite.concurrency import background
from crewlite.errors import BranchConflictError, CrewliteError, StoreUnusable, text_of
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import Record
from crewlite.state.format.rewinds import own_entries
from crewlite.state.journal.claim import held_by
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import UNREADABLE, find_lineage
from crewlite.state.journal.opening import open_writer, opened_already, wait_for_earlier
from crewlite.state.journal.upkeep import bases
from crewlite.state.journal.writer import WriteQueue, Writer
from crewlite.state.providers import Store
from crewlite.state.providers.writing import is_full
from crewlite.state.reading.located import Located

AcquiredBranch = tuple[Located, WriteQueue, Record]


async def acquire_branch(target: Callable[[], Located], kind: str) -> AcquiredBranch:
    """Open a branch for writing and read its record, on a thread other than the caller's. `store_claim` then claims it.

    `kind`: of the definition that goes on with it. Raises BranchConflictError if a live process is running the branch,
    JournalCorrupt if the branch is damaged, StoreUnusable if the location cannot be used.
    """
    loop = asyncio.get_running_loop()

    def acquired() -> AcquiredBranch:
        found = target()
        queue = _entered(open_writer(found.provider, found.location), found, kind, loop)
        try:
            wait_for_earlier(queue)
            return found, queue, _read(queue.store, queue, found)
        except BaseException:
            if closing := queue.leave():
                closing.exception()  # waits for that: whoever is refused may delete the store next
            raise

    return await background.acquire(acquired, lambda branch: branch[1].leave())


async def acquire_new_branch(target: Located, kind: str) -> AcquiredBranch:
    """Open the branch of a new run for writing, without reading it. Its record is empty."""
    loop = asyncio.get_running_loop()
    if writer := opened_already(target.provider, target.location):
        return target, _entered(writer, target, kind, loop), Record()
    queue = await background.acquire(
        lambda: _entered(open_writer(target.provider, target.location), target, kind, loop), WriteQueue.leave
    )
    return target, queue, Record()


def _entered(writer: Writer, target: Located, kind: str, loop: asyncio.AbstractEventLoop) -> WriteQueue:
    try:
        return writer.enter(target.run_id, target.branch, kind, loop)
    except BaseException:
        writer.release()
        raise


async def store_claim(journal: Journal, parts: CommitParts) -> None:
    """Claim the branch for this process with a commit, and wait until the commit is stored.

    Raises StoreUnusable if it cannot be stored, so that a run fails before anything has been paid, and
    BranchConflictError if another process was first.
    """
    mine = journal.make_claim()  # before the wait, so that a cancellation during it still releases the claim
    try:
        if stored := journal.store({**parts, "claim": mine}):
            await stored
    except Exception as error:
        owes = not isinstance(error, BranchConflictError)
        journal.give_up_claim(owes=owes)  # nothing was started, so there is nothing to save later
        if isinstance(error, CrewliteError):
            raise
        remedy = "free space on its disk" if is_full(error) else "make it writable"
        problem = f"nothing can be saved ({text_of(error)}), so nothing was started: {remedy}, or use another location"
        raise StoreUnusable(journal.location or "", problem) from error


def _read(store: Store, queue: WriteQueue, target: Located) -> Record:
    """Return the record of a branch, and ready its queue to append. Raises BranchConflictError if a process runs it."""
    before = store.touched(target.run_id, target.branch)
    found = find_lineage(store, target.run_id, target.branch)
    record, touched = found.record(), store.touched(target.run_id, target.branch)
    if holder := held_by(record.claim, touched):
        raise BranchConflictError(target.run_id, target.branch, holder=holder, kind=record.kind)
    if record.claim and touched != before:
        return _read(store, queue, target)  # its holder was alive when it was read, and has ended since
    queue.head = record.head
    queue.read = own_entries(found.entries)
    try:
        queue.upkeep.bases = bases(store.branches(target.run_id), target.branch)
    except UNREADABLE:  # a fork that cannot be read may start from any checkpoint, so none is dropped
        queue.upkeep.bases = frozenset(record.checkpoints)
    return record
