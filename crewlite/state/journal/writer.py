"""One thread per opened store that writes the commits of all runs, in the order of their requests.

The thread writes all waiting commits together, so fifty runs that commit at the same time share one sync, and no event
loop waits for a disk. Entries that could not be written stay first in the queue of their branch, and the next request
of that branch or its next sign of life writes them first, so a journal never has a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeVar

from crewlite.concurrency.background import ordinary
from crewlite.concurrency.between_loops import uncancellable
from crewlite.errors import BranchConflictError, RunCancelled, StoreError, text_of
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.entry import Entry, Head
from crewlite.state.journal.cancel import why_refused
from crewlite.state.journal.claim import BEAT
from crewlite.state.journal.letters import Receive, deliver
from crewlite.state.journal.mailbox import Done, call_back
from crewlite.state.journal.upkeep import Upkeep, release_owed
from crewlite.state.providers import BranchKey, Commit, Store
from crewlite.state.providers.writing import committed_at
from crewlite.system.forked import lock
from crewlite.system.steady_clock import steady
from crewlite.texts.logs import logger

T = TypeVar("T")
log = logger("crewlite.state")
_LOOK = 0.5  # seconds between checks whether another process has written to an idle branch
_LINGER = 0.0005  # seconds to wait for other commits to write together
_LINGER_BEHIND = 0.002  # the same, if nobody waits for them


writers: dict[tuple[str, str], Writer] = {}
"""The open writers of this process, by provider and location."""
guard = lock()
"""Protects the writers and their queues. Never held during a call of a store."""


@dataclass(eq=False)
class WriteQueue:
    """The entries of one branch on their way to the store."""

    writer: Writer
    run_id: str
    branch: str
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of the run; None if it is not known."""
    earlier: Future[None] | None = None
    """Done when all is written that was queued in the queue that this one replaces."""
    head: Head = (0, "")
    """The number of the last stored entry, and its checksum."""
    read: Sequence[Entry] = ()
    """The entries of the branch as they were read, until the first commit is stored."""
    backlog: tuple[Entry, ...] = ()
    """Entries that could not be stored yet, in order."""
    owed: CommitParts | None = None
    """What has to be stored once the queue is left, as the branch stays claimed until then; None if it is released."""
    upkeep: Upkeep = field(default_factory=Upkeep)
    written: bool = False
    """Whether this process has written to the branch. If it has only read it, another process may own it by now."""
    moved: bool = False
    """Whether this process has written to the branch since the last check."""
    touched: float = 0.0
    """The time of this process's last commit or sign of life, as the store records it."""
    fenced: bool = False
    """Whether the store refuses further entries, because another process has written to the branch."""
    on_fenced: asyncio.Future[BaseException] | None = None
    """Done, on the loop of the run, once the queue is fenced: with the error to raise. None until a journal listens."""
    receive: Receive | None = None
    """Receives letters to the run; None for what takes no answers."""

    @property
    def key(self) -> BranchKey:
        """The key of the branch."""
        return self.run_id, self.branch

    @property
    def store(self) -> Store:
        """The store to which the queue is written."""
        return self.writer.store

    def put(
        self,
        entries: tuple[Entry, ...],
        done: Done,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        behind: bool = False,
    ) -> None:
        """Queue entries to be written. Then call `done` with None, or with the error if they were not written.

        Entries that were not written stay queued, and the next `put` of this branch tries them again first. `done` is
        called on `loop`, or on the writer's thread if that is None. Without entries, it is called once the earlier ones
        are written or have failed. If the store is closed first, it is called with a StoreError. `behind`: nobody waits
        for these entries, so the thread may wait a moment for more.
        """
        self.writer.put(_Job(self, entries, done, loop, behind))

    def ask(self, act: Callable[[Store], T]) -> Future[T]:
        """Call `act(store)` on the writer's thread, after earlier requests. Returns a future of its result.

        `act` is called though earlier entries could not be written. If the store is closed first, the future gets a
        StoreError.
        """
        done: Future[T] = uncancellable()

        def run(error: BaseException | None) -> None:
            if error is not None and self.writer.closed:
                done.set_exception(error)
                return
            try:
                done.set_result(act(self.store))
            except BaseException as problem:  # whatever storage raises is raised where the future is awaited
                done.set_exception(ordinary(problem))

        self.put((), run)
        return done

    def leave(self) -> Future[None] | None:
        """Close the queue and release the writer, without waiting: see `Writer.leave`."""
        return self.writer.leave(self)


@dataclass(frozen=True, slots=True)
class _Job:
    queue: WriteQueue
    entries: tuple[Entry, ...]
    done: Done
    loop: asyncio.AbstractEventLoop | None
    behind: bool


@dataclass(eq=False)
class Writer:
    """The thread of one store. `open_writer` shares it among all runs of this process that use the store."""

    store: Store
    key: tuple[str, str]
    provider: str
    queues: dict[BranchKey, WriteQueue] = field(default_factory=dict)
    owed: dict[BranchKey, CommitParts] = field(default_factory=dict)
    """The branches still to be released for other processes, with the commits that do so. Each counts as a user."""
    beat: float = BEAT
    """Seconds between signs of life."""
    users: int = 0
    _jobs: SimpleQueue[_Job | None] = field(default_factory=SimpleQueue)  # None ends the thread
    _hurry: SimpleQueue[None] = field(default_factory=SimpleQueue)  # gets an item when `_linger` can end
    _lingers: bool = False
    _ended: Future[None] = field(default_factory=uncancellable)
    closed: bool = False  # whether the store is closed
    _crowded: bool = False
    """Whether several runs have just committed together, so that waiting a moment lets more of them share a sync."""
    _lived: float = field(default_factory=steady)
    _looked: float = field(default_factory=steady)

    def put(self, job: _Job) -> None:
        """Queue a job for the thread. After the thread has ended, the job fails with a StoreError."""
        self._jobs.put(job)
        if self._lingers and not job.behind:
            self._hurry.put(None)
        if self.closed:  # the thread no longer reads the queue
            self._refuse()

    def enter(
        self, run_id: str, branch: str, kind: str = "crew", loop: asyncio.AbstractEventLoop | None = None
    ) -> WriteQueue:
        """Open the queue of a branch, of a run of this kind on `loop`. Raises BranchConflictError if it is open.

        One that was opened on a loop that is closed now is replaced.
        """
        queue = WriteQueue(self, run_id, branch, loop)
        with guard:
            if before := self.queues.get(queue.key):
                if not (before.loop and before.loop.is_closed()):
                    raise BranchConflictError(run_id, branch, kind=kind)
                self.leave(before)  # its run never ends; garbage collection may close it just now, and it leaves too
            owed = self.owed.pop(queue.key, None)  # the branch is claimed anew
            self.users -= owed is not None
            self.queues[queue.key] = queue
        queue.earlier = (before or queue).ask(lambda store: None) if before or owed else None
        return queue

    def leave(self, queue: WriteQueue) -> Future[None] | None:
        """Close the queue of a branch, so that another run of this process may open it, and release its user.

        Returns what `release` returns; None if the queue was closed before, or owes a commit.
        """
        with guard:
            if self.queues.get(queue.key) is not queue or not self.queues.pop(queue.key, None):
                return None
            if queue.owed:  # its user stays until that is stored
                self.owed[queue.key] = queue.owed
                self._lived -= self.beat  # it is tried soon
                return None
        return self.release()

    def use(self) -> Writer:
        """Count one more user, and return the writer. Only a counted user may call this: at zero the thread ends."""
        with guard:
            self.users += 1
        return self

    def release(self) -> Future[None] | None:
        """Remove a user of this thread. When the last one is removed, the thread closes the store and ends.

        Returns a future that ends when the store is closed; None if there are other users.
        """
        with guard:
            self.users -= 1
            if self.users:
                return None
            if writers.get(self.key) is self:
                writers.pop(self.key, None)
        self._jobs.put(None)
        self._hurry.put(None)
        return self._ended

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._work, name="crewlite-writer", daemon=True).start()

    def _work(self) -> None:
        job = self._next()
        while job:
            if job.behind:
                self._linger()
            elif self._crowded:
                time.sleep(_LINGER)
            jobs = [job]
            while not self._jobs.empty() and (job := self._jobs.get()):
                jobs.append(job)
            self._crowded = len(jobs) > 1 and self.users > 1
            self._write(jobs)
            job = job and self._next()
        try:
            self.store.close()
        except BaseException as error:  # all is stored, and callers wait for the end
            log.warning("%s was not closed: %s", self.store.location, text_of(ordinary(error)))
        self.closed = True
        self._refuse()
        self._ended.set_result(None)

    def _linger(self) -> None:
        """Wait a moment for more commits, because nobody waits for the present ones; stop when somebody does."""
        self._lingers = True
        with contextlib.suppress(Empty):
            self._hurry.get(timeout=_LINGER_BEHIND)
        self._lingers = False

    def forget(self) -> None:
        """Refuse all requests, in a forked child, and drop those that are queued."""
        self._jobs, self.closed = SimpleQueue(), True

    def _refuse(self) -> None:
        """Fail the jobs that came after the thread had ended. Several threads may call this at once."""
        error = StoreError(self.store.location, "nothing more can be recorded: the run has ended, and closed the store")
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job:
                call_back([(job.done, job.loop)], error)

    def _next(self) -> _Job | None:
        """Return the next job. While there is none, and between jobs, check the branches that are being run."""
        while True:
            if (left := self._looked + min(_LOOK, self.beat) - steady()) <= 0:
                self._check_branches()
                self._looked = steady()  # only now: the checks may take longer than the time between two
                continue
            try:
                return self._jobs.get(timeout=left)
            except Empty:
                continue

    def _check_branches(self) -> None:
        """Give signs of life for all branches, and detect commits by other processes to idle branches. Logs errors."""
        now = steady()
        if due := now - self._lived >= self.beat:
            self._lived = now
        with guard:
            queues = [*self.queues.values()]
        for queue in queues if self._jobs.empty() else ():
            if queue.loop and queue.loop.is_closed():  # its run never goes on
                queue.fenced, queue.owed = True, {"released": True}
                queue.leave()
        held = [queue for queue in queues if queue.written and not queue.fenced]
        self._check([queue for queue in held if not queue.backlog], due=due)
        for queue in held if due else ():
            if queue.backlog:
                self._write([_Job(queue, (), lambda error: None, None, behind=False)])
        if runs := {queue.key: queue.receive for queue in held if queue.receive}:
            deliver(self.store, runs, held[0].ask, loud=due)
        if due:
            release_owed(self.owed, self.store, self.release)

    def _check(self, queues: Sequence[WriteQueue], *, due: bool) -> None:
        """Check branches with one call of the store, so that no commit waits long; if that fails, one by one."""
        try:
            signs = {
                queue: Commit(*queue.key, *queue.head, ())
                for queue in queues
                if due or not (queue.moved or self.store.touched(*queue.key) == queue.touched)
            }
            if signs:
                self.store.append([*signs.values()])
            for queue, sign in signs.items():
                queue.touched = self.store.touched(*queue.key)
                if self.store.sum_at(*queue.key, queue.head[0] + 1):  # written between those two calls
                    self.store.append([sign])
            for queue in queues:
                queue.moved = False
        except BaseException as error:  # whatever storage raises, the thread goes on
            if len(queues) > 1:
                for queue in queues:
                    self._check([queue], due=due)
                return
            [queue] = queues
            why = self._fence(queue, error)
            if (due or queue.fenced) and not isinstance(why, RunCancelled):  # the kickoff reports a cancellation
                about = {"run_id": queue.run_id, "branch": queue.branch}
                log.warning("%s/%s gave no sign of life: %s", *queue.key, text_of(why), extra=about)

    def _fence(self, queue: WriteQueue, error: BaseException) -> Exception:
        """Return the reason why a write failed. If another process has written to the branch, fence its queue."""
        if not isinstance(error, BranchConflictError):
            return ordinary(error)
        why: Exception = error
        with contextlib.suppress(BaseException):  # if the reason cannot be read, the conflict itself is reported
            why = why_refused(self.store, *queue.key, queue.head[0], error)
        queue.fenced = True
        if future := queue.on_fenced:
            with contextlib.suppress(RuntimeError):  # the loop was closed, so nothing awaits it
                future.get_loop().call_soon_threadsafe(_set, future, why)
        return why

    def _write(self, jobs: list[_Job]) -> None:
        waiting: dict[WriteQueue, list[Entry]] = {}
        for job in jobs:
            waiting.setdefault(job.queue, [*job.queue.backlog]).extend(job.entries)
        commits = {
            queue: Commit(*queue.key, *queue.head, tuple(entries), queue.read)
            for queue, entries in waiting.items()
            if entries
        }
        try:
            if commits:
                self.store.append(list(commits.values()))
        except BaseException as error:  # whatever storage raises is passed to `done`
            if len(commits) > 1:
                for queue in {job.queue: None for job in jobs}:
                    self._write([job for job in jobs if job.queue is queue])
                return
            [(failed, commit)] = commits.items()
            failed.backlog = commit.entries
            call_back([(job.done, job.loop) for job in jobs if job.queue is failed], self._fence(failed, error))
            call_back([(job.done, job.loop) for job in jobs if job.queue is not failed], None)  # had nothing to write
            return
        for queue, commit in commits.items():
            queue.backlog, queue.read, queue.head = (), (), commit.head  # the head last: see Journal.flush
            queue.written, queue.moved, queue.touched = True, True, committed_at(commit)
            for entry in commit.entries:
                queue.upkeep.is_due |= "drops" in entry.commit
        call_back([(job.done, job.loop) for job in jobs], None)
        for queue in commits:
            if queue.upkeep.is_due:
                queue.upkeep.compact(self.store, *queue.key, queue.head[0])


def _set(future: asyncio.Future[BaseException], error: BaseException) -> None:
    if not future.done():
        future.set_result(error)
