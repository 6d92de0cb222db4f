"""Typed events on one central bus. A family of event classes is imported when one of its classes is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewlite.events.registry import CheckpointEventType as CheckpointEventType, EventType as EventType, find, load
from crewlite.lazy import first_use

if TYPE_CHECKING:  # all events, for editors and type checkers
    from crewlite.events.base import BaseEvent as BaseEvent
    from crewlite.events.event_bus import BaseEventListener as BaseEventListener
    from crewlite.events.types.agent_events import *
    from crewlite.events.types.checkpoint_events import *
    from crewlite.events.types.crew_events import *
    from crewlite.events.types.flow_events import *
    from crewlite.events.types.guardrail_events import *
    from crewlite.events.types.knowledge_events import *
    from crewlite.events.types.llm_events import *
    from crewlite.events.types.logging_events import *
    from crewlite.events.types.progress_events import *
    from crewlite.events.types.reasoning_events import *
    from crewlite.events.types.recovery_events import *
    from crewlite.events.types.signal_events import *
    from crewlite.events.types.step_events import *
    from crewlite.events.types.task_events import *
    from crewlite.events.types.tool_events import *
    from crewlite.events.types.trial_events import *

_NAMES = {"events.base": "BaseEvent", "events.event_bus": "BaseEventListener CrewAIEventsBus crewai_event_bus"}
_other = first_use("crewlite.events", _NAMES, complete=False)[1]


def __getattr__(name: str) -> Any:
    if name == "__all__":  # for `from crewlite.events import *`, which imports every family
        return sorted([*load(), "BaseEventListener", "CheckpointEventType", "EventType"])
    if name.endswith("Event") and (found := find(name)):
        globals()[name] = found
        return found
    return _other(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *load()])
