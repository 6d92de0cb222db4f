"""Starting a run, or taking one up where it stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from crewlite import background, durable, events
from crewlite.durable import Stamp, Step
from crewlite.errors import BranchConflictError
from crewlite.events.event_bus import event_bus
from crewlite.ids import new_id
from crewlite.runtime.frame import Frame
from crewlite.runtime.kickoff import Request, Root, drive, inside
from crewlite.runtime.plan import Plan, check_one_store, plan
from crewlite.runtime.resumption import (
    branch_for,
    check_newest,
    definition_now,
    in_doubt,
    inputs_of,
    kept_result,
    lived,
    masked,
    secrets_of,
    tell_done,
    tell_kept,
    tell_stored,
    told,
)
from crewlite.runtime.run import Run
from crewlite.runtime.unfinished import newest_unfinished
from crewlite.secrets import Secrets
from crewlite.state.bring import brought
from crewlite.state.commit import RunStart
from crewlite.state.config import CheckpointConfig
from crewlite.state.journal import Journal
from crewlite.state.lineage import gone
from crewlite.state.locate import Located
from crewlite.state.record import Record
from crewlite.state.subscriber import CheckpointSubscriber
from crewlite.state.take import claimed, taken, taken_new

T = TypeVar("T", bound=BaseModel)
Begun = tuple[Run, dict[str, Any]]


async def kickoff(root: Root[T], request: Request) -> T:
    """Start a run, go on with one, or return the stored result of one that has finished."""
    scope = durable.scope()
    if not isinstance(scope, Frame):
        return await _run(root, request, plan(root, request))
    if scope.dry or scope.run.recorded or (decided := plan(root, request)).config is None:
        check_one_store((root.setting, *root.inner), scope.run.config)
        root.check(request.inputs or {})
        return await inside(scope, root, request, root.step(dict(request.inputs or {}), None))
    return await inside(scope, root, request, _of_its_own(root, request, decided), own=True)


def _of_its_own(root: Root[T], request: Request, decided: Plan) -> Step[T]:
    """A kickoff with a store, inside a run without one: a run of its own, whose usage the outer run counts."""

    async def work() -> T:
        token = durable.leave()
        try:
            return await _run(root, request, decided)
        finally:
            durable.back(token)

    step, paid = root.step(dict(request.inputs or {}), None), request.progress
    return replace(step, work=work, voice=_Silent(root.holds[0]), usage=lambda _: paid.usage.to_record(), remedies=None)


@dataclass(frozen=True, slots=True)
class _Silent:
    """Emits nothing: the run of its own does."""

    source: object

    def started(self, stamp: Stamp) -> None:
        return None

    def completed(self, stamp: Stamp, value: Any) -> None:
        return None

    def failed(self, stamp: Stamp, error: str, error_type: str) -> None:
        return None


async def _run(root: Root[T], request: Request, decided: Plan) -> T:
    config = decided.config
    secrets = secrets_of(root, config)
    if config is None:
        run, inputs = await _begin(root, request, Journal(new_id(), "main", Record(), secrets))
    else:
        run, inputs = await (_resume_any if request.resume else _take_up)(root, request, config, secrets)
    run.config = decided.own
    result = await drive(root, run, inputs, decided.setting, request.progress, lambda run: _going_on(root, run))
    request.progress.durability = run.durability
    return result


async def _resume_any(root: Root[Any], request: Request, config: CheckpointConfig, secrets: Secrets) -> Begun:
    """Go on with the newest unfinished run that nobody is at work on; begin one if there is none.

    Of several processes that want the same run, the claims let one have it; the others look further.
    """
    passed: set[str] = set()
    inputs = request.inputs or {}
    while found := await background.in_thread(newest_unfinished, root, inputs, config, secrets, frozenset(passed)):
        try:
            return await _take_up(root, request, config, secrets, found)
        except (BranchConflictError, _Over):
            passed.add(found.run_id)
    return await _take_up(root, request, config, secrets)


class _Over(Exception):
    """A run was finished, or taken away, by somebody else since it was looked at."""


async def _take_up(
    root: Root[Any], request: Request, config: CheckpointConfig, secrets: Secrets, found: Located | None = None
) -> Begun:
    """Open the store and take the branch; go on with what it holds, or begin. `found`: an unfinished run."""

    def wanted() -> Located:
        located = found or brought(branch_for(root, request, config), request.from_checkpoint)
        request.progress.location = located.location  # also for who is refused
        return located

    if found or request.run_id or config.restore_from:
        target, lane, record = await taken(wanted)
    else:
        target, lane, record = await taken_new(branch_for(root, request, config))
    journal = Journal(target.run_id, target.branch, record, secrets, config.on_save_error, config.durability, lane)
    try:
        if found and (not record.seq or record.finished):
            raise _Over
        if record.seq:
            return await _resume(root, request, config, journal, target)
        if config.restore_from:  # it was deleted since it was found
            raise gone(lane.store, f"{target.run_id}/{target.branch}", "branch")
        return await _begin(root, request, journal, config)
    except BaseException:
        await journal.aclose()
        raise


async def _begin(root: Root[Any], request: Request, journal: Journal, config: CheckpointConfig | None = None) -> Begun:
    """A new run. Its first commit proves that it can be saved, before anything is paid."""
    root.check(request.inputs or {})
    inputs, coded = masked(journal, request.inputs or {})
    first: RunStart = {
        "run_id": journal.run_id,
        "branch": journal.branch,
        "uid": new_id(),
        "identity": root.identity,
        "definition": journal.secrets.mask_data(root.definition),
        "inputs": coded,
    }
    in_doubt(journal.record, request.answers or ())
    answers = told(journal, request, changed=True)
    await claimed(journal, {"run": first, **answers})
    request.progress.tell(journal)
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
    record = journal.record
    with _announced(root.holds[0], journal, target):
        inputs, others = inputs_of(root, request, journal)
        drifted = None if others else kept_result(root, journal, inputs, config)
        finished = drifted is not None
        doubts = in_doubt(record, (*(request.answers or ()), *request.rerun))
        answers = told(journal, request, changed=bool(others))
        tell_done(journal, request.rerun)
        superseded = record.finished and not finished
        if drifted is not None:
            tell_kept(journal, drifted)
            tell_stored(root, record, target, journal)
        else:
            check_newest(root, record, target)
            if superseded:
                journal.again("", root.kind)
            await claimed(journal, others | answers | definition_now(root, journal))
        request.progress.tell(journal)
    run = Run(
        journal,
        _subscriber(root, config, asleep=finished),
        on_drift=config.on_drift or "keep",
        superseded=superseded,
        drifted=tuple(one.address for one in drifted or ()),
        answers=dict(request.answers or {}),
        rerun=frozenset(request.rerun),
        doubts=doubts,
        **lived(root, record),
    )
    return run, inputs


def _going_on(root: Root[Any], run: Run) -> Run:
    """The same run, as if it had been kicked off again: it waited for people, who have answered since."""
    record = run.record
    return Run(
        run.journal,
        run.subscriber,
        on_drift=run.on_drift,
        superseded=run.superseded,
        answers=run.answers,
        config=run.config,
        doubts=in_doubt(record, ()),
        **lived(root, record),
    )


@contextlib.contextmanager
def _announced(source: object, journal: Journal, target: Located) -> Iterator[None]:
    """Tell that a record is taken up, and what comes of it."""
    started = time.perf_counter()
    about = {"location": target.location, "provider": target.provider.name}
    about |= {"run_id": target.run_id, "branch": target.branch}
    event_bus.emit(source, events.CheckpointRestoreStartedEvent(**about))
    try:
        yield
    except Exception as error:
        said = {"error": journal.secrets.mask(str(error)), "error_type": type(error).__qualname__}
        event_bus.emit(source, events.CheckpointRestoreFailedEvent(**about, **said))
        raise
    found = {"checkpoint_id": target.place, "finished_steps": len(journal.record.outcomes)}
    elapsed = (time.perf_counter() - started) * 1000
    event_bus.emit(source, events.CheckpointRestoreCompletedEvent(**about, **found, duration_ms=elapsed))


def _subscriber(root: Root[Any], config: CheckpointConfig | None, *, asleep: bool = False) -> CheckpointSubscriber:
    return CheckpointSubscriber(root.natural, config.max_checkpoints if config else None, asleep)
