"""The record of a failed attempt: its error, what its code has reported, and the remedy that followed."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from crewlite.state.format.fields import Text
from crewlite.usage import UsageRecord


class ErrorRecord(TypedDict):
    """The failure of an attempt."""

    type: Text
    message: Text
    traceback: Text
    cause: NotRequired[Text | None]
    causes: NotRequired[list[Text]]
    failure: Text
    final: bool
    remedy: NotRequired[RemedyRecord]
    for_author: NotRequired[bool]
    holds: NotRequired[int]
    model: NotRequired[Text]
    """Of a model call: the model that was asked."""
    usage: NotRequired[UsageRecord]
    """Of a model call: the usage of its reply, which was no answer."""
    raised: NotRequired[RaisedError]
    said: NotRequired[SaidRecord]


class SaidRecord(TypedDict, total=False):
    """What code has reported about the work of an attempt, for the next attempt at an enclosing step."""

    steps: list[Any]
    state: Any


class RemedyRecord(TypedDict):
    """The remedy that followed a failed attempt."""

    do: Text
    after: NotRequired[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    anew: NotRequired[bool]
    type: NotRequired[Text]
    """The type of the failure, if a strategy chose the remedy by it."""
    hint: NotRequired[Text]
    tools: NotRequired[list[Text]]
    reason: NotRequired[Text]
    to: NotRequired[Text]
    subgoal: NotRequired[Text]
    question: NotRequired[Text]
    message: NotRequired[Text]
    then: NotRequired[RemedyRecord]


class RaisedError(TypedDict):
    """The data from which an error is rebuilt to be raised again."""

    cls: Text
    args: NotRequired[Any]
    fields: NotRequired[Any]
    slots: NotRequired[Any]
    """The attributes that are kept outside of the object's dict."""
    streams: NotRequired[list[Text]]
    """The fields that hold an open file or the body of a response."""
    message: NotRequired[Text]
    """The text of an error inside another one."""
    members: NotRequired[list[RaisedError]]
    cause: NotRequired[RaisedError]
    context: NotRequired[RaisedError]
    """The data of the error's `__context__`; left out if it is also the cause."""
    suppressed: NotRequired[bool]
    """Whether the context is not to be shown."""
    omitted: NotRequired[list[Text]]
    """What is too large to be recorded, in words."""
    unrecordable: NotRequired[list[Text]]
    """What cannot be recorded, such as a live object, in words."""
    validation: NotRequired[ValidationRecord]
    """What an error of pydantic's validation holds."""


class ValidationRecord(TypedDict):
    """The data of an error of pydantic's validation."""

    title: Text
    input_type: Literal["python", "json"]
    hidden: bool
    """Whether the text of the error leaves out the inputs."""
    lines: list[ValidationLine]


class ValidationLine(TypedDict):
    """One of the mistakes that a validation has found."""

    type: Text
    template: NotRequired[Text]
    """The text for this mistake, if `type` is not one of pydantic's own types."""
    loc: Any
    input: NotRequired[Any]
    ctx: NotRequired[Any]
    error: NotRequired[RaisedError]
    """The error that a validator raised."""
