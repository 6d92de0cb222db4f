"""Calling a tool, as a durable step. Every way it can end has an outcome the model hears of, and an event."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from crewlite import codec, durable, events
from crewlite.durable import Effect, Intent, Scope, Stamp, Step
from crewlite.errors import BranchConflictError, InDoubt, JournalCorrupt, RunMismatch, StoreError, text_of
from crewlite.events.base import BaseEvent
from crewlite.ids import now
from crewlite.llm.base import ToolCall
from crewlite.tools.base import BaseTool, as_text

if TYPE_CHECKING:
    Refused = events.ToolSelectionErrorEvent | events.ToolValidateInputErrorEvent


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told. `error` is the type of what went wrong, if anything did."""

    text: str
    error: str | None = None


class Named(Protocol):
    """Who calls."""

    @property
    def source(self) -> object:
        """The live agent."""

    @property
    def role(self) -> str:
        """What it is called."""


class _Voice:
    """Events of a call that really happens."""

    def __init__(self, tool: BaseTool, about: dict[str, Any], resumed_call: bool) -> None:
        self.source: object = tool
        self._about = about
        self._in_doubt = resumed_call
        self.began: datetime = now()

    def started(self, stamp: Stamp) -> BaseEvent:
        self.began = now()
        return events.ToolUsageStartedEvent(**stamp, **self._about, in_doubt=self._in_doubt)

    def completed(self, stamp: Stamp, value: ToolResult) -> BaseEvent:
        if value.error:
            return self.failed(stamp, value.text, value.error)
        return events.ToolUsageFinishedEvent(
            **stamp, **self._about, output=value.text, started_at=self.began, finished_at=now()
        )

    def failed(self, stamp: Stamp, error: str, error_type: str) -> BaseEvent:
        return events.ToolUsageErrorEvent(**stamp, **self._about, error=error, error_type=error_type)


class _Refusal:
    """The one event of a call that never happens."""

    def __init__(self, source: object, event: type[Refused], about: dict[str, Any]) -> None:
        self.source, self._event, self._about = source, event, about

    def started(self, stamp: Stamp) -> None:
        return None

    def completed(self, stamp: Stamp, value: ToolResult) -> BaseEvent:
        return self.failed(stamp, value.text, value.error or "")

    def failed(self, stamp: Stamp, error: str, error_type: str) -> BaseEvent:
        return self._event(**stamp, **self._about, error=error)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that a reply asked for, with the address it will have."""

    id: str
    step: Step[ToolResult]
    intent: Intent | None
    """None: nothing will happen, as the tool does not exist or the arguments do not fit."""

    def make(self) -> Awaitable[ToolResult]:
        """Make the call; from the record if it was made before."""
        return durable.scope().step(self.step)


def plan_call(scope: Scope, call: ToolCall, number: int, tools: Mapping[str, BaseTool], agent: Named) -> PlannedCall:
    """Take the address of the reply's call `number`, and see whether it can be made."""
    address = scope.take("tool", call.name)
    about = {"tool_name": call.name, "tool_args": call.arguments, "agent_role": agent.role}
    tool = tools.get(call.name)
    problem = _unknown(call, tools) if tool is None else _misfit(call, tool)
    if tool is None or problem:
        event = events.ToolSelectionErrorEvent if tool is None else events.ToolValidateInputErrorEvent
        result = ToolResult(problem or "", "ToolSelectionError" if tool is None else "ToolValidateInputError")

        async def refuse() -> ToolResult:
            return result

        step = _step(call, address, refuse, _Refusal(agent.source, event, about), "none")
        return PlannedCall(call.id or f"call_{number}", step, None)
    about["tool_class"] = type(tool).__name__
    voice = _Voice(tool, about, scope.in_doubt(address))
    step = _step(call, address, lambda: _use(tool, call, about), voice, tool.effect)
    return PlannedCall(call.id or f"call_{number}", step, Intent(address, tool.effect))


def _step(call: ToolCall, address: str, work: Any, voice: Any, effect: Effect) -> Step[ToolResult]:
    return Step(
        kind="tool",
        name=call.name,
        work=work,
        question=codec.encode([call.name, call.arguments]),
        voice=voice,
        encode=lambda result: {"text": result.text} | ({"error": result.error} if result.error else {}),
        decode=lambda data: ToolResult(data["text"], data.get("error")),
        answer=lambda value: ToolResult(as_text(value)),
        address=address,
        effect=effect,
    )


async def _use(tool: BaseTool, call: ToolCall, about: dict[str, Any]) -> ToolResult:
    try:
        return ToolResult(as_text(await tool.arun(**call.arguments)))
    except (InDoubt, RunMismatch, StoreError, BranchConflictError, JournalCorrupt):
        raise  # a step inside the tool stops the run; it is not the model's to mend
    except Exception as error:  # noqa: BLE001 - the border: whatever a tool raises, the model hears of it
        kind, text = type(error).__name__, text_of(error)
        trace = traceback.format_exc()
        scope = durable.scope()
        await scope.announce(
            tool,
            lambda stamp: events.ToolExecutionErrorEvent(
                **stamp, **about, error=scope.mask(text), error_type=kind, traceback=scope.mask(trace)
            ),
        )
        return ToolResult(f"Tool {call.name} failed: {kind}: {text}", kind)


def _unknown(call: ToolCall, tools: Mapping[str, BaseTool]) -> str:
    known = ", ".join(sorted(tools)) or "none"
    return f"There is no tool {call.name!r}. Tools you can use: {known}."


def _misfit(call: ToolCall, tool: BaseTool) -> str | None:
    try:
        tool.arguments.model_validate(call.arguments)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        wanted = ", ".join(tool.arguments.model_fields)
        return f"The arguments do not fit {call.name}: {problems}. It takes: {wanted or 'no arguments'}."
    return None
