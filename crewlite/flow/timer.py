"""Timers that keep their end across crashes and resumes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from crewlite import durable, events, kinds
from crewlite.concurrency import background
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.errors import ConfigError
from crewlite.events.family import FamilyEvents
from crewlite.ids import after, now
from crewlite.runtime.steps.future import Awaited, requested
from crewlite.system.steady_clock import steady

_LOOK = 0.5  # seconds between two looks whether the step was cut
_EVENTS = None, events.StepCompletedEvent, events.StepFailedEvent


def sleep_for(seconds: float | timedelta) -> Any:
    """Wait for this many seconds, or this timedelta. On an event loop, await the call.

    The end of the wait is recorded before the wait begins, so a resumed run waits only for the time that is left: never
    for more than `seconds`, even if the clock was set back meanwhile. For a time below 0 there is no wait, as when a
    run is resumed after a fixed moment that it waits for. Outside a run it is a plain wait. Raises ConfigError unless
    `seconds` is a finite number or a timedelta.
    """
    found = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < math.inf:
        raise ConfigError(f"sleep_for({seconds!r}): wanted a number of seconds, or a timedelta")
    left = max(found, 0)  # max() returns the first of equal ones: 0.0 stays 0.0, as earlier releases recorded it
    return _requested(sleep_for, left, lambda: after(now(), left), at_most=left)


def sleep_until(moment: datetime) -> Any:
    """Wait until this moment, an aware datetime. On an event loop, await the call.

    For a moment in the past there is no wait. The moment is the step's question, so use this for a fixed moment:
    `sleep_for(moment - datetime.now(UTC))` would be another question at each resume. Outside a run it is a plain wait.
    Raises ConfigError unless `moment` is a datetime with a time zone.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ConfigError(f"sleep_until({moment!r}): wanted a datetime with a time zone, such as datetime.now(UTC)")
    until = moment.astimezone(UTC)
    return _requested(sleep_until, until.isoformat(), lambda: min(until, after(now(), math.inf)))


def _requested(verb: Callable[..., Any], asked: Json, end: Callable[[], datetime], at_most: float = math.inf) -> Any:
    """Request the step that waits until `end()`, at most `at_most` seconds. `verb`: the function of the user's call."""
    scope, label = durable.scope(), f"{verb.__name__}(...)"
    wait = partial(_wait, label, at_most)
    return wait(end()) if scope.loop is None else requested(scope, _timer(verb, asked, end), label, wait)


def _timer(verb: Callable[..., Any], asked: Json, end: Callable[[], datetime]) -> Step[datetime]:
    async def until() -> datetime:
        return end()

    return Step(
        kind=kinds.TIMER,
        name=None,
        work=until,
        question=[asked],
        events=FamilyEvents(verb, _EVENTS, {"kind": kinds.TIMER.name, "name": kinds.TIMER.name}),
        encode=codec.encode,
        decode=codec.decode,
        placeholder=now,
    )


def _wait(label: str, at_most: float, until: datetime) -> Any:
    """Wait until a time, at most this many seconds; on an event loop, return an awaitable instead."""
    left = 0.0 if durable.scope().dry else min(max(0.0, (until - now()).total_seconds()), at_most)
    if background.running_loop():
        return Awaited(label, asyncio.sleep(left))
    _sleep(left)
    return None


def _sleep(left: float) -> None:
    """Block for this many seconds. Raises CancelledError once the running step was cut, so that its thread ends."""
    scope, until = durable.scope(), steady() + left
    while (left := until - steady()) > 0:
        if scope.is_cut:
            raise concurrent.futures.CancelledError
        time.sleep(min(left, _LOOK))
