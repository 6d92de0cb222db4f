"""The state of a run: what a handler is given, `(source, event, state)`, and what can be opened without a run."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, NamedTuple
from uuid import UUID

from crewlite import background
from crewlite.codec import decode
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.record import SNAPSHOT, Record
from crewlite.state.journal import manual
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.writer import Writer
from crewlite.state.providers import BaseProvider
from crewlite.state.subscriber import new_checkpoint
from crewlite.state.values.bag import Bag
from crewlite.state.values.opened import opened, wait_for
from crewlite.usage import Usage


class RuntimeState(Bag):
    """The run at the moment of one event, and its values as they are now.

    The values are a mapping: `state["step"] = 1`. The next commit of the run records what is set, changed
    inside or deleted. They are plain data, and whatever else can be recorded; classes of yours come back as such in
    programs that have set one, or registered it.
    """

    __slots__ = ("_then", "_trigger")

    def __init__(self, journal: Journal, trigger: str, address: str, moment: CommitView | None = None) -> None:
        super().__init__(journal, address)
        self._trigger = trigger
        self._then: CommitView | None = moment or CommitView.of(journal.record)
        """The moment it is bound to, however late it is used; None for a state that was opened, whose moment is now."""

    @classmethod
    def open(
        cls, name: str | UUID, location: str | os.PathLike[str] | None = None, provider: BaseProvider | None = None
    ) -> RuntimeState:
        """A state without a run: values with snapshots. Use it with `with`, or `close` it.

        Without a location and a provider it lives in memory and touches no disk. With one it is kept there as a run of
        this name, and opening it again goes on from its head. What is in no snapshot when it is closed is not kept.
        `name/branch` opens a fork.

        Raises:
            BranchConflictError: somebody has it open. RunMismatch: the name is taken by a run of another kind.
            RefError: there is no such branch. StoreUnusable: nothing can be saved there. OnLoopThread: called on
            crewlite's own loop.
        """
        return cls._of(wait_for("open", lambda: opened(name, location, provider)))

    @classmethod
    async def aopen(
        cls, name: str | UUID, location: str | os.PathLike[str] | None = None, provider: BaseProvider | None = None
    ) -> RuntimeState:
        """`open`, for coroutines. Use it with `async with`, or `aclose` it."""
        return cls._of(await background.on_loop(opened(name, location, provider)))

    @property
    def run_id(self) -> str:
        """The run."""
        return self._journal.run_id

    @property
    def branch(self) -> str:
        """Its branch."""
        return self._journal.branch

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the kickoff."""
        inputs: dict[str, Any] = decode(self._journal.record.run["inputs"])
        return inputs

    @property
    def seq(self) -> int:
        """The commit of this moment."""
        return self._then.seq if self._then else self._journal.record.seq

    @property
    def usage(self) -> Usage:
        """Tokens and cost of the run up to this moment, and what was added here since."""
        return self._then.usage + self._paid if self._then else self._journal.record.usage + self._journal.values.paid

    def usage_of(self, address: str) -> Usage:
        """Tokens and cost of one step so far, with all that is inside it: of a crew in a flow, for one."""
        return self._journal.record.paid.inside(address) if address else self.usage

    def checkpoint(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        provider: BaseProvider | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Name a checkpoint at this event and wait until it is on disk; of a state that was opened, a snapshot.

        A run without a store gets one at `location` with the first call. Returns the ref to resume from: a file's
        path (JSON) or `database#id`. Raises StoreError if it cannot be saved.
        """
        started = time.perf_counter()
        at = None if location is None else manual.opened_at(os.fspath(location), provider)
        named = manual.name_checkpoint(self._journal, lambda: self._checkpoint_parts(label, metadata), at).result()
        return self._journal.completed(named.parts, started, named.queue)

    async def acheckpoint(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        provider: BaseProvider | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """`checkpoint`, for async handlers."""
        started = time.perf_counter()
        at = None
        if location is not None:
            path = os.fspath(location)
            at = await background.acquire(lambda: manual.opened_at(path, provider), Writer.release)
        naming = manual.name_checkpoint(self._journal, lambda: self._checkpoint_parts(label, metadata), at)
        named = await asyncio.wrap_future(naming)
        return self._journal.completed(named.parts, started, named.queue)

    def flush(self) -> int:
        """Wait until all that the run has committed is on disk, also with durability="async".

        Returns the number of the last commit that is. Raises StoreError if something still cannot be saved, or the run
        has ended, or has no store.
        """
        return manual.flush(self._journal).result()

    async def aflush(self) -> int:
        """`flush`, for async handlers."""
        return await asyncio.wrap_future(manual.flush(self._journal))

    def close(self) -> None:
        """Release a state that was opened; it may be called twice. A run releases its own."""
        if self._then is None and not self._journal.closed:
            wait_for("close", lambda: self._journal.aclose(last_values=False))

    async def aclose(self) -> None:
        """`close`, for coroutines."""
        if self._then is None:
            await background.on_loop(self._journal.aclose(last_values=False))

    def __enter__(self) -> RuntimeState:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> RuntimeState:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @classmethod
    def _of(cls, journal: Journal) -> RuntimeState:
        state = cls(journal, SNAPSHOT, "")
        state._then = None
        return state

    def _checkpoint_parts(self, label: str | None, metadata: dict[str, Any] | None) -> CommitParts:
        """A checkpoint at the moment of this state."""
        if self._then is None:
            return self._snapshot(label, metadata)
        seq, total, usage, finished = self._then
        about = {"finished_tasks": finished, "tokens": usage.total_tokens}
        named = {"about": about, "total": total, **self._label_and_metadata(label, metadata)}
        return {"place": new_checkpoint(self._journal.record, seq, self._trigger, self._address, **named)}


class CommitView(NamedTuple):
    """A run as one of its commits left it."""

    seq: int
    sum: str
    usage: Usage
    finished: int

    @classmethod
    def of(cls, record: Record) -> CommitView:
        """The run as its newest commit left it."""
        return cls(record.seq, record.sum, record.usage, len(record.tasks))
