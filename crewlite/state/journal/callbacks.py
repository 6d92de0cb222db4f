"""Callbacks of those who wait for a commit, each on the event loop of its run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

log = logging.getLogger("crewlite.state")
Done = Callable[[BaseException | None], None]
"""Called with None once all is written, or with the error if it was not."""


def call_back(waiting: Iterable[tuple[Done, asyncio.AbstractEventLoop | None]], error: BaseException | None) -> None:
    """Call each: on its event loop, or on this thread if it has none."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Done]] = {}
    here: list[Done] = []  # list[Done]() takes as long as the rest of this
    for done, loop in waiting:
        (by_loop.setdefault(loop, []) if loop else here).append(done)
    for its_loop, dones in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nothing awaits them
            its_loop.call_soon_threadsafe(_call_all, dones, error)
    if here:
        _call_all(here, error)  # last, as it may take time


def _call_all(dones: list[Done], error: BaseException | None) -> None:
    for done in dones:
        try:
            done(error)
        except Exception:  # a mistake of crewlite: the other runs, which wait for theirs, hear of their commits
            log.exception("what was to follow a commit has failed")
