"""Opening a store for writing: all runs of this process at one location share a writer."""

from __future__ import annotations

import os
import threading
from weakref import WeakValueDictionary

from crewlite.forked import in_child, lock
from crewlite.state.journal.writer import Writer, guard, writers
from crewlite.state.providers import BaseProvider

_opening: WeakValueDictionary[tuple[str, str], threading.Lock] = WeakValueDictionary()
"""Locked while a location is being opened, so that runs which open it at the same moment share the writer."""


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
    return name, os.path.realpath(location)


def _is_interchangeable(provider: BaseProvider) -> bool:
    """Return whether every provider of exactly this class opens the same store at a location."""
    return bool(vars(type(provider)).get("named_by_location"))


def _used(key: tuple[str, str]) -> Writer | None:
    with guard:
        writer = writers.get(key)
        if writer:
            writer.users += 1
        return writer


def _opened(provider: BaseProvider, location: str, key: tuple[str, str]) -> Writer:
    store = provider.open(location)
    if _is_interchangeable(provider):  # several paths may lead to one store
        key = _key(provider, store.location)
    with guard:
        writer = writers.get(key)
        if shared := writer:
            shared.users += 1
        else:
            writer = writers[key] = Writer(store, key, provider.name, users=1)
            writer.start()
    if shared:
        store.close()
    return writer


def at_work(location: str, run_id: str, branch: str) -> bool:
    """Return whether a run of this process writes that branch."""
    real = os.path.realpath(location)
    with guard:
        return any((run_id, branch) in w.queues for w in writers.values() if os.path.realpath(w.store.location) == real)


@in_child
def _forget() -> None:
    """Forget all writers in a forked child, which has none of their threads. What is queued is the parent's."""
    for writer in writers.values():
        writer.forget()
    writers.clear()
    _opening.clear()
