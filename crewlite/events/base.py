"""What every event is: a frozen fact, made of plain data, that says when and where in which run it happened."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from crewlite.ids import new_id, now


class BaseEvent(BaseModel):
    """The root of all events: subscribing to it hears everything."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    fleeting: ClassVar[bool] = False
    """Heard and not kept: no history holds it, and it names a checkpoint only for who names it in `on_events`."""

    type: str = "event"
    """Its name: what `on_events` takes."""
    event_id: str = Field(default_factory=new_id)
    """Greater than that of every event this process made before."""
    timestamp: datetime = Field(default_factory=now)
    """Aware, in UTC."""
    run_id: str | None = None
    """The run it happened in."""
    branch: str | None = None
    """The branch of that run."""
    seq: int | None = None
    """The commit this fact is part of; None for a start, which is recorded with the next commit."""
    address: str | None = None
    """The step it is about; "" is the crew or lone agent itself."""
    parent_event_id: str | None = None
    """The start of the enclosing step."""
    started_event_id: str | None = None
    """On an end: the event of the start."""
    source_id: str | None = None
    """The address of the step that speaks."""
    source_name: str | None = None
    """What that step is called."""
    resumed: bool = False
    """On a start: the step was begun before, in an earlier life of this run."""
