"""Typed events on one central bus. A family of event classes is imported when one of its classes is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewlite.coming_from import missing_import
from crewlite.coming_from.modules import elsewhere
from crewlite.events.base import BaseEvent
from crewlite.events.registry import CheckpointEventType, EventType, find, load

if TYPE_CHECKING:  # all events, for editors and type checkers
    from crewlite.events.event_bus import BaseEventListener as BaseEventListener
    from crewlite.events.types.agent_events import *
    from crewlite.events.types.checkpoint_events import *
    from crewlite.events.types.crew_events import *
    from crewlite.events.types.flow_events import *
    from crewlite.events.types.guardrail_events import *
    from crewlite.events.types.llm_events import *
    from crewlite.events.types.logging_events import *
    from crewlite.events.types.progress_events import *
    from crewlite.events.types.reasoning_events import *
    from crewlite.events.types.recovery_events import *
    from crewlite.events.types.signal_events import *
    from crewlite.events.types.step_events import *
    from crewlite.events.types.task_events import *
    from crewlite.events.types.tool_events import *

__all__ = ["BaseEvent", "CheckpointEventType", "EventType"]


def __getattr__(name: str) -> Any:
    if name.endswith("Event") and (found := find(name)):
        globals()[name] = found
        return found
    if (found := elsewhere("crewlite.events", name)) is not None:
        return found
    raise missing_import("crewlite.events", name) or AttributeError(f"crewlite.events has no {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *load()])
