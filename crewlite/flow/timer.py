"""A timer that keeps its end across crashes and resumes."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from crewlite import background, codec, durable, events, kinds
from crewlite.durable import Stamp, Step
from crewlite.errors import ConfigError
from crewlite.ids import now
from crewlite.runtime.steps.future import Awaited, requested


def sleep_for(seconds: float) -> Any:
    """Wait for this many seconds. On an event loop, await the call.

    The end of the wait is recorded before the wait begins, so a resumed run waits only for the time that is left.
    Outside a run it is a plain wait. Raises ConfigError unless `seconds` is a number, 0 or more.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ConfigError(f"sleep_for({seconds!r}): wanted a number of seconds, 0 or more")
    scope = durable.scope()
    if scope.loop is None:
        return _wait(now() + timedelta(seconds=seconds))
    return requested(scope, _timer(seconds), "sleep_for(...)", _wait)


def _timer(seconds: float) -> Step[datetime]:
    async def until() -> datetime:
        return now() + timedelta(seconds=seconds)

    return Step(
        kind=kinds.TIMER,
        name=None,
        work=until,
        question=[seconds],
        voice=_Voice(),
        encode=codec.encode,
        decode=codec.decode,
        placeholder=now,
    )


def _wait(until: datetime) -> Any:
    """Wait until a time; on an event loop, return an awaitable instead."""
    if background.running_loop():
        return Awaited("sleep_for(...)", asyncio.sleep(_left(until)))
    time.sleep(_left(until))
    return None


def _left(until: datetime) -> float:
    return 0.0 if durable.scope().dry else max(0.0, (until - now()).total_seconds())


@dataclass(frozen=True, slots=True)
class _Voice:
    source: object = sleep_for

    def started(self, stamp: Stamp) -> None:
        return None

    def completed(self, stamp: Stamp, value: datetime) -> events.StepCompletedEvent:
        return stamp(events.StepCompletedEvent, kind="timer", name="timer")

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.StepFailedEvent:
        return stamp(events.StepFailedEvent, kind="timer", name="timer", error=error, error_type=error_type)
