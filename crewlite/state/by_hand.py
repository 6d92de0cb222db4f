"""What is asked of a journal by hand, from any thread: to name a place, to record a change, to flush."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from crewlite.errors import BranchConflictError, StoreError
from crewlite.state.entry import Facts
from crewlite.state.journal import Journal
from crewlite.state.providers import BaseProvider, provider_for
from crewlite.state.writer import open_writer

T = TypeVar("T")


def name_place(
    journal: Journal, make: Callable[[], Facts], provider: BaseProvider | None, location: str | None
) -> Future[Facts]:
    """Name a place. The future gives its facts once they are durable, or raises."""

    def act(named: Future[Facts]) -> None:
        facts = make()
        if location is not None:
            _attach(journal, provider, location)
        if journal.writer is None:
            raise StoreError(
                "no store", "this run keeps its record in memory; say where: state.checkpoint('./.checkpoints')"
            )
        where = journal.location or ""

        def done(error: BaseException | None) -> None:
            if error:
                named.set_exception(StoreError(where, f"the checkpoint was not saved: {error}"))
            else:
                named.set_result(facts)

        journal.unsettled += 1
        journal.commit(facts, done)

    return _on_its_thread(journal, act)


def change(journal: Journal, make: Callable[[], Facts], seen: Callable[[Facts], T]) -> Future[T]:
    """Commit; a run without a store keeps it in memory.

    `seen` is called with the facts while the record is as they leave it. What it returns is the future's, once they are
    durable.
    """

    def act(changed: Future[T]) -> None:
        facts, found, failed = make(), list[T](), list[Exception]()

        def look() -> None:
            try:
                found.append(seen(facts))
            except Exception as error:  # noqa: BLE001 - the commit is made; an error here would leave it out of the store
                failed.append(error)

        def done(error: BaseException | None) -> None:
            if isinstance(error, BranchConflictError):
                changed.set_exception(error)
            elif error:
                changed.set_exception(StoreError(journal.location or "", f"the values were not saved: {error}"))
            elif failed:
                changed.set_exception(failed[0])
            else:
                changed.set_result(found[0])

        if journal.commit(facts, done, sealed=look):
            journal.unsettled += 1
        else:
            done(None)

    return _on_its_thread(journal, act)


def flush(journal: Journal) -> Future[int]:
    """The future gives the number of the last commit once all is durable, or raises StoreError."""
    flushed: Future[int] = Future()
    flushed.set_running_or_notify_cancel()  # whoever waits may give up, the writer still has somewhere to put it
    writer, lane = journal.writer, journal.lane
    if journal.closed:  # its writer may have ended, and would never answer
        flushed.set_exception(journal.ended())
        return flushed
    if writer is None or lane is None:
        flushed.set_exception(StoreError("no store", "this run keeps its record in memory, so nothing is saved"))
        return flushed

    def settle(error: BaseException | None) -> None:
        if error:
            flushed.set_exception(StoreError(writer.store.location, f"not everything is saved: {error}"))
        else:
            flushed.set_result(lane.seq)

    writer.put(lane, (), settle)
    return flushed


def _on_its_thread(journal: Journal, act: Callable[[Future[T]], None]) -> Future[T]:
    """Let `act` settle a future, on the thread that a journal belongs to."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def whole() -> None:
        try:
            if journal.closed:
                raise journal.ended()
            act(done)
        except BaseException as error:  # noqa: BLE001 - handed whole to whoever asked
            done.set_exception(error)

    if threading.get_ident() == journal.thread:
        whole()
    else:
        try:
            journal.loop.call_soon_threadsafe(whole)
        except RuntimeError:  # the loop is closed
            done.set_exception(journal.ended())
    return done


def _attach(journal: Journal, provider: BaseProvider | None, location: str) -> None:
    """Keep a run at `location` from now on. The entries so far are written before any later one."""
    writer = open_writer(provider_for(location, provider), location)
    if journal.writer is not None:
        same = writer is journal.writer
        writer.close()
        if not same:
            raise StoreError(
                location, f"this run is kept in {journal.location}, and one run has one store: call state.checkpoint()"
            )
        return
    journal.lane = writer.enter(journal.run_id, journal.branch)
    journal.writer = writer
    journal.lane.backlog, journal.entries = tuple(journal.entries), []
    journal.listen()
