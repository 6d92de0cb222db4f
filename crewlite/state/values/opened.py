"""A state without a run. Its journal is that of a run of kind "state"; every snapshot is a commit in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from crewlite import background
from crewlite.codec import digest
from crewlite.errors import ConfigError, OnLoopThread, RefError, RunMismatch
from crewlite.ids import new_id
from crewlite.refs import check_name
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import RunStart
from crewlite.state.format.entry import STATE
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.providers import BaseProvider, provider_for
from crewlite.state.reading.locate import Located
from crewlite.state.verbs.acquire import acquire_branch, store_claim

T = TypeVar("T")


async def opened(name: str | UUID, location: str | os.PathLike[str] | None, provider: BaseProvider | None) -> Journal:
    """Open the journal of a state for writing by this process alone, as RuntimeState.open describes.

    Without a location and a provider, the journal is in memory only.
    """
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
        journal = Journal(run_id, kept.branch, record, secrets, "raise", queue=queue)
    try:
        await store_claim(journal, {} if _is_there(journal) else {"run": _beginning(run_id)})
    except BaseException:
        await journal.aclose(last_values=False)
        raise
    return journal


def wait_for(verb: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on the background loop, and wait for its result. The event loop of the caller, if any, is not used.

    Raises OnLoopThread on the thread of the background loop, which would wait for itself.
    """
    if background.on_loop_thread():
        raise OnLoopThread(verb)
    future = background.submit(work())
    try:
        return future.result()
    except BaseException:  # above all Ctrl-C: the work is cancelled, and releases what it has opened
        future.cancel()
        raise


def _is_there(journal: Journal) -> bool:
    """Return whether the state exists already.

    Raises RunMismatch if the name belongs to a run of another kind, RefError for a branch that does not exist.
    """
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
