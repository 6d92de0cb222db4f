"""One thread per opened store that writes what runs commit, in the order they ask.

Whatever waits when the thread comes round is written in one go: so fifty runs that commit at the same moment pay for
one sync, and no loop ever waits for a disk. A commit that fails stays at the head of its lane and is tried again
before the next one, so a journal never has a hole.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from crewlite.errors import BranchConflictError
from crewlite.state.entry import Entry
from crewlite.state.providers import BaseProvider, Commit, JsonProvider, SqliteProvider, Store

_LINGER = 0.0005  # seconds: where several runs share a store, what they ask for at the same moment is one commit
Done = Callable[[BaseException | None], None]


@dataclass(eq=False)
class Lane:
    """The way of one branch to its store."""

    run_id: str
    branch: str
    seq: int = 0
    """What is stored already."""
    sum: str = ""
    backlog: tuple[Entry, ...] = ()
    """What failed to be stored, in order."""


@dataclass(frozen=True, slots=True)
class _Job:
    lane: Lane
    entries: tuple[Entry, ...]
    done: Done
    loop: asyncio.AbstractEventLoop | None


@dataclass(eq=False)
class Writer:
    """The thread of one store. `open` shares it among all runs of this process that use the store."""

    store: Store
    key: tuple[str, str]
    provider: str
    lanes: set[tuple[str, str]] = field(default_factory=set)
    users: int = 0
    _jobs: queue.SimpleQueue[_Job | None] = field(default_factory=queue.SimpleQueue)
    """None ends the thread."""
    _ended: Future[None] = field(default_factory=Future)

    def put(
        self, lane: Lane, entries: tuple[Entry, ...], done: Done, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Write entries, after whatever is in the lane; then `done` is called with None or with what went wrong.

        It is called on `loop`, else on the writer's thread. Without entries, this tells when the lane is settled.
        """
        self._jobs.put(_Job(lane, entries, done, loop))

    def enter(self, run_id: str, branch: str) -> Lane:
        """Take a branch for writing. Raises BranchConflictError if another run of this process has it."""
        with _lock:
            if (run_id, branch) in self.lanes:
                raise BranchConflictError(run_id, branch)
            self.lanes.add((run_id, branch))
        return Lane(run_id, branch)

    def leave(self, lane: Lane) -> None:
        """Give a branch back."""
        with _lock:
            self.lanes.discard((lane.run_id, lane.branch))

    def release(self) -> Future[None] | None:
        """Let go. The last user ends the thread, which closes the store; the future tells when it has."""
        with _lock:
            self.users -= 1
            if self.users:
                return None
            _open.pop(self.key, None)
        self._jobs.put(None)
        return self._ended

    def close(self) -> None:
        """Let go, and wait until a store that nobody else uses is closed."""
        if ended := self.release():
            ended.result()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._work, name="crewlite-writer", daemon=True).start()

    def _work(self) -> None:
        job = self._jobs.get()
        while job:
            jobs = [job]
            if self.users > 1:
                time.sleep(_LINGER)
            while not self._jobs.empty() and (job := self._jobs.get()):
                jobs.append(job)
            self._write(jobs)
            job = job and self._jobs.get()
        self.store.close()
        self._ended.set_result(None)

    def _write(self, jobs: list[_Job]) -> None:
        commits: dict[Lane, Commit] = {}
        for job in jobs:
            lane = job.lane
            before = commits[lane].entries if lane in commits else lane.backlog
            commits[lane] = Commit(lane.run_id, lane.branch, lane.seq, lane.sum, (*before, *job.entries))
        commits = {lane: commit for lane, commit in commits.items() if commit.entries}
        try:
            self.store.append(list(commits.values()))
        except BaseException as error:  # noqa: BLE001 - whatever storage raises is the answer to those who wait
            if len(commits) > 1:
                for lane in {job.lane: None for job in jobs}:
                    self._write([job for job in jobs if job.lane is lane])
                return
            for lane, commit in commits.items():
                lane.backlog = commit.entries
            self._answer(jobs, error)
            return
        for lane, commit in commits.items():
            lane.seq, lane.sum, lane.backlog = commit.entries[-1].seq, commit.entries[-1].sum, ()
        self._answer(jobs, None)

    def _answer(self, jobs: list[_Job], error: BaseException | None) -> None:
        """Tell those who wait: here, or all of one loop at once on that loop."""
        groups: dict[asyncio.AbstractEventLoop | None, list[Done]] = {}
        for job in jobs:
            groups.setdefault(job.loop, []).append(job.done)
        for loop, dones in groups.items():
            if loop is None:
                _tell(dones, error)
            else:
                with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to hear
                    loop.call_soon_threadsafe(_tell, dones, error)


def _tell(dones: list[Done], error: BaseException | None) -> None:
    for done in dones:
        done(error)


_open: dict[tuple[str, str], Writer] = {}
_lock = threading.Lock()


def open_writer(provider: BaseProvider, location: str) -> Writer:
    """The writer of a location: one per process, however many runs use it. Raises StoreUnusable."""
    ours = type(provider) in (JsonProvider, SqliteProvider)  # two of these are one; of others nobody knows
    key = (provider.name if ours else f"{id(provider)}", os.path.realpath(location))
    with _lock:
        writer = _open.get(key)
        if writer is None:
            writer = _open[key] = Writer(provider.open(location), key, provider.name)
            writer.start()
        writer.users += 1
        return writer


def _forget() -> None:
    global _lock
    _open.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # a child inherits neither threads nor database connections
