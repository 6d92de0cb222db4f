"""Drive a run to its result, alone or as a step of another run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

from crewlite import events
from crewlite.concurrency import threads
from crewlite.concurrency.between_loops import await_work, begin_on
from crewlite.concurrency.resources import InUse
from crewlite.concurrency.unawaited import mark_seen
from crewlite.durable import Step
from crewlite.errors import BudgetExceeded, ConfigError, RunCancelled, Suspended, text_of
from crewlite.events.event_bus import event_bus
from crewlite.runtime.kickoffs.advice import note_answered, warn_unused
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.secret_inputs import holding_secrets
from crewlite.runtime.main_thread.signals import PATIENCE, Listener, listed_signals
from crewlite.runtime.steps.budgets import worked
from crewlite.runtime.steps.keyed import to_another_loop
from crewlite.runtime.steps.run import Origin, Run
from crewlite.runtime.steps.step_scope import StepScope
from crewlite.state.format.commit import CommitParts
from crewlite.state.journal.journal import Journal
from crewlite.state.reading.steps import unsettled
from crewlite.state.verbs.answer import answered_but_unused
from crewlite.texts.logs import logger
from crewlite.texts.resuming import call_again

T = TypeVar("T")
log = logger("crewlite.run")
_OF_OUTERMOST = ("run_id", "from_checkpoint", "resume", "answers", "rerun")
_DEEPEST = 400  # steps that may enclose a kickoff; deeper is only a definition that kicks itself off without end
_TO_STOP = 1.0  # seconds that cancelled steps have to end before they are abandoned


async def drive(root: Root[T], run: Run, progress: Progress) -> T:
    """Drive a run to its result, and close its journal however it ends.

    If the run suspends to wait for people, and they have answered by then, it is driven again at once. Tools and models
    close their connections before the branch is released, so that another process can acquire it then.
    """
    listener = _listener(root, run)
    async with listener or contextlib.nullcontext():
        try:
            with threads.shared():
                async with InUse():
                    return await _to_its_end(root, run, listener, progress)
        finally:
            try:
                await event_bus.aflush(listener.patience if listener else PATIENCE)
            finally:
                await run.journal.aclose(cancelled=progress.cancelled)
                progress.end()


async def _to_its_end(root: Root[T], run: Run, listener: Listener | None, progress: Progress) -> T:
    heard = frozenset[str]()
    while True:
        try:
            result = await _driven(root, run, listener, progress)
        except Suspended as waits:
            if waits.run_id != run.run_id:  # a separate run, kicked off inside this one
                raise
            answered = answered_but_unused(run.record)
            if answered <= heard:
                raise await _paused(root, run) from None
            heard = heard | answered
            run = dataclasses.replace(run, resumed=True, rerun={})  # as another kickoff would begin
        else:
            warn_unused(run)
            await run.journal.flush()
            return result


async def _driven(root: Root[T], run: Run, listener: Listener | None, progress: Progress) -> T:
    step = dataclasses.replace(root.step(run.inputs, run), address=root.address)
    frame = StepScope(run, run.outermost(root.name))
    frame.children.sayings = run.sayings
    try:
        work = _while_ours(run.journal, frame.step(step))
        return await (listener.during(work) if listener else work)
    except Suspended:
        raise
    except (RunCancelled, BudgetExceeded) as error:
        if isinstance(error, BudgetExceeded):
            await _announce_budget(root, run, error)
        failed = step.events.failed(text_of(error), type(error).__qualname__)
        run.tell(step.events.source, failed, Origin("", root.name))
        raise
    except Exception as error:
        note_answered(error, root.kind, run, progress)
        raise


async def _announce_budget(root: Root[Any], run: Run, error: BudgetExceeded) -> None:
    """Record and emit the event of a budget that is used up, which stops the run, and the checkpoint it may create."""
    about = {"owner": error.owner, "setting": error.setting, "limit": error.limit, "used": error.used}
    committed: CommitParts = {"events": [], "worked": worked(run)}  # the event itself is added
    committed["stopped"] = run.journal.secrets.mask(error.found)
    said = events.BudgetExceededEvent, about
    await run.publish(root.source, said, run.outermost(root.name), parts=committed, now=True)
    await run.journal.flush()


async def _while_ours(journal: Journal, work: Awaitable[T]) -> T:
    """Await the work of a run. If another process claims the branch or cancels the run, cancel the work and raise."""
    either = journal.loop.create_future()

    def wake(_: object) -> None:
        if not either.done():
            either.set_result(None)

    doing = asyncio.ensure_future(work)
    doing.add_done_callback(wake)
    journal.fenced.add_done_callback(wake)
    try:
        await either
    except asyncio.CancelledError:
        doing.cancel()
        return await doing
    finally:
        journal.fenced.remove_done_callback(wake)
    if not doing.done():
        doing.add_done_callback(mark_seen)
        doing.cancel()
        await asyncio.wait({doing}, timeout=_TO_STOP)
        raise journal.fenced.result()
    return await doing


async def _paused(root: Root[Any], run: Run) -> Suspended:
    """Emit the event that the run waits for people. Returns the error to raise, which lists the open questions.

    Raises StoreError if the questions cannot be saved: an answer to one could be taken as the answer to another that
    the next kickoff asks.
    """
    waiting = {asked["address"]: asked["question"] for asked in run.record.waiting}
    await run.journal.assured(
        f"the run cannot wait for people, as not everything is saved: the next kickoff may ask something else than "
        f"{', '.join(waiting)} asks now. Make the store writable and {call_again(root.kind)}, then answer"
    )
    if root.waits:
        said = root.waits, {"flow_name": root.name, "waiting": waiting}
        await run.publish(root.source, said, run.outermost(root.name))
    warn_unused(run)
    await run.journal.flush()
    in_doubt = unsettled(run.record)
    return Suspended(run.run_id, run.journal.location or "", waiting, run.branch, in_doubt=in_doubt, kind=root.kind)


async def inside(scope: StepScope, root: Root[T], request: Request, step: Step[T], *, own: bool = False) -> T:
    """Run a kickoff that happens inside another run as a step of that run, on that run's loop.

    `own`: the step drives a separate run. Raises ConfigError for options that only an outermost kickoff can have, and
    for a definition that kicks itself off without end.
    """
    if scope.address.count("/") >= _DEEPEST:
        raise ConfigError(
            f"{root.kind} {root.name!r} is kicked off inside {_DEEPEST} nested steps. If it kicks itself off, directly "
            f"or through another definition, let a condition end that"
        )
    if not own and (given := [name for name in _OF_OUTERMOST if getattr(request, name)]):
        raise ConfigError(
            f"{root.kind} {root.name!r} is kicked off inside a run and becomes part of it, so it takes no "
            f"{', '.join(given)}: pass {'it' if len(given) == 1 else 'them'} to the outermost kickoff"
        )
    if not own and (signals := listed_signals((root.setting, *root.inner))):
        log.warning("on_events: only the outermost run listens to %s; %r does not", ", ".join(signals), root.name)

    async def work() -> T:
        part_of = scope.addressed(
            dataclasses.replace(
                step,
                checkpoint=step.checkpoint if root.setting is None else root.setting,
                auto_approve=request.auto_approve,
                streamed=request.streamed,
            )
        )
        if not own:
            progress, run = request.progress, scope.run
            progress.run_id, progress.branch, progress.address = run.run_id, run.branch, part_of.address or ""
        return await scope.as_task(part_of)

    journal = scope.run.journal
    journal.learn(*root.secret_sources, *holding_secrets(request.inputs or {}).values(), extra=root.redact)
    home = journal.loop
    if home is asyncio.get_running_loop():
        return await work()
    begun = to_another_loop().run(begin_on, home, work())
    return await await_work(begun)  # from a thread of blocking code


def _listener(root: Root[Any], run: Run) -> Listener | None:
    """Build the listener for signals, if the run's definitions name any. A run with a stored result listens to none."""
    asked = listed_signals((run.setting, *root.inner))
    if run.subscriber.asleep or not asked:
        return None
    so_far = Progress(run.run_id, run.journal.location, run.branch)
    return Listener(asked, run, run.outermost(root.name), root.source, partial(so_far.advice, root.kind))
