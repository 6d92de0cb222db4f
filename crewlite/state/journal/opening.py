"""Opening a store for writing: all runs of this process at one location share a writer.

A run that is cancelled twice leaves its branch while its last entries are still being written. The next run of this
process that acquires the branch waits for them, because it must not read a branch that is still being written.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from weakref import WeakValueDictionary

from crewlite.concurrency.between_loops import uncancellable
from crewlite.state.journal.writer import WriteQueue, Writer, guard, writers
from crewlite.state.providers import BaseProvider, kept_open, open_store
from crewlite.state.providers.locations import real_path
from crewlite.system.forked import in_child, lock

_opening: WeakValueDictionary[tuple[str, str], threading.RLock] = WeakValueDictionary()
"""Locked while a location is being opened, so that runs which open it at the same moment share the writer."""
_Branch = tuple[tuple[str, str], str, str]
_settling: dict[_Branch, Future[BaseException | None]] = {}
"""The branches whose last entries are being written."""


def open_writer(provider: BaseProvider, location: str) -> Writer:
    """Return the writer of a location, which all runs of this process share, and count a user. Raises StoreUnusable."""
    key = _key(provider, location)
    if writer := _used(key):
        return writer
    with guard:
        opening = _opening.setdefault(key, lock())
    with opening:
        return _used(key) or _opened(provider, location, key)


def opened_already(provider: BaseProvider, location: str) -> Writer | None:
    """Return the writer of a location that is open already, and count a user; None if it is not open."""
    return _used(_key(provider, location))


def _key(provider: BaseProvider, location: str) -> tuple[str, str]:
    name = provider.name if _is_interchangeable(provider) else f"{id(provider)}"
    return name, real_path(location)


def _is_interchangeable(provider: BaseProvider) -> bool:
    """Return whether every provider of exactly this class opens the same store at a location."""
    return bool(vars(type(provider)).get("named_by_location"))


def _used(key: tuple[str, str]) -> Writer | None:
    with guard:
        if writer := writers.get(key):
            writer.users += 1
        return writers.get(key)  # garbage collection may have closed the run that was its last user just before


def _opened(provider: BaseProvider, location: str, key: tuple[str, str]) -> Writer:
    store = kept_open(open_store(provider, location))
    if _is_interchangeable(provider):  # several paths may lead to one store
        key = _key(provider, store.location)
    with contextlib.ExitStack() as unused:
        unused.callback(store.close)
        if writer := _used(key):
            return writer
        writer = Writer(store, key, provider.name, users=1)
        writer.start()  # the system may refuse a thread
        unused.pop_all()
    with guard:
        if not (there := _used(key)):  # another path to the store may have been opened meanwhile
            writers[key] = writer
    if there:
        writer.release()
    return there or writer


def queue_here(location: str, run_id: str, branch: str) -> WriteQueue | None:
    """Return the queue of that branch, if a run of this process writes it."""
    real = real_path(location)
    with guard:
        here = (w.queues.get((run_id, branch)) for w in [*writers.values()] if real_path(w.store.location) == real)
        return next(filter(None, here), None)


def settling(queue: WriteQueue) -> Future[BaseException | None]:
    """Return a future that ends when the queue is empty, with None, or when its entries have failed again."""
    branch = _branch(queue)
    settled = _settling[branch] = uncancellable()
    settled.add_done_callback(lambda _: _settling.pop(branch) if _settling.get(branch) is settled else None)
    queue.put((), settled.set_result)
    return settled


def wait_for_earlier(queue: WriteQueue) -> None:
    """Wait until the entries of an earlier run of this process in this branch are written, or have failed."""
    for earlier in (queue.earlier, _settling.get(_branch(queue))):
        if earlier:
            earlier.exception()


def _branch(queue: WriteQueue) -> _Branch:
    return queue.writer.key, queue.run_id, queue.branch


@in_child
def _forget() -> None:
    """Forget all writers in a forked child, which has none of their threads. What is queued is the parent's."""
    _settling.clear()
    for writer in writers.values():
        writer.forget()
    writers.clear()
    _opening.clear()
