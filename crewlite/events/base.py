"""The base of all events: frozen plain data that says when, in which run and at which step something happened."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, get_origin

from pydantic import BaseModel, ConfigDict, Field

from crewlite.coming_from import Hinting
from crewlite.ids import new_id, now


class EventNote(NamedTuple):
    """What the record holds of an event. If no handler receives an event, only its note is made."""

    type: str
    event_id: str
    time: str
    """In UTC, in ISO 8601."""
    address: str


class BaseEvent(Hinting, BaseModel):
    """The base class of all events. A handler that subscribes to it receives every event."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    __slots__ = ("_source",)

    fleeting: ClassVar[bool] = False
    """Whether it is delivered to handlers but never recorded. It creates a checkpoint only if `on_events` lists it by
    name."""

    type: str = "event"
    """The name of the event, as `on_events` takes it."""
    event_id: str = Field(default_factory=new_id)
    """Greater than the id of every event that this process made before."""
    timestamp: datetime = Field(default_factory=now)
    """Aware, in UTC."""
    run_id: str | None = None
    """The run it happened in."""
    branch: str | None = None
    """The branch of that run."""
    seq: int | None = None
    """The number of the commit that records it; None for a start, which is recorded with the next commit."""
    address: str | None = None
    """The step it is about; "" is the root: the crew, flow or lone agent itself."""
    parent_event_id: str | None = None
    """The event of the enclosing step's start."""
    started_event_id: str | None = None
    """On an end: the event of the step's start."""
    source_id: str | None = None
    """The address of the step that emits it."""
    source_name: str | None = None
    """The name of that step."""
    resumed: bool = False
    """On a start: an earlier kickoff of this run began the step already."""

    @property
    def noted(self) -> EventNote:
        """What the record holds of it."""
        return EventNote(self.type, self.event_id, self.timestamp.isoformat(), self.address or "")

    @property
    def source(self) -> Any:
        """What emits it, which is no part of its data: neither compared nor serialised. None in a copy of the event."""
        return getattr(self, "_source", None)

    def emitted_by(self, source: object) -> None:
        """Set what emits it."""
        object.__setattr__(self, "_source", source)


class ErrorFields(BaseEvent):
    """The fields of all events that tell of an error."""

    error: str
    error_type: str


_NUMBERS = (bool, int, float, datetime)


@cache
def type_of(event: type[BaseEvent]) -> str:
    """Return the name of a class of events, as `on_events` takes it."""
    name: str = event.model_fields["type"].default
    return name


@cache
def open_fields(event: type[BaseEvent]) -> tuple[str, ...]:
    """Return the fields of a class of events that may hold texts of users, and so a secret.

    The others are numbers and times, the words of a vocabulary, and what says where an event belongs.
    """
    closed = BaseEvent.model_fields.keys() - {"source_name"} | {"kind"}
    fields = event.model_fields.items()
    return tuple(
        name
        for name, field in fields
        if name not in closed and field.annotation not in _NUMBERS and get_origin(field.annotation) is not Literal
    )
