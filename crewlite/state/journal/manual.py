"""Requests of the user's code to a journal, from any thread: create a checkpoint, commit a change, flush."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TypeVar

from crewlite.concurrency import background
from crewlite.concurrency.background import ends_task, ordinary
from crewlite.concurrency.between_loops import uncancellable
from crewlite.errors import BranchConflictError, RunCancelled, StoreError, text_of
from crewlite.state.format.commit import CheckpointRecord, CommitData, CommitParts
from crewlite.state.format.entry import Entry, seal
from crewlite.state.journal.journal import Journal, journal_of
from crewlite.state.journal.opening import open_writer
from crewlite.state.journal.writer import Writer
from crewlite.state.providers import BaseProvider, provider_for
from crewlite.state.providers.writing import not_saved

T = TypeVar("T")


def opened_at(location: str, provider: BaseProvider | None) -> Writer:
    """Open the writer of a location, for `name_checkpoint`. Blocks until the store is open."""
    return open_writer(provider_for(location, provider), location)


def name_checkpoint(journal: Journal, make: Callable[[], CommitParts], at: Writer | None) -> Future[CommitParts]:
    """Commit a checkpoint with the parts that `make` returns. The future gets them once they are durable, or an error.

    With `at`, a run without a store is stored there from now on. This function always releases `at`.
    """
    held = ExitStack()
    if at:
        held.callback(at.release)

    def pinned() -> CommitParts:
        if at:
            _attach(journal, at)
        if (queue := journal.queue) is None:
            raise StoreError(
                "no store", "this run keeps its record in memory; say where: state.checkpoint('./.checkpoints')"
            )
        parts, upkeep = make(), queue.upkeep
        seq = parts["place"]["seq"]
        upkeep.pinned.add(seq)  # before `compacted` is read: either the compaction sees the pin, or this sees it
        held.callback(upkeep.pinned.discard, seq)
        if seq < upkeep.compacted and seq not in {one["seq"] for one in journal.record.checkpoints.values()}:
            raise StoreError(
                queue.store.location,
                "the event is too long ago for a checkpoint, as its commit was compacted: call checkpoint() earlier",
            )
        return parts

    naming = change(journal, pinned, lambda parts: parts, "the checkpoint was")
    naming.add_done_callback(lambda _: held.close())
    return naming


def outcome(journal: Journal, asked: Future[T]) -> T:
    """Wait for what was asked of a journal, and return it. Raises StoreError if the run's loop was closed first."""
    try:
        return background.wait(asked, work_loop=journal.loop)
    except RuntimeError:
        if asked.done():
            raise
        raise journal.ended() from None


def outcome_unless_over(journal: Journal, asked: Future[T]) -> T | None:
    """Return what `outcome` returns, for a caller outside the run; None if the run writes no more.

    Such a run has ended, was cancelled or has lost its branch. It lets go of the branch next.
    """
    try:
        return outcome(journal, asked)
    except (BranchConflictError, RunCancelled, StoreError):
        if journal_of(journal.claim, str(journal.location)):
            raise
        return None


def ref_of(journal: Journal, checkpoint: CheckpointRecord) -> str:
    """Return the ref that names a checkpoint of a run; its id if the run is in memory only."""
    return journal.queue.store.ref(checkpoint) if journal.queue else checkpoint["id"]


def change(
    journal: Journal, make: Callable[[], CommitParts], seen: Callable[[CommitParts], T], what: str = "the values were"
) -> Future[T]:
    """Commit the parts that `make` returns, in memory if the run has no store. The future gets what `seen` returns.

    Both are called on the run's thread: `make` returns {} to commit nothing, and `seen` gets the parts while the record
    is as this commit leaves it. Its result is set once the commit is durable. `what` is the subject of the message if
    the commit is not saved, such as "the answer was".
    """

    def act(changed: Future[T]) -> None:
        if not (parts := make()):
            changed.set_result(seen(parts))
            return
        stored: Future[BaseException | None] = Future()
        if not journal.commit(parts, stored.set_result):
            stored.set_result(None)
        found: Future[T] = Future()
        try:
            found.set_result(seen(parts))
        except Exception as error:  # raised to the caller once the commit is stored
            found.set_exception(error)
        journal.announce(parts)

        def settle(stored: Future[BaseException | None]) -> None:
            if (unsaved := stored.result()) is not None:
                changed.set_exception(_unsaved(journal, f"{what} not saved", unsaved))
            elif (problem := found.exception()) is not None:
                changed.set_exception(problem)
            else:
                changed.set_result(found.result())

        stored.add_done_callback(settle)

    return _on_its_thread(journal, act)


def flush(journal: Journal) -> Future[int]:
    """Return a future that gets the number of the last commit once all commits are durable, or a StoreError.

    Raises StoreError if the run has ended or has no store.
    """
    if journal.closed:
        raise journal.ended()
    if (queue := journal.queue) is None:
        raise StoreError("no store", "this run keeps its record in memory, so nothing is saved")
    flushed: Future[int] = uncancellable()

    def settle(error: BaseException | None) -> None:
        if error is not None and queue.writer.closed:
            flushed.set_exception(journal.ended())
        elif error is not None:
            flushed.set_exception(_unsaved(journal, "not everything is saved", error))
        else:
            flushed.set_result(queue.head[0])

    queue.put((), settle)
    return flushed


def _unsaved(journal: Journal, what: str, problem: BaseException) -> BaseException:
    """Return the error for a commit that is not stored: that another process has taken the branch, or a StoreError."""
    if isinstance(problem, BranchConflictError | RunCancelled):
        return problem
    location = journal.location or ""
    if isinstance(problem, OSError) and not isinstance(problem, StoreError):
        return not_saved(location, what, problem)
    return StoreError(location, f"{what}: {text_of(problem)}")


def _on_its_thread(journal: Journal, act: Callable[[Future[T]], None]) -> Future[T]:
    """Call `act` with a new future, on the thread of the run, and return the future. An error of `act` is set on it."""
    done: Future[T] = uncancellable()

    def guarded() -> None:
        try:
            if journal.closed:
                raise journal.ended()
            act(done)
        except BaseException as error:  # raised where the future is awaited
            done.set_exception(ordinary(error))
            if ends_task(error):
                raise

    try:
        journal.mailbox.do(guarded)
    except RuntimeError:  # the loop was closed before the run had ended
        done.set_exception(journal.ended())
    return done


def _attach(journal: Journal, at: Writer) -> None:
    """Store a run through `at` from now on. The commits made so far are written before any later one."""
    if journal.queue is None:
        entries = _sealed(journal.unstored)
        journal.queue = at.use().enter(journal.run_id, journal.branch, journal.record.kind, journal.loop)
        journal.queue.backlog, journal.unstored = entries, []
        journal.record.sum, journal.sums = entries[-1].sum, {entry.seq: entry.sum for entry in entries}
        journal.listen()
    elif journal.queue.writer is not at:
        raise StoreError(
            at.store.location,
            f"this run is stored in {journal.location}, and a run has one store: call checkpoint() without a location",
        )


def _sealed(commits: Iterable[CommitData]) -> tuple[Entry, ...]:
    sealed = list[Entry]()
    for commit in commits:
        sealed.append(seal(commit, after=sealed[-1].sum if sealed else ""))
    return tuple(sealed)
