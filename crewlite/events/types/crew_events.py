"""Events of crews."""

from __future__ import annotations

from typing import Any, Literal

from crewlite.events.base import BaseEvent


class _CrewEvent(BaseEvent):
    crew_name: str


class CrewKickoffStartedEvent(_CrewEvent):
    """A crew begins, or is resumed (`resumed`)."""

    type: Literal["crew_kickoff_started"] = "crew_kickoff_started"
    inputs: dict[str, Any]


class CrewKickoffCompletedEvent(_CrewEvent):
    """A crew's result is recorded."""

    type: Literal["crew_kickoff_completed"] = "crew_kickoff_completed"
    output: Any
    """The CrewOutput."""
    total_tokens: int


class CrewKickoffFailedEvent(_CrewEvent):
    """A crew stopped without a result; its finished steps are recorded."""

    type: Literal["crew_kickoff_failed"] = "crew_kickoff_failed"
    error: str
    error_type: str
