"""Starting a run, or taking one up where it stopped."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, TypeVar

from crewlite import background, durable
from crewlite.codec import decode, digest, encode
from crewlite.errors import BranchConflictError, ConfigError, InputsChanged, PlaceIsBehind, RunMismatch, StoreUnusable
from crewlite.events.event_bus import event_bus
from crewlite.events.types.checkpoint_events import (
    CheckpointRestoreCompletedEvent,
    CheckpointRestoreFailedEvent,
    CheckpointRestoreStartedEvent,
)
from crewlite.ids import new_id, short
from crewlite.runtime.kickoff import Request, Root, drive, inside, plan
from crewlite.runtime.run import Run
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig
from crewlite.state.entry import Facts
from crewlite.state.journal import Journal
from crewlite.state.locate import Located, exists, locate
from crewlite.state.providers import provider_for
from crewlite.state.record import Record
from crewlite.state.subscriber import CheckpointSubscriber
from crewlite.state.writer import Lane, Writer, open_writer

T = TypeVar("T")
Taken = tuple[Run, dict[str, Any]]


async def kickoff(root: Root[T], request: Request) -> T:
    """Start a run, go on with one, or return the stored result of one that has finished."""
    scope = durable.scope()
    if scope is not durable.PLAIN:
        return await inside(scope, root, request)
    decided = plan(root, request)
    secrets = Secrets.of(*root.holds, extra=(decided.config and decided.config.redact) or ())
    located = await background.in_thread(_find, root, request, decided.config) if decided.config else None
    if located is None:
        run, inputs = await _begin(root, request, decided.config, secrets)
    else:
        run, inputs = await _resume(root, request, decided.config, secrets, located)
    return await drive(root, run, inputs, decided.setting)


def _find(root: Root[Any], request: Request, config: CheckpointConfig) -> Located | None:
    """The recorded run to go on with, if there is one."""
    if config.restore_from is not None:
        found = locate(config.restore_from, config.location, config.provider, root.identity)
        if request.run_id not in (None, found.run_id):
            raise ConfigError(
                f"{config.restore_from} belongs to run {found.run_id!r}, not to run_id={request.run_id!r}"
            )
        return found
    provider = provider_for(config.location, config.provider)
    if request.run_id is None or not exists(config.location, provider):
        return None
    store = provider.open(config.location)
    try:
        known = bool(store.read(request.run_id, "main"))
    finally:
        store.close()
    return Located(provider, config.location, request.run_id, "main") if known else None


async def _begin(root: Root[Any], request: Request, config: CheckpointConfig | None, secrets: Secrets) -> Taken:
    """A new run. Its first commit proves that it can be saved, before anything is paid."""
    inputs = dict(request.inputs or {})
    run_id = request.run_id or new_id()
    first: Facts = {
        "run_id": run_id,
        "branch": "main",
        "uid": new_id(),
        "identity": root.identity,
        "definition": root.definition,
        "inputs": encode(inputs, "inputs"),
    }
    journal = _journal(run_id, "main", Record(), secrets, config)
    if config:
        provider = provider_for(config.location, config.provider)
        writer, lane = await background.in_thread(_enter, provider, config.location, run_id, "main")
        journal.writer, journal.lane = writer, lane
    await _first_save(journal, {"run": first})
    request.progress.run_id, request.progress.location = run_id, journal.location
    return Run(journal, _subscriber(root, config)), inputs


async def _resume(
    root: Root[Any], request: Request, config: CheckpointConfig | None, secrets: Secrets, located: Located
) -> Taken:
    """A run that was recorded, from where it stopped."""
    started = time.perf_counter()
    about = {
        "location": located.location,
        "provider": located.provider.name,
        "run_id": located.run_id,
        "branch": located.branch,
    }
    event_bus.emit(root.holds[0], CheckpointRestoreStartedEvent(**about))
    writer, lane = await background.in_thread(
        _enter, located.provider, located.location, located.run_id, located.branch
    )
    try:
        record = Record.of(await background.in_thread(writer.store.read, located.run_id, located.branch))
        inputs = _check(root, request, record, located)
        journal = _journal(located.run_id, located.branch, record, secrets, config)
        lane.seq, lane.sum = record.seq, record.sum
        journal.writer, journal.lane = writer, lane
        if not record.finished:
            await _first_save(journal, _resumed(root, record))
    except BaseException as error:
        writer.leave(lane)
        writer.close()
        if isinstance(error, Exception):
            failed = CheckpointRestoreFailedEvent(
                **about, error=secrets.mask(str(error)), error_type=type(error).__name__
            )
            event_bus.emit(root.holds[0], failed)
        raise
    request.progress.run_id, request.progress.location = located.run_id, journal.location
    elapsed = (time.perf_counter() - started) * 1000
    event_bus.emit(
        root.holds[0],
        CheckpointRestoreCompletedEvent(
            **about, checkpoint_id=located.place, finished_steps=len(record.outcomes), duration_ms=elapsed
        ),
    )
    run = Run(
        journal,
        _subscriber(root, config, asleep=record.finished),
        on_drift=config.on_drift if config else "keep",
        answers=dict(request.answers or {}),
        rerun=frozenset(request.rerun),
        doubts=frozenset(address for address in record.intents if address not in record.outcomes),
        begun=frozenset({"", *(event.address for event in record.events if event.type.endswith("_started"))}),
    )
    return run, inputs


def _check(root: Root[Any], request: Request, record: Record, located: Located) -> dict[str, Any]:
    """Whether the record is of this run, and the place its newest. Returns the inputs to go on with."""
    recorded = record.run["definition"]
    if recorded["kind"] != root.kind:
        raise RunMismatch(
            f"Run {located.run_id!r} is of {recorded['kind']} {recorded['name']!r}, and this is {root.kind} "
            f"{root.name!r}: kick off the definition it was started with, or choose another run_id."
        )
    inputs: dict[str, Any] = decode(record.run["inputs"])
    if request.inputs is not None:
        given = encode(dict(request.inputs), "inputs")
        if digest(given) != digest(record.run["inputs"]):
            names = sorted(
                k for k in {*inputs, *request.inputs} if encode(inputs.get(k)) != encode(request.inputs.get(k))
            )
            raise InputsChanged(located.run_id, names)
        inputs = dict(request.inputs)
    place, newest = record.places.get(located.place or ""), record.newest_place
    if place and newest and newest["seq"] > place["seq"] and not record.finished:
        after = [p["address"] or p["trigger"] for p in record.places.values() if p["seq"] > place["seq"]]
        raise PlaceIsBehind(
            short(place["id"]), run_id=located.run_id, branch=located.branch, after=after, head=short(newest["id"])
        )
    return inputs


def _resumed(root: Root[Any], record: Record) -> Facts:
    """The commit that takes a run up: it claims the branch, and tells how the definition stands now."""
    facts: Facts = {"resumed": {"pid": os.getpid()}}
    if root.rebind:
        now = root.rebind(record.run["definition"], frozenset(record.outcomes))
        if now != record.run["definition"]:
            facts["definition"] = now
    return facts


def _enter(provider: Any, location: str, run_id: str, branch: str) -> tuple[Writer, Lane]:
    writer = open_writer(provider, location)
    try:
        return writer, writer.enter(run_id, branch)
    except BaseException:
        writer.close()
        raise


async def _first_save(journal: Journal, facts: Facts) -> None:
    receipt = journal.commit(facts)
    if receipt is None:
        return
    try:
        await asyncio.wrap_future(receipt)
    except BranchConflictError:
        journal.close()
        raise
    except Exception as error:
        where = journal.location or ""
        assert journal.lane
        journal.lane.backlog = ()
        journal.close()
        raise StoreUnusable(where, f"nothing can be saved ({error}); nothing was started") from error


def _journal(run_id: str, branch: str, record: Record, secrets: Secrets, config: CheckpointConfig | None) -> Journal:
    return Journal(run_id, branch, record, secrets, on_save_error=config.on_save_error if config else "warn")


def _subscriber(root: Root[Any], config: CheckpointConfig | None, *, asleep: bool = False) -> CheckpointSubscriber:
    return CheckpointSubscriber(root.natural, config.max_checkpoints if config else None, asleep)
