"""Build the events of a step: those of a family that its kind has, else those of plain steps, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crewlite import events
from crewlite.durable import Stamp
from crewlite.kinds import Kind


@dataclass(frozen=True, slots=True)
class Silent:
    """Emits no events, because those of the steps inside it, or of the enclosing step, suffice."""

    source: object

    def started(self, stamp: Stamp) -> None:
        """No event."""

    def completed(self, stamp: Stamp, value: object) -> None:
        """No event."""

    def failed(self, stamp: Stamp, error: str, error_type: str) -> None:
        """No event."""


@dataclass(frozen=True, slots=True)
class FamilyVoice:
    """Builds the events of one family, which share the fields `about`."""

    source: object
    family: tuple[type[Any], type[Any], type[Any]]
    """The events of a start, an outcome and a final failure."""
    about: Mapping[str, Any]
    begun: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the event of the start."""
    told: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    """Returns further fields of the event of an outcome."""

    def started(self, stamp: Stamp) -> Any:
        """Build the event of a start."""
        return stamp(self.family[0], **self.about, **self.begun)

    def completed(self, stamp: Stamp, value: object) -> Any:
        """Build the event of a recorded outcome."""
        return stamp(self.family[1], **self.about, **self.told(value))

    def failed(self, stamp: Stamp, error: str, error_type: str) -> Any:
        """Build the event of a final failure, after which there is no retry."""
        return stamp(self.family[2], **self.about, error=error, error_type=error_type)


class PlainVoice(NamedTuple):
    """Builds events that name a step by its kind and name."""

    source: object
    kind: Kind
    name: str
    label: str | None = None

    @property
    def _about(self) -> dict[str, Any]:
        return {"kind": self.kind.name, "name": self.name, "step_type": self.label}

    def started(self, stamp: Stamp) -> events.StepStartedEvent:
        """Build the event of a start."""
        return stamp(events.StepStartedEvent, **self._about)

    def completed(self, stamp: Stamp, value: object) -> events.StepCompletedEvent:
        """Build the event of a recorded outcome."""
        return stamp(events.StepCompletedEvent, **self._about)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.StepFailedEvent:
        """Build the event of a final failure, after which there is no retry."""
        return stamp(events.StepFailedEvent, **self._about, error=error, error_type=error_type)
