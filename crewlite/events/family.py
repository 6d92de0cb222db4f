"""Which events a step emits (`durable.StepEvents`): those of a family of its kind, those of plain steps, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from crewlite import events
from crewlite.durable import Said
from crewlite.kinds import Kind

Family = tuple[type[Any] | None, type[Any] | None, type[Any] | None]
"""The events of a start, an outcome and a final failure, after which there is no retry; None where none is emitted."""
_PLAIN: Family = events.StepStartedEvent, events.StepCompletedEvent, events.StepFailedEvent


class FamilyEvents(NamedTuple):
    """The events of one family, which share the fields `about`."""

    source: object
    family: Family
    about: Mapping[str, Any]
    of_start: Callable[[], Mapping[str, Any]] = dict
    """Returns further fields of the event of a start."""
    of_outcome: Callable[[Any], Mapping[str, Any]] = lambda value: {}
    """Returns further fields of the event of an outcome."""

    @classmethod
    def plain(cls, source: object, kind: Kind, name: str | None = None, label: str | None = None) -> FamilyEvents:
        """Return events that name a step by its kind and name. `label`: the kind of work, as its author calls it.

        The name is that of the kind by default.
        """
        return cls(source, _PLAIN, {"kind": kind.name, "name": name or kind.name, "step_type": label})

    @classmethod
    def silent(cls, source: object) -> FamilyEvents:
        """Return no events: those of the steps inside, or of the enclosing step, suffice."""
        return cls(source, (None, None, None), {})

    def started(self) -> Said:
        """Return the event of a start."""
        event = self.family[0]
        return None if event is None else (event, {**self.about, **self.of_start()})

    def completed(self, value: object) -> Said:
        """Return the event of a recorded outcome."""
        event = self.family[1]
        return None if event is None else (event, {**self.about, **self.of_outcome(value)})

    def failed(self, error: str, error_type: str) -> Said:
        """Return the event of a final failure."""
        event = self.family[2]
        return None if event is None else (event, {**self.about, "error": error, "error_type": error_type})
