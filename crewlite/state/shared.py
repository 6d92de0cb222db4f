"""What a run shares with other runs through its store: results of steps (`cache=`), and data while they run.

The store keeps both beside its runs; they belong to none. A run never depends on them: what cannot be read, written or
trusted causes a warning, and then the step runs, or the run uses what its own process knows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from crewlite.durable import Step
from crewlite.encoding.codec import Json, JsonObject, digest
from crewlite.errors import CrewliteError, SchemaTooNew, text_of
from crewlite.ids import now, now_text
from crewlite.state.format.entry import InvalidEntry, parse
from crewlite.state.format.operations import Operation, check_operations, items_moved
from crewlite.state.journal.journal import Journal
from crewlite.state.providers import Exchange, change_shared, exchange_of, results_of
from crewlite.step_parts import Cached

T = TypeVar("T")
SCHEMA = 1
SharedChange = Callable[[bytes | None], bytes]


class _Shared:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._warned_about = set[str]()

    def _warn(self, message: str, about: str = "") -> None:
        """Log a warning, once for each text in `about`; by default, once for each message."""
        if (key := about or message) not in self._warned_about:
            self._warned_about.add(key)
            self._journal.warn(message)


class CachedResult(NamedTuple, Generic[T]):
    """A result of another run that can be reused."""

    value: T
    origin: str
    """The step that produced the result, as `run/branch@address`."""
    changes: Sequence[Operation] = ()
    """The changes that this step made to the state."""


class Cache(_Shared):
    """The access of one run to the results of others."""

    async def recall(self, step: Step[T], kept: Cached, address: str) -> CachedResult[T] | None:
        """Return a stored result of the same call. None on a fork, after a rewind, and if there is no usable result.

        `kept`: the key of the result, and its greatest age. Items that the call added to a collection get the ids
        that the step at `address` would have given them. Warns instead of raising. Call it on the run's event loop.
        """
        record = self._journal.record
        if record.run.get("base") or record.epoch:
            return None  # a step that runs on a fork, or after a rewind, is meant to run again
        queue = self._journal.queue
        if queue is None:
            self._warn("cache=: this run has no store, so results are neither reused nor kept; give it checkpoint=True")
            return None
        if (results := results_of(queue.store)) is None:
            lacking = f"{type(queue.store).__name__} has no `results`, a ResultCache"
            self._warn(f"cache=: the store of this run keeps no results for other runs, so none is reused: {lacking}")
            return None
        key, age = kept
        try:
            data = await asyncio.wrap_future(queue.ask(lambda _: results.recall(key)))
            return _found(step, key, age, data, address) if data is not None else None
        except Exception as error:  # a cache that fails must not fail the run: the step runs
            self._warn(f"cache=: the stored result of {step.name} under {key} is not reused: {_error_text(error)}")
            return None

    def remember(self, step: Step[T], kept: Cached, value: T, address: str, changes: Sequence[Operation] = ()) -> None:
        """Store the result of a step for other runs, without waiting for the write. Warns instead of raising."""
        queue, key = self._journal.queue, kept.key
        results = results_of(queue.store) if queue else None
        if queue is None or results is None:
            return
        origin = f"{self._journal.run_id}/{self._journal.branch}@{address}"
        try:
            data = _sealed(key, step.name, step.encode(value), origin, changes)
            queue.ask(lambda _: results.remember(key, data)).add_done_callback(self._on_stored)
        except Exception as error:  # the run has recorded the outcome, and does not need this copy
            self._not_kept(error)

    def _on_stored(self, done: Future[None]) -> None:
        if (error := done.exception()) is not None:
            self._not_kept(error)

    def _not_kept(self, error: BaseException) -> None:
        self._warn(f"cache=: a result is not kept for other runs: {_error_text(error)}")


class SharedData(_Shared):
    """The access of one run to data that running runs share, such as that a service is down: bytes by key."""

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

    async def change(self, key: str, change: SharedChange) -> bytes:
        """Replace the data under a key by what `change(old)` returns, as `recovery.guards.Shared` describes."""
        return await self._done(self._ask(lambda held: change_shared(held, key, change)))

    def post(self, key: str, change: SharedChange) -> None:
        """Change data as `change` does, before any later request, without waiting for it. Warns instead of raising."""
        self._ask(lambda held: change_shared(held, key, change)).add_done_callback(self._posted)

    def _ask(self, act: Callable[[Exchange], T]) -> Future[T]:
        queue = self._journal.queue
        assert queue is not None, "callers look whether it is offered"
        held = exchange_of(queue.store)
        assert held is not None, "a store offers it all the time, or never"
        return queue.ask(lambda _: act(held))

    async def _done(self, future: Future[T]) -> T:
        try:
            return await asyncio.wrap_future(future)
        except Exception as error:  # the border: a provider may be code of the user
            self._not_shared(error)
            raise OSError(f"shared data cannot be used: {text_of(error)}") from error

    def _posted(self, future: Future[bytes]) -> None:
        if (error := future.exception()) is not None:
            self._not_shared(error)

    def _not_shared(self, error: BaseException) -> None:
        self._warn(
            "the data that this run shares with the other runs of its store, such as open circuits, cannot be read "
            f"or written, so the run uses what its own process knows: {type(error).__name__}: {text_of(error)}",
            about="shared data",
        )


def _sealed(key: str, step: str | None, value: Json, origin: str, changes: Sequence[Operation]) -> bytes:
    entry: JsonObject = {
        "schema": SCHEMA,
        "key": key,
        "step": step,
        "at": now_text(),
        "from": origin,
        "value": value,
        "digest": digest(value),
    }
    if changes:
        entry["state"] = changes
    entry["check"] = digest(entry)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(item)}" for name, item in entry.items())
    return f"{{\n{lines}\n}}\n".encode()


def _found(step: Step[T], key: str, age: float | None, data: bytes, address: str) -> CachedResult[T] | None:
    """Decode an entry; None if it is older than `age` seconds. Raises InvalidEntry, SchemaTooNew, decoding errors."""
    entry = parse(data)
    schema = entry.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise SchemaTooNew(f"cache entry {key}", schema, SCHEMA)
    check = entry.pop("check", None)
    if check != digest(entry) or entry.get("key") != key or not isinstance(entry.get("from"), str):
        raise InvalidEntry("it was changed after it was written")
    if age is not None and (now() - datetime.fromisoformat(entry["at"])).total_seconds() > age:
        return None
    value = step.decode(entry["value"])
    if digest(step.encode(value)) != entry["digest"]:
        raise InvalidEntry("the class of its value has changed since it was written")
    changes = check_operations(entry.get("state", []))
    return CachedResult(value, entry["from"], items_moved(changes, entry["from"].partition("@")[2], address))


def _error_text(error: BaseException) -> str:
    speaks_for_itself = isinstance(error, CrewliteError | OSError | InvalidEntry)
    return text_of(error) if speaks_for_itself else f"{type(error).__name__}: {text_of(error)}"
