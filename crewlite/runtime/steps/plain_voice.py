"""Build the events of a step whose kind has no family of events of its own."""

from __future__ import annotations

from dataclasses import dataclass
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
