"""The events of a step whose kind has no family of events of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crewlite import events
from crewlite.durable import Stamp
from crewlite.kinds import Kind


@dataclass(frozen=True, slots=True)
class PlainVoice:
    """Tells of a step by its kind and name."""

    source: object
    kind: Kind
    name: str
    label: str | None = None

    @property
    def _about(self) -> dict[str, Any]:
        return {"kind": self.kind.name, "name": self.name, "step_type": self.label}

    def started(self, stamp: Stamp) -> events.StepStartedEvent:
        """The event of a start."""
        return events.StepStartedEvent(**stamp, **self._about)

    def completed(self, stamp: Stamp, value: object) -> events.StepCompletedEvent:
        """The event of a recorded outcome."""
        return events.StepCompletedEvent(**stamp, **self._about)

    def failed(self, stamp: Stamp, error: str, error_type: str) -> events.StepFailedEvent:
        """The event of a failure that no retry mends."""
        return events.StepFailedEvent(**stamp, **self._about, error=error, error_type=error_type)
