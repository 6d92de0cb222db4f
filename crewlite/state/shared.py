"""Data that the runs of one store share while they are running, such as that a service is down: bytes by key.

The store keeps them beside the results that runs reuse; they belong to no run. A run never depends on them: if they
cannot be read or written, the run warns once and uses what its own process knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from crewlite.errors import text_of
from crewlite.state.journal.journal import Journal
from crewlite.state.providers import Exchange, Store, exchange_of

T = TypeVar("T")
Change = Callable[[bytes | None], bytes]
_TRIES = 100  # a try fails only if another process has succeeded


class SharedData:
    """The access of one run to the data that it shares with the other runs of its store."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._warned = False

    @property
    def offered(self) -> bool:
        """Whether the run has a store that can share data."""
        return self._journal.queue is not None and exchange_of(self._journal.queue.store) is not None

    @property
    def location(self) -> str:
        """The location of the store."""
        return self._journal.location or ""

    async def read(self, key: str) -> bytes | None:
        """Return the data under a key; None if there is none. Raises OSError if the store cannot be read."""
        return await self._done(self._ask(lambda held: held.recall(key)))

    async def change(self, key: str, change: Change) -> bytes:
        """Replace the data under a key by what `change(old)` returns, as `recovery.guards.Shared` describes."""
        return await self._done(self._ask(lambda held: _changed(held, key, change)))

    def post(self, key: str, change: Change) -> None:
        """Change data as `change` does, before any later request, without waiting for it. Warns instead of raising."""
        self._ask(lambda held: _changed(held, key, change)).add_done_callback(self._posted)

    def _ask(self, act: Callable[[Exchange], T]) -> Future[T]:
        def on_store(store: Store) -> T:
            held = exchange_of(store)
            assert held is not None, "a store offers it all the time, or never"
            return act(held)

        assert self._journal.queue is not None, "callers look whether it is offered"
        return self._journal.queue.ask(on_store)

    async def _done(self, future: Future[T]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except Exception as error:  # the border: a provider may be code of the user
            self._warn(error)
            raise OSError(f"shared data cannot be used: {text_of(error)}") from error

    def _posted(self, future: Future[bytes]) -> None:
        if (error := future.exception()) is not None:
            self._warn(error)

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            self._journal.warn(
                "the data that this run shares with the other runs of its store, such as open circuits, cannot be read "
                f"or written, so the run uses what its own process knows: {type(error).__name__}: {text_of(error)}"
            )


def _changed(held: Exchange, key: str, change: Change) -> bytes:
    for _ in range(_TRIES):
        old = held.recall(key)
        new = change(old)
        if new == old or held.exchange(key, old, new):
            return new
    raise OSError(f"{key} was changed by other processes during each of {_TRIES} tries")
