"""Events of conversations that do not fit their model any more."""

from __future__ import annotations

from typing import Literal

from crewlite.events.base import BaseEvent


class _ContextEvent(BaseEvent):
    agent_role: str


class ContextWindowSummarizationStartedEvent(_ContextEvent):
    """A model said that a conversation does not fit, and is asked to summarise it."""

    type: Literal["context_window_summarization_started"] = "context_window_summarization_started"
    messages: int
    """The number of messages that the summary takes the place of."""


class ContextWindowSummarizationCompletedEvent(_ContextEvent):
    """The summary is recorded, and the conversation goes on with it."""

    type: Literal["context_window_summarization_completed"] = "context_window_summarization_completed"
    summary: str


class ContextWindowSummarizationFailedEvent(_ContextEvent):
    """There is no summary, as the model could not be asked, or even parts of the conversation do not fit."""

    type: Literal["context_window_summarization_failed"] = "context_window_summarization_failed"
    error: str
    error_type: str
