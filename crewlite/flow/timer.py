"""A timer that keeps its end across crashes and resumes."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import datetime
from functools import partial
from typing import Any

from crewlite import background, codec, durable, events, kinds
from crewlite.durable import Step
from crewlite.errors import ConfigError
from crewlite.events.voice import Voice
from crewlite.ids import after, now
from crewlite.runtime.steps.future import Awaited, requested

_EVENTS = None, events.StepCompletedEvent, events.StepFailedEvent


def sleep_for(seconds: float) -> Any:
    """Wait for this many seconds. On an event loop, await the call.

    The end of the wait is recorded before the wait begins, so a resumed run waits only for the time that is left:
    never for more than `seconds`, also where the clock has been set back meanwhile.
    Outside a run it is a plain wait. Raises ConfigError unless `seconds` is a number, 0 or more.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ConfigError(f"sleep_for({seconds!r}): wanted a number of seconds, 0 or more")
    scope = durable.scope()
    if scope.loop is None:
        return _wait(seconds, after(now(), seconds))
    return requested(scope, _timer(seconds), "sleep_for(...)", partial(_wait, seconds))


def _timer(seconds: float) -> Step[datetime]:
    async def until() -> datetime:
        return after(now(), seconds)

    return Step(
        kind=kinds.TIMER,
        name=None,
        work=until,
        question=[seconds],
        voice=Voice(sleep_for, _EVENTS, {"kind": kinds.TIMER.name, "name": kinds.TIMER.name}),
        encode=codec.encode,
        decode=codec.decode,
        placeholder=now,
    )


def _wait(seconds: float, until: datetime) -> Any:
    """Wait until a time, at most this many seconds; on an event loop, return an awaitable instead."""
    left = 0.0 if durable.scope().dry else min(max(0.0, (until - now()).total_seconds()), seconds)
    if background.running_loop():
        return Awaited("sleep_for(...)", asyncio.sleep(left))
    time.sleep(left)
    return None
