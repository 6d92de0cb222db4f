"""The state of a run: the third argument of handlers, `(source, event, state)`; it can also be opened without a run.

The journal of a state without a run is that of a run of kind "state"; every snapshot is a commit in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from crewlite import durable
from crewlite.concurrency import background
from crewlite.definitions.keywords import methods_with_known_keywords
from crewlite.encoding.codec import decode, digest
from crewlite.errors import ConfigError, OnLoopThread, RefError, RunMismatch
from crewlite.ids import new_id
from crewlite.refs import check_name
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.checkpoints import SNAPSHOT
from crewlite.state.format.commit import CommitParts, RunStart
from crewlite.state.format.entry import STATE
from crewlite.state.format.record import Record
from crewlite.state.journal import manual
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.view import View
from crewlite.state.journal.writer import Writer
from crewlite.state.providers import BaseProvider, provider_for
from crewlite.state.reading.checkpoints import RecordView
from crewlite.state.reading.located import Located
from crewlite.state.subscriber import new_checkpoint
from crewlite.state.values.bag import Bag, StepState
from crewlite.state.verbs.acquire import acquire_branch, store_claim
from crewlite.texts.secrets import Secrets
from crewlite.usage import Usage

T = TypeVar("T")
_TO_CLOSE = 2.0  # seconds that a generator that is closed waits for the release of its state


@methods_with_known_keywords("a state", constructed=False)
class RuntimeState(Bag):
    """A run at the time of one event: its usage and checkpoints are as of then, its values are the current ones.

    The values are a mapping: `state["step"] = 1`. The next commit of the run records every value that was set, deleted
    or changed inside. A value is plain data or of another type that the codec records. An object of your own class
    comes back as an object of that class in a program that has set one before or has registered the class.
    """

    __slots__ = ("_then", "_trigger")

    def __init__(self, journal: Journal, trigger: str, address: str, moment: RecordView | None) -> None:
        super().__init__(journal, address)
        self._trigger = trigger
        self._then = moment
        """The commit that this object shows, whenever it is used; None for an opened state, which shows the newest."""

    @classmethod
    def open(
        cls, name: str | UUID, location: str | os.PathLike[str] | None = None, provider: BaseProvider | None = None
    ) -> RuntimeState:
        """Open a state without a run: values with snapshots. Use it in a `with` statement, or `close` it.

        Without a location and a provider it is in memory only. Otherwise it is stored there as a run of this name, and
        opening it again continues from its last commit. Changes after the last snapshot are lost when it is closed.
        `name/branch` opens a fork.

        Raises:
            BranchConflictError: another program, or another part of this one, has it open.
            RunMismatch: the name is taken by a run of another kind.
            RefError: there is no such branch.
            StoreUnusable: nothing can be saved there.
            OnLoopThread: called on crewlite's own event loop; use `aopen` there.
        """
        return cls(wait_for("open", lambda: opened(name, location, provider)), SNAPSHOT, "", None)

    @classmethod
    async def aopen(
        cls, name: str | UUID, location: str | os.PathLike[str] | None = None, provider: BaseProvider | None = None
    ) -> RuntimeState:
        """`open`, for coroutines. Use it with `async with`, or `aclose` it."""
        return cls(await background.on_loop(opened(name, location, provider)), SNAPSHOT, "", None)

    @staticmethod
    def current() -> StepState:
        """Return the state that the running step sees. The caller is code of a flow, `@step`, task, tool or model.

        Raises ConfigError outside a run, and in a step that runs in a process of its own.
        """
        view = durable.scope().state
        if not isinstance(view, View):
            raise ConfigError(
                "RuntimeState.current() was called outside the steps of a run. Call it in a running flow, step, task, "
                "tool or model. In a thread of yours, use bound(fn); in a handler, use its third argument; to a step "
                "with runtime='isolated', pass values as arguments; without a run, use RuntimeState.open(name)"
            )
        return StepState(view)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._journal.run_id

    @property
    def branch(self) -> str:
        """The branch of the run."""
        return self._journal.branch

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the kickoff."""
        inputs: dict[str, Any] = decode(self._journal.record.run["inputs"])
        return inputs

    @property
    def seq(self) -> int:
        """The number of the commit that this state shows."""
        return self._then.seq if self._then else self._journal.record.seq

    @property
    def usage(self) -> Usage:
        """Tokens and cost of the run up to this commit, and what was added through this object since."""
        if self._then:
            return self._then.paid.usage + self._paid
        return self._journal.record.paid.total + self._journal.states.paid

    def usage_of(self, address: str) -> Usage:
        """Return the tokens and cost so far of one step and all steps inside it, such as a crew in a flow.

        For the address "" it returns `usage`.
        """
        return self._journal.record.paid.inside(address) if address else self.usage

    def checkpoint(
        self,
        location: str | os.PathLike[str] | None = None,
        *,
        provider: BaseProvider | None = None,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Create a checkpoint at this event, and wait until it is on disk. For an opened state, that is a snapshot.

        A run without a store is stored at `location` from the first call on. Returns the ref to resume from: the path
        of a file (JSON) or `database#id`. Raises StoreError if it cannot be saved, or the run has no store and no
        location is given; BranchConflictError or RunCancelled if another process has taken the branch or cancelled the
        run; RefError if another checkpoint has the label; ConfigError.
        """
        started = time.perf_counter()
        at = None if location is None else manual.opened_at(os.fspath(location), provider)
        naming = manual.name_checkpoint(self._journal, lambda: self._checkpoint_parts(label, metadata), at)
        return self._named(manual.outcome(self._journal, naming), started)

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
        return self._named(await asyncio.wrap_future(naming), started)

    def flush(self) -> int:
        """Wait until every commit of the run so far is on disk. That is of use with durability="async".

        Returns the number of the last commit on disk. Raises StoreError if a commit cannot be saved, the run has ended,
        or it has no store.
        """
        return manual.flush(self._journal).result()

    async def aflush(self) -> int:
        """`flush`, for async handlers."""
        return await asyncio.wrap_future(manual.flush(self._journal))

    def close(self) -> None:
        """Release a state that was opened. May be called twice. Does nothing for the state of a run."""
        if self._then is None and not self._journal.closed:
            wait_for("close", lambda: self._journal.aclose(last_values=False))

    async def aclose(self) -> None:
        """`close`, for coroutines."""
        if self._then is None:
            await background.on_loop(self._journal.aclose(last_values=False))

    def __enter__(self) -> RuntimeState:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not GeneratorExit:
            self.close()
        elif self._then is None and not self._journal.closed:
            closing = background.submit(self.aclose())
            with contextlib.suppress(TimeoutError):  # see `lock`
                background.wait(closing, 0.0 if background.on_loop_thread() else _TO_CLOSE)

    async def __aenter__(self) -> RuntimeState:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def _named(self, parts: CommitParts, started: float) -> str:
        self._journal.announce_saved(parts, started)
        return manual.ref_of(self._journal, parts["place"])

    def _checkpoint_parts(self, label: str | None, metadata: dict[str, Any] | None) -> CommitParts:
        """Build the commit parts of a checkpoint at the commit that this state shows."""
        if self._then is None:
            return self._snapshot_parts(label, metadata)
        then = self._then
        about = {"finished_tasks": then.history.finished, "tokens": then.paid.total_tokens}
        total = then.sum or self._journal.sums.get(then.seq, "")
        named = {"about": about, "total": total, **self._label_and_metadata(label, metadata)}
        return {"place": new_checkpoint(self._journal.record, then.seq, self._trigger, self._address, **named)}


async def opened(name: str | UUID, location: str | os.PathLike[str] | None, provider: BaseProvider | None) -> Journal:
    """Open the journal of a state for writing by this process alone, as RuntimeState.open describes."""
    name = str(name) if isinstance(name, UUID) else name
    run_id, _, branch = name.partition("/") if isinstance(name, str) else (name, "", "")
    check_name("state", run_id)
    check_name("branch", branch or "main", slashes=True)
    if isinstance(location, CheckpointConfig):
        raise ConfigError(
            "RuntimeState.open was given a CheckpointConfig as its location; pass its fields: "
            "RuntimeState.open(name, config.location, config.provider)"
        )
    secrets = Secrets.of()
    if location is None and provider is None:
        journal = Journal(run_id, branch or "main", Record(), secrets, on_save_error="raise")
    else:
        config = CheckpointConfig(provider=provider)
        config = config if location is None else config.overridden_by(CheckpointConfig(location=location))
        kept = Located(provider_for(config.location, config.provider), config.location, run_id, branch or "main")
        _, queue, record = await acquire_branch(lambda: kept, STATE)
        journal = Journal(run_id, kept.branch, record, secrets, "raise", queue)
    try:
        await store_claim(journal, {} if _is_there(journal) else {"run": _beginning(run_id)})
    except BaseException:
        await journal.aclose(last_values=False)
        raise
    return journal


def wait_for(verb: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on the background loop, and wait for its result. Raises OnLoopThread on the thread of that loop."""
    if background.on_loop_thread():
        raise OnLoopThread(verb)
    return background.run(work())


def _is_there(journal: Journal) -> bool:
    """Return whether the state exists. Raises RunMismatch for a run of another kind, RefError for an unknown branch."""
    record = journal.record
    if record.seq == 0:
        if journal.branch != "main":
            name = f"{journal.run_id}/{journal.branch}"
            raise RefError(name, "names no branch; create one of an existing state with History(location).fork(...)")
        return False
    if (kind := record.kind) != STATE:
        raise RunMismatch(
            f"Run {journal.run_id!r} is of {kind} {record.run['definition']['name']!r}, and not a saved state: only "
            f"its own handlers change its values. Choose another name."
        )
    return True


def _beginning(name: str) -> RunStart:
    return {
        "run_id": name,
        "branch": "main",
        "uid": new_id(),
        "identity": digest([STATE, name]),
        "definition": {"kind": STATE, "name": name},
        "inputs": {},
    }
