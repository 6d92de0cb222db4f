"""Kick off one definition for many inputs, in parallel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from crewlite.concurrency import background
from crewlite.concurrency.permits import width
from crewlite.definitions.definition import check_inputs, in_use
from crewlite.errors import AnswerRefused, ConfigError, InDoubt, Suspended, add_note
from crewlite.kinds import Kind
from crewlite.lazy import lazy
from crewlite.recovery import checks
from crewlite.refs import as_run_id
from crewlite.runtime.kickoffs.engine import kickoff
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.main_thread.sync_bridge import run_sync
from crewlite.texts.resuming import in_shell
from crewlite.texts.secrets import Secrets
from crewlite.texts.tracebacks import INTERRUPTED
from crewlite.texts.wording import cut

if TYPE_CHECKING:
    from crewlite.runtime.kickoffs import chunks
else:
    chunks = lazy("crewlite.runtime.kickoffs.chunks")  # only for definitions with stream=True

R = TypeVar("R")
_SHOWN = 200  # characters of the inputs that a note shows
_NAMED = 3  # calls in doubt that the advice after Ctrl-C names


def kickoff_for_each(definition: Runnable[R], inputs: Sequence[Mapping[str, Any]], **how: Any) -> list[R | Exception]:
    """Run `akickoff_for_each` and block until all runs have ended."""
    begun = list[Progress]()
    work = partial(akickoff_for_each, definition, inputs, begun=begun, **how)
    way_on = partial(how_to_go_on, definition.run_kind, how.get("run_id"), begun)
    return run_sync(definition.run_kind, "kickoff_for_each", work, way_on)


def how_to_go_on(kind: Kind, run_id: str | UUID | None, begun: Sequence[Progress]) -> str:
    """Return advice for the user who has interrupted all runs. `begun`: the progress of some of them."""
    run = next((one for one in begun if one.run_id), None)
    if run is None:
        return "No run had begun: call kickoff_for_each again."
    doubts = (one.advice(kind.name) for one in begun if one.unsettled)
    return "\n".join([*islice(doubts, _NAMED), _way_on(kind, run_id, run)])


def _way_on(kind: Kind, run_id: str | UUID | None, run: Progress) -> str:
    if run.location is None:
        return (
            f"Nothing was saved. To be able to go on, give the {kind} checkpoint=True, and kickoff_for_each a run_id."
        )
    if run_id is not None:
        return f"To go on: call kickoff_for_each again with run_id={str(run_id)!r}"
    return (
        f"The runs are kept in {run.location}: {in_shell('list --runs', run.location)} shows them, and "
        f"{kind}.kickoff(run_id=...) goes on with one. With a run_id, kickoff_for_each can go on with all of them."
    )


async def akickoff_for_each(
    definition: Runnable[R],
    inputs: Sequence[Mapping[str, Any]],
    *,
    run_id: str | UUID | None = None,
    max_concurrency: int | None = None,
    auto_approve: bool | None = None,
    wait: bool = False,
    return_exceptions: bool = False,
    begun: list[Progress] | None = None,
) -> list[R | Exception]:
    """Kick off the definition once for each of `inputs`, at most `max_concurrency` at once; return results in order.

    When all have ended, raises the first failure in this order, with a note that names its inputs. With
    `return_exceptions`, returns the failures in the places of their results instead. With `stream=True` of the
    definition, the results are StreamingOutputs, whose chunks can be read when all have ended.

    `begun`: a list that gets the progress of the first run, and of each run that is interrupted in a call which may
    have taken effect: the advice after an interrupt needs these.
    """
    _check(definition, inputs, max_concurrency)
    name, all_inputs = None if run_id is None else as_run_id(run_id), list(inputs)
    same: Any = {"auto_approve": auto_approve, "wait": wait, "streamed": definition.as_request().streamed}

    def request_for(number: int) -> Request:
        return Request(all_inputs[number], f"{name}.{number}" if name else None, **same)

    for each in all_inputs:  # raises before the first run begins
        check_inputs(each)
    listed: type[list[Any]] = chunks.StreamingOutputs if same["streamed"] else list
    if not all_inputs:
        return listed()
    request_for(len(all_inputs) - 1)  # the one with the longest run id
    results, failures = dict[int, Any](), dict[int, BaseException]()
    begun = [] if begun is None else begun
    root: Root[Any] | None = None

    async def kick_off_one(number: int, request: Request) -> None:
        nonlocal root
        try:
            root = root or definition.as_root(request)
            with _progress_kept(begun, request.progress):
                results[number] = await _kicked_off(definition, request, root)
        except Exception as error:  # raised, or returned, when all have ended
            shown = cut(Secrets.of(*definition.secret_sources()).mask(repr(request.inputs)), _SHOWN)
            add_note(error, f"kickoff_for_each: this was inputs[{number}] of {len(all_inputs)}: {shown}")
            _note_which_run(error, definition.run_kind, request.progress, name)
            failures[number] = error
        except asyncio.CancelledError as error:
            if background.is_cancelled():
                raise
            failures[number] = error  # a signal ended this run

    works = (kick_off_one(number, request_for(number)) for number in range(len(all_inputs)))
    with in_use(definition.relies_on), _advised_on_interrupt(definition.run_kind, run_id, begun):
        await side_by_side(works, min(max_concurrency or width(), len(all_inputs)))
    for _, error in sorted(failures.items()):
        if not return_exceptions or not isinstance(error, Exception):
            raise error
    ended = results | failures
    return listed(ended[number] for number in range(len(all_inputs)))


async def _kicked_off(definition: Runnable[R], request: Request, root: Root[Any]) -> R | chunks.StreamingOutput[R]:
    """Kick off one, and return its result; with stream=True, the stream that has it."""
    if not request.streamed:
        return await kickoff(definition, request, root)
    with chunks.heard(definition, request) as (stream, end):
        end(await kickoff(definition, request, root))
    return stream


@contextlib.contextmanager
def _advised_on_interrupt(kind: Kind, run_id: str | UUID | None, begun: Sequence[Progress]) -> Iterator[None]:
    """Add a note to the cancellation of all runs: how to go on with them."""
    try:
        yield
    except asyncio.CancelledError as error:
        add_note(error, f"{INTERRUPTED}{how_to_go_on(kind, run_id, begun)}")
        raise


@contextlib.contextmanager
def _progress_kept(begun: list[Progress], progress: Progress) -> Iterator[None]:
    """Add the progress of a run to `begun`: of the first run, and of one that the block leaves with calls in doubt."""
    first = not (begun and begun[-1].run_id)
    if first:
        begun.append(progress)
    try:
        yield
    finally:
        if progress.unsettled and not first:
            begun.append(progress)


def _note_which_run(error: Exception, kind: Kind, progress: Progress, name: str | None) -> None:
    """Add a note to an error that asks for an answer or a rerun: which kickoff takes it, as kickoff_for_each cannot."""
    if not isinstance(error, InDoubt | AnswerRefused | Suspended) or progress.location is None or progress.address:
        return
    then = f", then call kickoff_for_each again with run_id={name!r}" if name else ""
    add_note(error, f"To go on with that run: {kind}.kickoff(run_id={progress.run_id!r}, answers= or rerun=){then}")


def _check(definition: Runnable[Any], inputs: object, max_concurrency: object) -> None:
    """Raise ConfigError for a definition, inputs or a limit that kickoff_for_each cannot use."""
    if definition.bound_at is not None:
        kind = definition.run_kind
        raise ConfigError(
            f"This {kind} is bound to one run, but kickoff_for_each starts several: "
            f"call {kind}.bound_to(None).kickoff_for_each(...)"
        )
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable):
        found = "one set of inputs" if isinstance(inputs, Mapping) else repr(inputs)
        raise ConfigError(f"inputs is {found}; wanted a list of them, one for each run: kickoff_for_each([{{...}}])")
    checks.whole_or_none("kickoff_for_each", 1, max_concurrency=max_concurrency)


async def side_by_side(works: Iterable[Awaitable[None]], width: int) -> None:
    """Await all works, at most `width` at once. When all have ended, raise the first failure.

    Takes each work from the iterable only when it can begin, so that waiting ones take no memory. The works share
    `width` tasks, and with them their context variables: pass a work that runs code of users as a task of its own.
    """
    waiting, failures = iter(works), list[Exception]()

    async def one_by_one() -> None:
        me = asyncio.current_task()
        assert me
        while not me.cancelling() and (work := next(waiting, None)):  # despite a cancellation a work may return
            try:
                await work
            except asyncio.CancelledError:
                if me.cancelling():
                    raise
            except Exception as error:  # raised when all have ended
                failures.append(error)

    running = [asyncio.ensure_future(one_by_one()) for _ in range(width)]
    try:
        await asyncio.wait(running)
    finally:
        for task in running:  # if the caller is cancelled
            task.cancel()
        await asyncio.wait(running)
    if failures:
        raise failures[0]
