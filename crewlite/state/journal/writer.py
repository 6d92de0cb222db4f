"""One thread per opened store that writes what runs commit, in the order they ask.

Whatever waits when the thread comes round is written in one go: so fifty runs that commit at the same moment pay for
one sync, and no loop ever waits for a disk. A commit that fails stays at the head of its queue and is tried again
before the next one, so a journal never has a hole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from crewlite.errors import BranchConflictError, RunCancelled, StoreError
from crewlite.forked import in_child, lock
from crewlite.state.format.entry import Entry
from crewlite.state.journal.cancel import why_refused
from crewlite.state.journal.claim import BEAT
from crewlite.state.journal.compact_branch import bases, compact_branch
from crewlite.state.providers import BaseProvider, Commit, Store

T = TypeVar("T")
log = logging.getLogger("crewlite.state")
_FIRST_COMPACTION = (
    64  # commits; after that, whenever a branch has doubled: so compaction costs no more than writing did
)
_LOOK = 0.5  # seconds between two looks whether a branch has moved that we do not write to just then
_LINGER = 0.0005  # seconds: where several runs share a store, what they ask for at the same moment is one commit
Done = Callable[[BaseException | None], None]


@dataclass(eq=False)
class WriteQueue:
    """The way of one branch to its store."""

    writer: Writer
    run_id: str
    branch: str
    seq: int = 0
    """What is stored already."""
    sum: str = ""
    backlog: tuple[Entry, ...] = ()
    """What failed to be stored, in order."""
    bases: frozenset[str] = frozenset()
    """Checkpoints that forks stand on."""
    drops: bool = False
    """Checkpoints were dropped since forks were last looked for."""
    pinned: set[int] = field(default_factory=set)
    """Commits that are being named manually, and stay where they are."""
    compacted: int = 0
    """Where the branch was when inner detail was last dropped."""
    held: bool = False
    """It was written to, so it is ours. One that was only read may be somebody else's by now."""
    moved: bool = False
    """It was written to since it was last looked at."""
    touched: float = 0.0
    """What the store said of its last sign of life, which was ours."""
    fenced: bool = False
    """Somebody else has the branch."""
    on_fenced: Callable[[BaseException], None] | None = None
    """Told of that on the writer's thread."""

    @property
    def store(self) -> Store:
        """The store it writes to."""
        return self.writer.store

    def put(self, entries: tuple[Entry, ...], done: Done, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Write entries, after whatever is in the queue; then `done` is called with None or with what went wrong.

        It is called on `loop`, else on the writer's thread. Without entries, this tells when the queue is settled.
        Where the store was closed meanwhile, that is what went wrong.
        """
        self.writer.put(_Job(self, entries, done, loop))

    def ask(self, act: Callable[[Store], T]) -> Future[T]:
        """Do what is no commit with the store, on its thread, after what was asked before."""
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()  # whoever waits may give up, the thread still has somewhere to put it
        self.writer.put(_Errand(act, done))
        return done

    def leave(self) -> Future[None] | None:
        """Give the branch back, and release the writer: see `Writer.release`. Waits for nothing."""
        self.writer.leave(self)
        return self.writer.release()


@dataclass(frozen=True, slots=True)
class _Job:
    queue: WriteQueue
    entries: tuple[Entry, ...]
    done: Done
    loop: asyncio.AbstractEventLoop | None


@dataclass(frozen=True, slots=True)
class _Errand:
    act: Callable[[Store], Any]
    done: Future[Any]

    def run(self, store: Store) -> None:
        """On the writer's thread."""
        try:
            self.done.set_result(self.act(store))
        except Exception as error:  # noqa: BLE001 - whatever storage raises is the answer to who waits
            self.done.set_exception(error)


@dataclass(eq=False)
class Writer:
    """The thread of one store. `open` shares it among all runs of this process that use the store."""

    store: Store
    key: tuple[str, str]
    provider: str
    queues: dict[tuple[str, str], WriteQueue] = field(default_factory=dict)
    beat: float = BEAT
    """Seconds between signs of life."""
    users: int = 0
    _jobs: SimpleQueue[_Job | _Errand | None] = field(default_factory=SimpleQueue)
    """None ends the thread."""
    _ended: Future[None] = field(default_factory=Future)
    over: bool = False
    """The store is closed."""
    _lived: float = field(default_factory=time.monotonic)
    _looked: float = field(default_factory=time.monotonic)

    def put(self, job: _Job | _Errand) -> None:
        """Queue a job for the thread. One that comes after the thread has ended is answered with a StoreError."""
        self._jobs.put(job)
        if self.over:  # the thread no longer reads the queue
            self._refuse()

    def enter(self, run_id: str, branch: str) -> WriteQueue:
        """Take a branch for writing. Raises BranchConflictError if another run of this process has it."""
        with _lock:
            if (run_id, branch) in self.queues:
                raise BranchConflictError(run_id, branch)
            queue = self.queues[run_id, branch] = WriteQueue(self, run_id, branch)
        return queue

    def leave(self, queue: WriteQueue) -> None:
        """Give a branch back."""
        with _lock:
            self.queues.pop((queue.run_id, queue.branch), None)

    def use(self) -> Writer:
        """Add a user. The caller is one already, so the thread has not ended."""
        with _lock:
            self.users += 1
        return self

    def release(self) -> Future[None] | None:
        """Release it. The last user ends the thread, which closes the store; the future tells when it has."""
        with _lock:
            self.users -= 1
            if self.users:
                return None
            _open.pop(self.key, None)
        self._jobs.put(None)
        return self._ended

    def start(self) -> None:
        """Start the thread."""
        self._ended.set_running_or_notify_cancel()  # whoever waits for its end may be cancelled, and the end not
        threading.Thread(target=self._work, name="crewlite-writer", daemon=True).start()

    def _work(self) -> None:
        job = self._next()
        while job:
            jobs = [job]
            if self.users > 1:
                time.sleep(_LINGER)
            while not self._jobs.empty() and (job := self._jobs.get()):
                jobs.append(job)
            commits = [job for job in jobs if isinstance(job, _Job)]
            self._write(commits)
            for errand in jobs:
                if isinstance(errand, _Errand):
                    errand.run(self.store)
            self._compact({job.queue for job in commits})
            job = job and self._next()
        try:
            self.store.close()
        except Exception as error:  # noqa: BLE001 - whatever storage raises, all is in it, and somebody waits for the end
            log.warning("%s was not closed: %s", self.store.location, error)
        self.over = True
        self._refuse()
        self._ended.set_result(None)

    def _refuse(self) -> None:
        """Answer the jobs that came after the thread ended. Several threads may call this at once."""
        error = StoreError(self.store.location, "nothing more can be recorded: the run has ended, and let go of it")
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if isinstance(job, _Job):
                self._answer([job], error)
            elif job:
                job.done.set_exception(error)

    def _next(self) -> _Job | _Errand | None:
        """The next job; while there is none, and between jobs, the branches at work are looked after."""
        while True:
            if (left := self._looked + min(_LOOK, self.beat) - time.monotonic()) <= 0:
                self._look()
                continue
            with contextlib.suppress(Empty):
                return self._jobs.get(timeout=left)

    def _look(self) -> None:
        """Give signs of life, and hear of what another has done to a branch that waits for long.

        A store that is not there now may be there next time.
        """
        self._looked = time.monotonic()
        if due := self._looked - self._lived >= self.beat:
            self._lived = self._looked
        with _lock:
            queues = [queue for queue in self.queues.values() if queue.held and not (queue.backlog or queue.fenced)]
        for queue in queues:
            try:
                if due or not (queue.moved or self.store.touched(queue.run_id, queue.branch) == queue.touched):
                    sign = Commit(queue.run_id, queue.branch, queue.seq, queue.sum, ())
                    self.store.append([sign])
                    queue.touched = self.store.touched(queue.run_id, queue.branch)
                    if self.store.sum_at(queue.run_id, queue.branch, queue.seq + 1):  # it came between those two
                        self.store.append([sign])
                queue.moved = False
            except Exception as error:  # noqa: BLE001 - whatever storage raises, the thread goes on
                why = self._fence(queue, error)
                if (due or queue.fenced) and not isinstance(why, RunCancelled):  # which its kickoff tells
                    log.warning("%s/%s gave no sign of life: %s", queue.run_id, queue.branch, why)

    def _fence(self, queue: WriteQueue, error: BaseException) -> BaseException:
        """The reason of a refused write. If somebody else has the branch, fence its queue and tell its run."""
        if not isinstance(error, BranchConflictError):
            return error
        with contextlib.suppress(Exception):  # why it was refused cannot be read: then that it was has to do
            error = why_refused(self.store, queue.run_id, queue.branch, queue.seq, error)
        queue.fenced = True
        if queue.on_fenced:
            queue.on_fenced(error)
        return error

    def _compact(self, queues: set[WriteQueue]) -> None:
        """Drop inner detail that no checkpoint needs, where many were dropped since the last time."""
        for queue in queues:
            if queue.drops and not queue.backlog:
                queue.drops = False
                try:
                    queue.bases = bases(self.store.branches(queue.run_id), queue.branch)
                    if queue.seq >= 2 * queue.compacted + _FIRST_COMPACTION:
                        queue.compacted = queue.seq  # before it is asked what is pinned: see manual.name_place
                        compact_branch(self.store, queue.run_id, queue.branch, tuple(queue.pinned))
                except Exception as error:  # noqa: BLE001 - whatever storage raises, the thread goes on
                    log.warning("%s/%s could not be compacted: %s", queue.run_id, queue.branch, error)

    def _write(self, jobs: list[_Job]) -> None:
        commits: dict[WriteQueue, Commit] = {}
        for job in jobs:
            queue = job.queue
            before = commits[queue].entries if queue in commits else queue.backlog
            commits[queue] = Commit(queue.run_id, queue.branch, queue.seq, queue.sum, (*before, *job.entries))
        commits = {queue: commit for queue, commit in commits.items() if commit.entries}
        try:
            if commits:
                self.store.append(list(commits.values()))
        except BaseException as error:  # noqa: BLE001 - whatever storage raises is the answer to those who wait
            if len(commits) > 1:
                for queue in {job.queue: None for job in jobs}:
                    self._write([job for job in jobs if job.queue is queue])
                return
            for queue, commit in commits.items():
                queue.backlog = commit.entries
                error = self._fence(queue, error)
            self._answer(jobs, error)
            return
        for queue, commit in commits.items():
            (queue.seq, queue.sum), queue.backlog, queue.held, queue.moved = commit.head, (), True, True
            queue.drops |= any("drops" in entry.commit for entry in commit.entries)
        self._answer(jobs, None)

    def _answer(self, jobs: list[_Job], error: BaseException | None) -> None:
        """Tell those who wait: all of one loop at once on that loop, and then, here, who asked when all is settled."""
        groups: dict[asyncio.AbstractEventLoop | None, list[Done]] = {}
        for job in jobs:
            groups.setdefault(job.loop, []).append(job.done)
        for loop, dones in sorted(groups.items(), key=lambda group: group[0] is None):
            if loop is None:
                _call_all(dones, error)
            else:
                with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to hear
                    loop.call_soon_threadsafe(_call_all, dones, error)


def _call_all(dones: list[Done], error: BaseException | None) -> None:
    for done in dones:
        done(error)


_open: dict[tuple[str, str], Writer] = {}
_opening: WeakValueDictionary[tuple[str, str], threading.Lock] = WeakValueDictionary()
"""Held by whoever opens a location, so that those who come meanwhile share the writer."""
_lock = lock()  # never held during a call of a store


def open_writer(provider: BaseProvider, location: str) -> Writer:
    """The writer of a location: one per process, however many runs use it. Raises StoreUnusable."""
    key = _key(provider, location)
    if writer := _used(key):
        return writer
    with _lock:
        opening = _opening.setdefault(key, lock())
    with opening:
        return _used(key) or _opened(provider, location, key)


def opened_already(provider: BaseProvider, location: str) -> Writer | None:
    """The writer of a location that is open already, with one more user; None if it is not open."""
    return _used(_key(provider, location))


def _key(provider: BaseProvider, location: str) -> tuple[str, str]:
    name = provider.name if _is_interchangeable(provider) else f"{id(provider)}"
    return name, os.path.realpath(location)


def _is_interchangeable(provider: BaseProvider) -> bool:
    """Whether any provider of its class opens the same store. A subclass may open another."""
    return bool(vars(type(provider)).get("named_by_location"))


def _used(key: tuple[str, str]) -> Writer | None:
    with _lock:
        writer = _open.get(key)
        if writer:
            writer.users += 1
        return writer


def _opened(provider: BaseProvider, location: str, key: tuple[str, str]) -> Writer:
    store = provider.open(location)
    if _is_interchangeable(provider):  # several paths may lead to one store
        key = _key(provider, store.location)
    with _lock:
        writer = _open.get(key)
        if shared := writer:
            shared.users += 1
        else:
            writer = _open[key] = Writer(store, key, provider.name, users=1)
            writer.start()
    if shared:
        store.close()
    return writer


def at_work(location: str, run_id: str, branch: str) -> bool:
    """Whether a run of this process writes that branch."""
    real = os.path.realpath(location)
    with _lock:
        return any((run_id, branch) in w.queues for w in _open.values() if os.path.realpath(w.store.location) == real)


@in_child
def _forget() -> None:
    """A child inherits neither threads nor database connections."""
    _open.clear()
    _opening.clear()
