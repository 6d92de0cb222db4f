"""Start a run, or resume one where it stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from crewlite import durable, events, kinds
from crewlite.concurrency import background
from crewlite.definitions.definition import in_use
from crewlite.errors import BranchConflictError, ConfigError, OnLoopThread, text_of
from crewlite.events.event_bus import event_bus
from crewlite.events.family import FamilyEvents
from crewlite.ids import new_id
from crewlite.lazy import lazy, load
from crewlite.runtime.kickoffs.advice import note_way_on
from crewlite.runtime.kickoffs.answers import answers_given, approvals_given
from crewlite.runtime.kickoffs.kickoff import drive, inside
from crewlite.runtime.kickoffs.left_behind import awaited
from crewlite.runtime.kickoffs.program import named_by_program
from crewlite.runtime.kickoffs.request import Finished, Progress, Request
from crewlite.runtime.kickoffs.resumption import (
    branch_for,
    check_of_run_at_work,
    is_same_turn,
    masked,
    newest_unfinished,
    secrets_of,
    warn_kept,
    warn_stored,
)
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.kickoffs.secret_inputs import refuse_to_find_by
from crewlite.runtime.kickoffs.storage import Storage, check_one_store, continued, storage_of
from crewlite.runtime.main_thread.sync_bridge import print_briefly, run_sync
from crewlite.runtime.steps.run import Run
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import CommitParts, RunStart
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import gone
from crewlite.state.reading.located import Located
from crewlite.state.subscriber import CheckpointSubscriber
from crewlite.state.verbs.acquire import acquire_branch, acquire_new_branch, store_claim
from crewlite.state.verbs.answer import receive
from crewlite.texts.secrets import Secrets

if TYPE_CHECKING:
    from crewlite.runtime.kickoffs import handle, joining, preview as previews, resume_checks
    from crewlite.runtime.kickoffs.handle import RunHandle
    from crewlite.state.verbs import transfer
else:  # only for verbs other than kickoff, and for recorded runs
    handle, joining = lazy("crewlite.runtime.kickoffs.handle"), lazy("crewlite.runtime.kickoffs.joining")
    previews, resume_checks = lazy("crewlite.runtime.kickoffs.preview"), lazy("crewlite.runtime.kickoffs.resume_checks")
    transfer = lazy("crewlite.state.verbs.transfer")
progress_lines = lazy("crewlite.console.progress")  # on a higher floor; only runs that show progress use it
log_files = lazy("crewlite.console.log_file")
load(lazy("crewlite.runtime.people.suspending"))  # now: a person may have to decide on a failure in the middle of a run

R = TypeVar("R")
T = TypeVar("T")


def kickoff_here(definition: Runnable[R], request: Request) -> R:
    """Run `kickoff` from blocking code, and wait until the run has ended."""
    kind, verb = definition.run_kind, definition.run_verb
    return run_sync(kind, verb, partial(kickoff, definition, request), partial(request.how_to_go_on, kind.name))


def preview_here(definition: Runnable[Any], request: Request) -> previews.Preview:
    """Run `preview` from blocking code, and wait for its result."""
    work = partial(preview, definition, request)
    return run_sync(definition.run_kind, "preview", work, lambda: "Nothing was changed.")


def submit(definition: Runnable[R], request: Request, verb: str = "submit") -> RunHandle[R]:
    """Begin the requested run and return its handle at once. Raises what `kickoff` raises before a run begins.

    Raises ConfigError inside another run (`verb` is its name in the message), OnLoopThread on the background loop.
    """
    name, kind = definition.run_name, definition.run_kind
    if durable.scope().loop is not None:
        instead = f"{name}(...)" if kind is kinds.FLOW else f"kickoff(...) of this {kind}"
        raise ConfigError(
            f"{name}.{verb}(...) was called inside a run, but it begins a run of its own: call {instead} instead, and "
            f"its steps become part of this run. To run several at once, use a @step with submit or map"
        )
    if background.on_loop_thread():
        raise OnLoopThread("submit", "await akickoff()")
    begun, way_on = partial(kickoff, definition, request), partial(request.how_to_go_on, kind.name)
    return handle.RunHandle(f"{kind} {name!r}", request.progress, begun, way_on, str(request.run_id or ""))


async def kickoff(definition: Runnable[R], request: Request, root: Root[Any] | None = None) -> R:
    """Start a run, resume one, or return the stored result of a finished one.

    `root`: the root of an equal earlier request, to reuse what follows from the definition alone; None to make one.
    """
    request, progress = request.going_on_from(definition.bound_at), request.progress
    with contextlib.ExitStack() as around:
        around.enter_context(in_use(definition.relies_on))
        root = root.again() if root else definition.as_root(request)
        root.progress = progress
        verbose, outermost = root.verbose or request.verbose, not isinstance(durable.scope(), StepScope)
        if outermost and not background.on_loop_thread():
            name = f"{root.kind} {definition.run_name!r}"
            around.enter_context(awaited(name, progress, partial(request.how_to_go_on, root.kind)))
        try:
            if verbose or root.log_file:
                around.enter_context(_progress_shown(progress, root.log_file, verbose=verbose))
            finished = await _kicked_off(root, request)
        except BaseException as error:
            if outermost:
                note_way_on(error, root.kind, request)
                print_briefly()  # also if Ctrl-C has cancelled the run and is about to end the program
            raise
    progress.outcome = finished.value
    return definition.as_result(finished)


@contextlib.contextmanager
def _progress_shown(progress: Progress, log_file: str | None, *, verbose: bool) -> Iterator[None]:
    """While the block runs, write the progress of a run to the terminal (`verbose`) and to `log_file`, if given."""
    which = (lambda: None if progress.joined else progress.run_id), (lambda: progress.address)
    with contextlib.ExitStack() as telling:
        if verbose:
            telling.enter_context(progress_lines.shown(*which))
        if log_file:
            telling.enter_context(log_files.written(log_file, *which))
        yield


async def preview(definition: Runnable[Any], request: Request) -> previews.Preview:
    """Return what `kickoff` would do. Reads the store; runs no step and writes nothing."""
    request = request.going_on_from(definition.bound_at)
    with in_use(definition.relies_on):
        return await previews.preview(definition.as_root(request), request)


async def _kicked_off(root: Root[T], request: Request) -> Finished[T]:
    """Kick off a run; inside another run, a step of that run, or a separate run if only this one has a store."""
    scope, request = durable.scope(), root.with_own_inputs(request)
    if not isinstance(scope, StepScope):
        return await _as_found(
            root, named_by_program(root, root.named(request)), lambda found: _run(root, found, storage_of(root, found))
        )
    if scope.dry or scope.run.recorded or (storage := storage_of(root, request)).config is None:
        if request.operation_id is not None:
            raise ConfigError(
                f"operation_id={request.operation_id!r} names a separate run, but here the flow is part of another "
                f"run, whose record answers when it is resumed. Leave operation_id out"
            )
        check_one_store((root.setting, *root.inner), scope.run.config)
        root.check(request.inputs or {})
        return Finished(await inside(scope, root, request, root.step(dict(request.inputs or {}), None)))
    return await _as_separate_run(scope, root, request, storage)


async def _as_separate_run(scope: StepScope, root: Root[T], request: Request, storage: Storage) -> Finished[T]:
    """Kick off a separate run, with a store, inside a run without one. Its usage counts for the outer run too."""
    ended, address = list[Finished[T]](), ""
    if request.auto_approve is None and scope.inherited.auto_approve:
        request = replace(request, auto_approve=True)

    async def work() -> T:
        nonlocal address
        around = durable.scope()
        assert isinstance(around, StepScope)
        address = around.address
        around.run.separate[address] = lambda: request.progress.usage
        token = durable.detach()
        try:
            ended.append(await _as_found(root, request, lambda found: _run(root, found, storage, around)))
        finally:
            durable.reattach(token)
        return ended[-1].value

    step, paid = root.step(dict(request.inputs or {}), None), request.progress
    usage = lambda _: paid.usage.to_record()  # noqa: E731 - the usage is known only when the run has ended
    policies = step.policies._replace(own=None, inherits=False)
    silent = replace(step, work=work, events=FamilyEvents.silent(root.source), usage=usage, policies=policies)
    value = await inside(scope, root, request, silent, own=True)
    scope.run.separate.pop(address, None)  # its usage is recorded now
    return replace(ended[-1], value=value)


async def _as_found(root: Root[T], request: Request, run: Callable[[Request], Awaitable[Finished[T]]]) -> Finished[T]:
    """Run the request, with the run to continue if the definition finds one; search again if that ended meanwhile."""
    while True:
        request.progress.waited = False  # not yet for this run
        found = await continued(root, request)
        try:
            return await run(found)
        except _Over:
            continue
        except BranchConflictError as error:
            begun = request.progress.finished_steps is not None  # this kickoff had acquired the turn and worked on it
            if begun or not found.state_turn or error.problem or error.found is not None:
                raise
            raise error.of_turn(found.state_turn.state_id) from None


async def _run(root: Root[T], request: Request, storage: Storage, around: StepScope | None = None) -> Finished[T]:
    """Begin or resume the run, and drive it to its result. `around`: the step in which a separate run is kicked off."""
    config = storage.config
    request.progress.found_again = request.resume or (request.run_id is not None and not request.names_new_run)
    secrets = secrets_of(root, config)
    if config is None:
        run = await _begin(root, request, Journal(new_id(), "main", Record(), secrets, receive=receive))
    else:
        begin = partial(_resume_any if request.resume else _take_up, root, request, config, secrets)
        check = partial(check_of_run_at_work, root, request, secrets)
        run = await (joining.when_free(begin, check, root, request.progress) if request.wait else begin())
    run.config, run.setting, run.streamed = storage.own, storage.setting, request.streamed
    if around:
        run.enclosing, run.guards, run.sayings = around.inherited.budgets, around.inherited.guards, around.sayings
    value = await drive(root, run, request.progress)
    request.progress.durability = run.durability  # only now, as the last save may have failed
    return Finished(value, request.progress.usage, run.durability, run.run_id)


async def _resume_any(root: Root[Any], request: Request, config: CheckpointConfig, secrets: Secrets) -> Run:
    """Resume the newest unfinished run that no process is working on; begin a run if there is none.

    If several processes want the same run, one of them acquires its branch, and the others look for another run.
    """
    passed: set[str] = set()
    inputs = request.inputs or {}
    refuse_to_find_by(inputs, "resume=True")
    while found := await background.in_thread(newest_unfinished, root, inputs, config, secrets, frozenset(passed)):
        try:
            return await _take_up(root, request, config, secrets, found)
        except (BranchConflictError, _Over):
            passed.add(found.run_id)
    return await _take_up(root, request, config, secrets)


class _Over(Exception):
    """The run that the search found has changed since, such as finished or been deleted; the search is repeated."""


async def _take_up(
    root: Root[Any], request: Request, config: CheckpointConfig, secrets: Secrets, found: Located | None = None
) -> Run:
    """Open the store and acquire the branch; resume the run that it holds, or begin one.

    `found` is an unfinished run to resume. Raises _Over if the run to resume has changed since it was found.
    """

    def wanted() -> Located:
        located = found or transfer.copy_if_elsewhere(branch_for(root, request, config), request.from_checkpoint)
        request.progress.target = located  # before anything can be refused, so that the caller knows it
        request.progress.location = located.location
        return located

    if found or request.run_id or config.restore_from:
        target, queue, record = await acquire_branch(wanted, root.kind)
    else:
        target, queue, record = await acquire_new_branch(branch_for(root, request, config), root.kind)
    request.progress.target = target
    how: Any = {"durability": config.durability, "receive": receive}
    journal = Journal(target.run_id, target.branch, record, secrets, config.on_save_error, queue, **how)
    journal.on_conflict = config.on_conflict
    try:
        if _is_over(root, request, found, journal):
            raise _Over
        if record.seq:
            return await _resume(root, request, config, journal, target)
        if config.restore_from:  # it was deleted since it was found
            raise gone(queue.store, f"{target.run_id}/{target.branch}", "branch")
        return await _begin(root, request, journal, config)
    except BaseException:
        await journal.aclose()
        raise


def _is_over(root: Root[Any], request: Request, found: Located | None, journal: Journal) -> bool:
    """Return whether the run has changed since the search found it, so that the search must be repeated.

    It has if it was finished or deleted, or if a run of the same definition has taken the name that was free. A kickoff
    that has waited for the run gets its result, unless it asks for the next turn of the state.
    """
    record = journal.record
    if request.progress.waited and record.seq:
        return not is_same_turn(root, request, journal)
    if request.state_turn is None:
        return found is not None and (not record.seq or record.finished)
    if request.state_turn.is_finished is None:
        return bool(record.seq) and record.run.get("identity") == root.identity
    return not record.seq or record.finished is not request.state_turn.is_finished


async def _begin(root: Root[Any], request: Request, journal: Journal, config: CheckpointConfig | None = None) -> Run:
    """Begin a new run. Its first commit proves that the store can be written, before anything is paid."""
    root.check(request.inputs or {})
    root.check_beginning(request.inputs or {}, journal.record)
    inputs, coded = masked(journal, request.inputs or {})
    first: RunStart = {
        "run_id": journal.run_id,
        "branch": journal.branch,
        "uid": new_id(),
        "identity": root.identity,
        "definition": journal.secrets.mask_data(root.facts()),
        "inputs": coded,
    }
    if request.state_turn and request.state_turn.by_operation:
        first["turns"] = dict(request.state_turn.by_operation)
    answers = answers_given(root, journal, request, changed=True)
    await store_claim(journal, {"run": first, **answers, **approvals_given(journal, request)})
    request.progress.attach(journal)
    return Run(
        journal,
        _subscriber(root, config),
        inputs=inputs,
        strict_replay=root.strict_replay,
        answers=dict(request.answers or {}),
        rerun=request.attempts,
    )


async def _resume(
    root: Root[Any],
    request: Request,
    config: CheckpointConfig,
    journal: Journal,
    target: Located,
) -> Run:
    """Resume a recorded run where it stopped, or prepare to return its stored result."""
    record = journal.record
    with _announced(root.source, journal, target):
        inputs, parts, drifted = await resume_checks.check_resume(root, request, journal, target, config)
        superseded = record.finished and drifted is None
        if drifted is not None:
            warn_kept(journal, drifted)
            warn_stored(root, record, target, journal)
        else:
            if superseded:
                journal.invalidate("", root.kind, at_once=False)
            copied: CommitParts = {"copied": [target.copied]} if target.copied and target.copied == record.sum else {}
            await store_claim(journal, parts | copied)
        request.progress.attach(journal)
    return Run(
        journal,
        _subscriber(root, config, asleep=drifted is not None),
        config.on_drift or "keep",
        resumed=True,
        strict_replay=root.strict_replay,
        superseded=superseded,
        drifted=tuple(one.address for one in drifted or ()),
        inputs=inputs,
        answers=dict(request.answers or {}),
        rerun=request.attempts,
    )


@contextlib.contextmanager
def _announced(source: object, journal: Journal, target: Located) -> Iterator[None]:
    """Emit the events of a resume: its start, and its success or failure at the end of the block."""
    started = time.perf_counter()
    about = target.event_fields
    event_bus.emit(source, events.CheckpointRestoreStartedEvent(**about))
    try:
        yield
    except Exception as error:
        said = {"error": journal.secrets.mask(text_of(error)), "error_type": type(error).__qualname__}
        event_bus.emit(source, events.CheckpointRestoreFailedEvent(**about, **said))
        raise
    found = {"checkpoint_id": target.checkpoint, "finished_steps": len(journal.record.outcomes)}
    elapsed = (time.perf_counter() - started) * 1000
    event_bus.emit(source, events.CheckpointRestoreCompletedEvent(**about, **found, duration_ms=elapsed))


def _subscriber(root: Root[Any], config: CheckpointConfig | None, *, asleep: bool = False) -> CheckpointSubscriber:
    return CheckpointSubscriber(root.default_events, config.max_checkpoints if config else None, asleep)
