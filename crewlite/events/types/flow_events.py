"""Events of flows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from crewlite.events.base import BaseEvent
from crewlite.usage import Usage


class _FlowEvent(BaseEvent):
    flow_name: str


class FlowStartedEvent(_FlowEvent):
    """A flow begins, or is resumed (`resumed`)."""

    type: Literal["flow_started"] = "flow_started"
    inputs: dict[str, Any]


class FlowFinishedEvent(_FlowEvent):
    """A flow's result is recorded."""

    type: Literal["flow_finished"] = "flow_finished"
    result: Any
    usage: Usage = Field(default_factory=Usage)
    """The usage of everything inside the flow, including earlier kickoffs of the run."""


class FlowFailedEvent(_FlowEvent):
    """A flow failed; its run can be resumed."""

    type: Literal["flow_failed"] = "flow_failed"
    error: str
    error_type: str


class FlowPausedEvent(_FlowEvent):
    """A flow waits for people and is suspended. `waiting` has the questions, by address."""

    type: Literal["flow_paused"] = "flow_paused"
    waiting: dict[str, str]


class HumanFeedbackRequestedEvent(BaseEvent):
    """A run asks a person; the question is recorded. `options` is the JSON schema of the answer, if there is one."""

    type: Literal["human_feedback_requested"] = "human_feedback_requested"
    question: str
    options: Any = None


class HumanFeedbackReceivedEvent(BaseEvent):
    """A person's answer is recorded. `automatic`: `auto_approve` has answered, and nobody was asked."""

    type: Literal["human_feedback_received"] = "human_feedback_received"
    question: str
    answer: Any
    automatic: bool = False
