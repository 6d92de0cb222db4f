"""Warn, once, of the runs that the end of this program interrupts, and say how to go on with each.

A run that `submit` has begun works on a thread that ends with the program. A run that is awaited on an event loop of
the program stops with that loop: Ctrl-C in `loop.run_until_complete` ends the loop and cancels nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from collections.abc import Callable, Iterator

from crewlite.errors import CrewliteError
from crewlite.runtime.kickoffs.request import Progress
from crewlite.state.format.record import Record
from crewlite.state.providers.base import declares
from crewlite.texts.logs import logger
from crewlite.texts.wording import number_of

log = logger("crewlite.run")
_submitted: dict[object, Callable[[], str]] = {}
_awaited: dict[object, Callable[[], str]] = {}
"""For each run that has not ended, in the order of their beginnings: what returns the text to log about it."""
_cancelled: dict[object, str] = {}
"""The text about each run that was cancelled on an event loop of the program since the last run began there."""
_ENDING = 10.0  # seconds that Ctrl-C may take to end a loop; a loop that runs longer has survived the cancellation


def submitted(left_behind: Callable[[], str]) -> Callable[[], object]:
    """Warn of a run until the returned callable is called.

    `left_behind` returns the text for the case that the program ends now; "" if there is nothing to warn of.
    """
    key = object()
    _submitted[key] = left_behind
    return lambda: _submitted.pop(key, None)


@contextlib.contextmanager
def awaited(name: str, progress: Progress, how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """Warn of a run while the block, which awaits it on an event loop of the program, has not ended.

    `name`: the kind and name of its definition.
    """
    process, key, loop = os.getpid(), object(), asyncio.get_running_loop()
    _cancelled.clear()

    def left_behind() -> str:
        if os.getpid() != process or (loop.is_closed() and _has_ended(progress)):
            return ""
        return sentence_about(named(name, progress.run_id), progress, how_to_go_on)

    _awaited[key] = left_behind
    try:
        yield
    except asyncio.CancelledError:
        _cancelled[key] = left_behind()
        asyncio.get_running_loop().call_later(_ENDING, _cancelled.pop, key, None)
        raise
    finally:
        _awaited.pop(key, None)


def cancelled() -> list[str]:
    """Return the texts about the runs that were just cancelled on an event loop of the program.

    After Ctrl-C these are the runs that `asyncio.run` has cancelled, whichever tasks of the program awaited them.
    """
    return list(filter(None, _cancelled.values()))


def named(name: str, run_id: str | None) -> str:
    """Return the name of a run in messages: "Run 'order-7' of crew 'crew'"."""
    return f"Run {run_id!r} of {name}" if run_id else f"A run of {name}"


def sentence_about(what: str, progress: Progress, how_to_go_on: Callable[[], str]) -> str:
    """Return the sentence about one run: which it is, and how to go on with it."""
    lost = progress.target is not None and declares(progress.target.provider, "in_memory")
    return f"{what}: {'Its record was in memory only.' if lost else how_to_go_on()}"


def is_finished(progress: Progress) -> bool:
    """Return whether the record of a run says that it has finished."""
    return _recorded(progress).finished


def _has_ended(progress: Progress) -> bool:
    """Return whether a later kickoff has ended a run whose event loop was closed."""
    record = _recorded(progress)
    return record.finished or record.failed or record.cancelled


def _recorded(progress: Progress) -> Record:
    """Read the record of a run. Returns an empty record, as of an interrupted run, if it cannot be read."""
    with contextlib.suppress(CrewliteError, OSError):
        if target := progress.target:
            return target.record()
    return Record()


@atexit.register
def _warn() -> None:
    """Warn of the runs that have not ended. Called before the background loop halts."""
    waited = "it has submitted: wait for the result() of a handle to prevent that"
    for how, runs in ((waited, _submitted), ("it awaits", _awaited)):
        if left := [sentence for left_behind in [*runs.values()] if (sentence := left_behind())]:
            said = "This program ends before %s that %s. %s"
            log.warning(said, number_of(len(left), "run"), how, "; ".join(left))
