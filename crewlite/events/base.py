"""What every event is: a frozen fact, made of plain data, that says when and where in which run it happened."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from crewlite.ids import new_id, now


class BaseEvent(BaseModel):
    """The root of all events: subscribing to it hears everything."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    type: str = "event"
    event_id: str = Field(default_factory=new_id)
    timestamp: datetime = Field(default_factory=now)
    run_id: str | None = None
    branch: str | None = None
    seq: int | None = None
    """The commit this fact is part of; None for a start, which rides with the next commit."""
    address: str | None = None
    parent_event_id: str | None = None
    """The start of the enclosing step."""
    triggered_by_event_id: str | None = None
    started_event_id: str | None = None
    """On an end: the event of the start."""
    source_id: str | None = None
    source_name: str | None = None
    resumed: bool = False
    """On a start: the step was begun before, in an earlier life of this run."""
