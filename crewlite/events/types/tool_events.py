"""Events of tool calls."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from crewlite.events.base import BaseEvent, ErrorFields


class _ToolEvent(BaseEvent):
    tool_name: str
    tool_args: dict[str, Any]
    tool_class: str | None = None
    agent_role: str | None = None


class ToolUsageStartedEvent(_ToolEvent):
    """A tool is about to be called. `in_doubt`: an earlier kickoff of the run may have made this call already."""

    type: Literal["tool_usage_started"] = "tool_usage_started"
    in_doubt: bool = False


class ToolUsageFinishedEvent(_ToolEvent):
    """A tool's result is recorded. No call was made if it is `from_cache` (an earlier one) or `from_person`.

    Nor was one if it is `reused_from` a call with effect="once" that was made before.
    """

    type: Literal["tool_usage_finished"] = "tool_usage_finished"
    output: str
    from_cache: bool = False
    from_person: bool = False
    reused_from: str | None = None
    started_at: datetime
    finished_at: datetime


class ToolUsageErrorEvent(_ToolEvent, ErrorFields):
    """A tool call ended without a result. The message that the agent gets instead is recorded.

    If `reused_from` is set, no call was made: it was made before, and failed with this error.
    """

    type: Literal["tool_usage_error"] = "tool_usage_error"
    reused_from: str | None = None


class ToolExecutionErrorEvent(_ToolEvent, ErrorFields):
    """A tool's own code raised. Followed by `tool_usage_error`."""

    type: Literal["tool_execution_error"] = "tool_execution_error"
    traceback: str


class ToolValidateInputErrorEvent(_ToolEvent):
    """The arguments do not fit the tool's schema; the tool was not called."""

    type: Literal["tool_validate_input_error"] = "tool_validate_input_error"
    error: str


class ToolSelectionErrorEvent(_ToolEvent):
    """The model asked for a tool that its agent does not have or may not call now: `error` says why."""

    type: Literal["tool_selection_error"] = "tool_selection_error"
    error: str
