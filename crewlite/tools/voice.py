"""The events of a call: one that happens, one that is answered with an earlier result, and one that is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from crewlite import events
from crewlite.durable import Stamp
from crewlite.events.base import BaseEvent
from crewlite.ids import now
from crewlite.tools.result import ToolResult


class Made:
    """A call that really happens."""

    def __init__(self, source: object, about: dict[str, Any], in_doubt: bool) -> None:
        self.source = source
        self._about = about
        self._in_doubt = in_doubt
        self._began: datetime = now()

    def started(self, stamp: Stamp) -> BaseEvent:
        """It is made now."""
        self._began = now()
        return stamp(events.ToolUsageStartedEvent, **self._about, in_doubt=self._in_doubt)

    def completed(self, stamp: Stamp, value: ToolResult) -> BaseEvent:
        """It has a result, or what is told instead of one."""
        if value.error:
            return self.failed(stamp, value.reason, value.error)
        return stamp(
            events.ToolUsageFinishedEvent, **self._about, output=value.text, started_at=self._began, finished_at=now()
        )

    def failed(self, stamp: Stamp, error: str, error_type: str) -> BaseEvent:
        """It ended without one."""
        return stamp(events.ToolUsageErrorEvent, **self._about, error=error, error_type=error_type)


class Reused(Made):
    """A call that is answered with an earlier result, or by a person: it starts nothing."""

    def __init__(self, source: object, about: dict[str, Any], *, by_person: bool = False) -> None:
        super().__init__(source, about, in_doubt=False)
        self._how = {"from_person": True} if by_person else {"from_cache": True}

    def started(self, stamp: Stamp) -> None:  # type: ignore[override]
        """Nothing to say."""

    def completed(self, stamp: Stamp, value: ToolResult) -> BaseEvent:
        """The result is its own now."""
        at = now()
        return stamp(
            events.ToolUsageFinishedEvent, **self._about, output=value.text, **self._how, started_at=at, finished_at=at
        )


class Refused:
    """A call that never happens: its one event says why."""

    def __init__(
        self,
        source: object,
        about: dict[str, Any],
        event: type[events.ToolSelectionErrorEvent | events.ToolValidateInputErrorEvent],
    ) -> None:
        self.source, self._about, self._event = source, about, event

    def started(self, stamp: Stamp) -> None:
        """Nothing to say."""

    def completed(self, stamp: Stamp, value: ToolResult) -> BaseEvent:
        """What the model is told instead."""
        return self.failed(stamp, value.text, value.error or "")

    def failed(self, stamp: Stamp, error: str, error_type: str) -> BaseEvent:
        """What the model is told instead."""
        return stamp(self._event, **self._about, error=error)
