"""Events of crews."""

from __future__ import annotations

from typing import Any, Literal

from crewlite.events.base import BaseEvent, ErrorFields


class CrewFields(BaseEvent):
    """The fields of all events of a crew."""

    crew_name: str

    @property
    def crew(self) -> Any:
        """The crew, which emits it."""
        return self.source


class CrewKickoffStartedEvent(CrewFields):
    """A crew begins, or is resumed (`resumed`)."""

    type: Literal["crew_kickoff_started"] = "crew_kickoff_started"
    inputs: dict[str, Any]


class CrewKickoffCompletedEvent(CrewFields):
    """A crew's result is recorded."""

    type: Literal["crew_kickoff_completed"] = "crew_kickoff_completed"
    output: Any
    """The CrewOutput."""
    total_tokens: int


class CrewKickoffFailedEvent(CrewFields, ErrorFields):
    """A crew stopped without a result; its finished steps are recorded."""

    type: Literal["crew_kickoff_failed"] = "crew_kickoff_failed"
