"""Events of flows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from crewlite.events.base import BaseEvent, ErrorFields
from crewlite.usage import Usage


class _FlowEvent(BaseEvent):
    flow_name: str


class FlowCreatedEvent(_FlowEvent):
    """A flow of methods was made; it has not been kicked off."""

    type: Literal["flow_created"] = "flow_created"


class FlowPlotEvent(_FlowEvent):
    """The page of a flow of methods was written, with its graph or with one of its runs."""

    type: Literal["flow_plot"] = "flow_plot"


class FlowStartedEvent(_FlowEvent):
    """A flow begins, or is resumed (`resumed`)."""

    type: Literal["flow_started"] = "flow_started"
    inputs: dict[str, Any]


class FlowFinishedEvent(_FlowEvent):
    """A flow's result is recorded."""

    type: Literal["flow_finished"] = "flow_finished"
    result: Any
    state: dict[str, Any] | None = None
    """The state that a flow of methods has left; None for a function."""
    usage: Usage = Field(default_factory=Usage)
    """The usage of everything inside the flow, including earlier kickoffs of the run."""


class FlowFailedEvent(_FlowEvent, ErrorFields):
    """A flow failed; its run can be resumed."""

    type: Literal["flow_failed"] = "flow_failed"


class FlowPausedEvent(_FlowEvent):
    """A flow waits for people and is suspended. `waiting` has the questions, by address."""

    type: Literal["flow_paused"] = "flow_paused"
    waiting: dict[str, str]


class _MethodEvent(_FlowEvent):
    method_name: str
    trigger: str | None = None
    """The method or label that has started it; None at the beginning of the flow."""


class MethodExecutionStartedEvent(_MethodEvent):
    """A method of a flow begins, or is resumed (`resumed`). `params` are its arguments by name."""

    type: Literal["method_execution_started"] = "method_execution_started"
    params: dict[str, Any]


class MethodExecutionFinishedEvent(_MethodEvent):
    """The result of a method of a flow is recorded, with its changes of the state."""

    type: Literal["method_execution_finished"] = "method_execution_finished"
    result: Any


class MethodExecutionFailedEvent(_MethodEvent, ErrorFields):
    """A method of a flow failed, and no retry is left; the run can be resumed."""

    type: Literal["method_execution_failed"] = "method_execution_failed"


class MethodExecutionPausedEvent(_MethodEvent):
    """A method of a flow waits for people. `waiting` has the questions, by address."""

    type: Literal["method_execution_paused"] = "method_execution_paused"
    waiting: dict[str, str]


class HumanFeedbackRequestedEvent(BaseEvent):
    """A run asks a person; the question is recorded. `options` is the JSON schema of the answer, if there is one."""

    type: Literal["human_feedback_requested"] = "human_feedback_requested"
    question: str
    options: Any = None
    flow_name: str | None = None
    """The flow of methods that asks."""
    method_name: str | None = None
    message: str | None = None
    """Of `@human_feedback`: its message, without the output."""
    output: Any = None
    """Of `@human_feedback`: what the method has returned."""
    emit: tuple[str, ...] = ()
    """Of `@human_feedback`: the outcomes that the feedback may come to."""
    metadata: dict[str, Any] = Field(default_factory=dict)


class HumanFeedbackReceivedEvent(BaseEvent):
    """A person's answer is recorded. `automatic`: `auto_approve` has answered, and nobody was asked.

    `answer` is None if nobody has answered in time.
    """

    type: Literal["human_feedback_received"] = "human_feedback_received"
    question: str
    answer: Any
    automatic: bool = False
    flow_name: str | None = None
    """The flow of methods that has asked."""
    method_name: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class FlowInputRequestedEvent(HumanFeedbackRequestedEvent):
    """A method of a flow asks a person with `self.ask`. Handlers of human_feedback_requested hear it, too."""

    type: Literal["flow_input_requested"] = "flow_input_requested"  # type: ignore[assignment]  # a name of its own


class FlowInputReceivedEvent(HumanFeedbackReceivedEvent):
    """The answer to `self.ask` is recorded. Handlers of human_feedback_received hear it, too."""

    type: Literal["flow_input_received"] = "flow_input_received"  # type: ignore[assignment]  # a name of its own
