"""A run told to another process: one JSON line when a step begins, one when it is recorded or reused."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.events.types.crew_events import CrewKickoffCompletedEvent
from crewlite.events.types.llm_events import LLMCallCompletedEvent, LLMCallStartedEvent
from crewlite.events.types.step_events import StepReplayedEvent
from crewlite.events.types.task_events import TaskCompletedEvent
from crewlite.events.types.tool_events import ToolUsageErrorEvent, ToolUsageFinishedEvent, ToolUsageStartedEvent

_BEGINNINGS = (LLMCallStartedEvent, ToolUsageStartedEvent)
_ENDS = (
    LLMCallCompletedEvent,
    ToolUsageFinishedEvent,
    ToolUsageErrorEvent,
    TaskCompletedEvent,
    CrewKickoffCompletedEvent,
)


@contextlib.contextmanager
def told(pace: float) -> Iterator[None]:
    """Tell the runs in the block on stdout. Each call waits `pace` seconds, so that there is something to watch."""
    with contextlib.ExitStack() as subscriptions:
        for cls in _BEGINNINGS:
            subscriptions.enter_context(event_bus.on(cls, lambda _, event: _begun(event, pace)))
        for end in _ENDS:
            subscriptions.enter_context(event_bus.on(end, lambda _, event: _tell("ran", event)))
        subscriptions.enter_context(event_bus.on(StepReplayedEvent, lambda _, event: _tell("reused", event)))
        yield


def _begun(event: BaseEvent, pace: float) -> None:
    _tell("begun", event)
    time.sleep(pace)


def _tell(what: str, event: BaseEvent) -> None:
    print(json.dumps({"what": what, "address": event.address}), flush=True)
