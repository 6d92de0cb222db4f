"""Starting a run, or taking one up where it stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from crewlite import durable, events
from crewlite.codec import decode, digest, encode
from crewlite.errors import (
    ConfigError,
    InputsChanged,
    NotCodable,
    PlaceIsBehind,
    RefError,
    RunMismatch,
)
from crewlite.events.event_bus import event_bus
from crewlite.ids import new_id, short
from crewlite.runtime.frame import Frame
from crewlite.runtime.kickoff import Request, Root, drive, inside, plan
from crewlite.runtime.run import Run
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig
from crewlite.state.entry import Facts
from crewlite.state.journal import Journal
from crewlite.state.locate import Located, locate
from crewlite.state.providers import provider_for
from crewlite.state.record import Record
from crewlite.state.subscriber import CheckpointSubscriber
from crewlite.state.take import claimed, take, taken

T = TypeVar("T", bound=BaseModel)
Begun = tuple[Run, dict[str, Any]]


async def kickoff(root: Root[T], request: Request) -> T:
    """Start a run, go on with one, or return the stored result of one that has finished."""
    scope = durable.scope()
    if isinstance(scope, Frame):
        return await inside(scope, root, request)
    decided = plan(root, request)
    config = decided.config
    settings = [s for s in (config, root.setting, *root.inner) if isinstance(s, CheckpointConfig)]
    secrets = Secrets.of(*root.holds, extra=[text for setting in settings for text in setting.redact or ()])
    if config is None:
        run, inputs = await _begin(root, request, Journal(new_id(), "main", Record(), secrets))
    else:
        run, inputs = await _take_up(root, request, config, secrets)
    result = await drive(root, run, inputs, decided.setting)
    request.progress.usage, request.progress.durability = run.record.usage, run.durability
    return result


async def _take_up(root: Root[Any], request: Request, config: CheckpointConfig, secrets: Secrets) -> Begun:
    """Open the store and take the branch; go on with what it holds, or begin."""
    if request.run_id or config.restore_from:
        target, writer, lane, record = await taken(lambda: _target(root, request, config))
    else:
        target, writer, lane, record = take(_target(root, request, config), new=True)  # nothing to wait for
    journal = Journal(
        target.run_id, target.branch, record, secrets, config.on_save_error, config.durability, writer, lane
    )
    try:
        if record.seq:
            return await _resume(root, request, config, journal, target)
        return await _begin(root, request, journal, config)
    except BaseException:
        await journal.aclose()
        raise


def _target(root: Root[Any], request: Request, config: CheckpointConfig) -> Located:
    """The branch to write to: the one a ref names, or that of the run asked for, or a new one."""
    if config.restore_from is None:
        provider = provider_for(config.location, config.provider)
        return Located(provider, config.location, request.run_id or new_id(), "main")
    found = locate(config.restore_from, config.location, config.provider, root.identity)
    if request.run_id not in (None, found.run_id):
        raise ConfigError(f"{config.restore_from} belongs to run {found.run_id!r}, not to run_id={request.run_id!r}")
    return found


async def _begin(root: Root[Any], request: Request, journal: Journal, config: CheckpointConfig | None = None) -> Begun:
    """A new run. Its first commit proves that it can be saved, before anything is paid."""
    root.check(request.inputs or {})
    inputs, coded = _masked(journal, request.inputs or {})
    first: Facts = {
        "run_id": journal.run_id,
        "branch": journal.branch,
        "uid": new_id(),
        "identity": root.identity,
        "definition": journal.secrets.mask_data(root.definition),
        "inputs": coded,
    }
    await claimed(journal, {"run": first})
    request.progress.tell(journal.run_id, journal.location, journal.branch)
    subscriber, rerun = _subscriber(root, config), frozenset(request.rerun)
    return Run(journal, subscriber, answers=dict(request.answers or {}), rerun=rerun), inputs


async def _resume(
    root: Root[Any],
    request: Request,
    config: CheckpointConfig,
    journal: Journal,
    target: Located,
) -> Begun:
    """A run that was recorded, from where it stopped."""
    started, source = time.perf_counter(), root.holds[0]
    about = {"location": target.location, "provider": target.provider.name}
    about |= {"run_id": target.run_id, "branch": target.branch}
    event_bus.emit(source, events.CheckpointRestoreStartedEvent(**about))
    record = journal.record
    try:
        inputs, others = _inputs(root, request, journal)
        finished = not others and _has_its_result(root, record, inputs, config)
        doubts = _doubts(request, record)
        if not finished:
            _newest(record, target)
            if record.finished:
                journal.again("", root.kind)
            await claimed(journal, others | _resumed(root, journal))
    except Exception as error:
        said = {"error": journal.secrets.mask(str(error)), "error_type": type(error).__qualname__}
        event_bus.emit(source, events.CheckpointRestoreFailedEvent(**about, **said))
        raise
    request.progress.tell(target.run_id, journal.location, target.branch)
    elapsed = (time.perf_counter() - started) * 1000
    event_bus.emit(
        source,
        events.CheckpointRestoreCompletedEvent(
            **about, checkpoint_id=target.place, finished_steps=len(record.outcomes), duration_ms=elapsed
        ),
    )
    run = Run(
        journal,
        _subscriber(root, config, asleep=finished),
        on_drift=config.on_drift,
        answers=dict(request.answers or {}),
        rerun=frozenset(request.rerun),
        doubts=doubts,
        begun=frozenset({"", *(event.address for event in record.events if event.type.endswith("_started"))}),
        inside=_inside(record) if root.exact else {},
    )
    return run, inputs


def _inside(record: Record) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for address in filter(None, record.outcomes):
        found.setdefault(address[: address.rfind("/") + 1], set()).add(address)
    return {prefix: frozenset(addresses) for prefix, addresses in found.items()}


def _masked(journal: Journal, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The inputs as the run may know them, and as they are recorded: without configured secrets.

    A run without a store takes any inputs; what cannot be recorded is left out of its record.
    """
    try:
        coded = encode(dict(inputs), "inputs")
    except NotCodable as error:
        if journal.writer:
            raise
        journal.warn(f"a checkpoint by hand will not hold the inputs: {error}")
        return dict(inputs), {}
    masked = journal.secrets.mask_data(coded)
    if masked == coded:
        return dict(inputs), coded
    journal.warn("The inputs held a configured secret, which was masked")
    return decode(masked), masked


def _has_its_result(root: Root[Any], record: Record, inputs: dict[str, Any], config: CheckpointConfig) -> bool:
    """Whether the recorded result still answers what is asked. If not, the run goes on: with what has changed."""
    outcome = record.outcomes.get("")
    if outcome is None:
        return False
    asked_so = record.inputs_of("") == record.run["inputs"]
    kept = root.rebind is None and config.on_drift == "keep" and asked_so
    return kept or outcome.fingerprint == digest([root.kind, root.asks(inputs)])


def _inputs(root: Root[Any], request: Request, journal: Journal) -> tuple[dict[str, Any], Facts]:
    """The inputs to go on with, and how they are recorded where that is new: a fork may be given others once.

    Raises RunMismatch if the record is of something else.
    """
    record = journal.record
    recorded = record.run["definition"]
    if recorded["kind"] != root.kind or (root.exact and recorded["name"] != root.name):
        raise RunMismatch(
            f"Run {journal.run_id!r} is of {recorded['kind']} {recorded['name']!r}, and this is {root.kind} "
            f"{root.name!r}: kick off the definition it was started with, or choose another run_id."
        )
    inputs: dict[str, Any] = decode(record.run["inputs"])
    others: Facts = {}
    if request.inputs is not None:
        given, coded = _masked(journal, request.inputs)
        if record.run.get("base"):
            given, coded = {**inputs, **given}, _laid_over(record.run["inputs"], coded)
        if digest(coded) != digest(record.run["inputs"]):
            if not record.fresh:
                names = sorted(k for k in {*inputs, *given} if encode(inputs.get(k)) != encode(given.get(k)))
                raise InputsChanged(journal.run_id, names)
            others = {"inputs": coded}
        inputs = given
    root.check(inputs)
    return inputs, others


def _laid_over(recorded: Facts, given: Facts) -> Facts:
    """Coded inputs with others over them. Where a name is unusual, the codec writes pairs instead of a dict."""
    if "$" not in recorded and "$" not in given:
        return {**recorded, **given}
    both = [pair for coded in (recorded, given) for pair in (coded["v"] if "$" in coded else coded.items())]
    return {"$": "dict", "v": list({decode(name): [name, value] for name, value in both}.values())}


def _newest(record: Record, located: Located) -> None:
    """Raises PlaceIsBehind if the branch went on beyond the place asked for."""
    place, newest = record.places.get(located.place or ""), record.newest_place
    if place and newest and newest["seq"] > place["seq"]:
        after = [p["address"] or p["trigger"] for p in record.places.values() if p["seq"] > place["seq"]]
        raise PlaceIsBehind(
            short(place["id"]), run_id=located.run_id, branch=located.branch, after=after, head=short(newest["id"])
        )


def _doubts(request: Request, record: Record) -> frozenset[str]:
    """The calls in doubt. Raises RefError if the request settles one that is not."""
    doubts = frozenset(address for address in record.intents if address not in record.outcomes)
    for address in (*(request.answers or ()), *request.rerun):
        if address not in doubts and address not in record.outcomes and not _asks(address):
            raise RefError(address, "is no call in doubt, so it can neither be answered nor run again", sorted(doubts))
    return doubts


def _asks(address: str) -> bool:
    """Whether a step is a question to a person, which may be answered before it is asked."""
    return address.rpartition("/")[2].startswith(("human:", "human#"))


def _resumed(root: Root[Any], journal: Journal) -> Facts:
    """What the commit that takes a run up says of the definition: how it stands now, where that has changed."""
    record, facts = journal.record, Facts()
    if root.rebind:
        now = journal.secrets.mask_data(root.rebind(record.run, frozenset(record.outcomes)))
        if now != record.run["definition"]:
            facts["definition"] = now
    return facts


def _subscriber(root: Root[Any], config: CheckpointConfig | None, *, asleep: bool = False) -> CheckpointSubscriber:
    return CheckpointSubscriber(root.natural, config.max_checkpoints if config else None, asleep)
