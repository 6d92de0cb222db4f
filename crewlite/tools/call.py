"""Calling a tool, as a durable step. Every way it can end has an outcome that the model is told, and an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crewlite import durable, events, kinds
from crewlite.concurrency import background, resources
from crewlite.concurrency.threads import check_program_goes_on
from crewlite.durable import Said, Scope, Step, StepEvents
from crewlite.encoding import codec
from crewlite.errors import CONTROL_FLOW, StepTimeout, text_of
from crewlite.events.base import BaseEvent
from crewlite.events.family import FamilyEvents
from crewlite.ids import now
from crewlite.llm.base import ToolCall
from crewlite.recovery import EarlierCall, GuardedCall
from crewlite.recovery.guards import UNGUARDED, VETOES, guarding
from crewlite.step_parts import Effect, Intent, Policies
from crewlite.texts import tracebacks
from crewlite.texts.logs import logger
from crewlite.tools.approval import Verdict
from crewlite.tools.base import BaseTool, as_text
from crewlite.tools.naming import address_name
from crewlite.tools.result import ToolResult, key_of, shown_arguments

log = logger("crewlite.tools")


class Made:
    """The events of a call that is made."""

    def __init__(self, source: object, about: dict[str, Any], in_doubt: bool) -> None:
        self.source, self._about, self.in_doubt = source, about, in_doubt
        self._began = now()

    def started(self) -> Said:
        """Return the event of the start."""
        self._began = now()
        return events.ToolUsageStartedEvent, {**self._about, "in_doubt": self.in_doubt}

    def completed(self, value: ToolResult) -> Said:
        """Return the event of the result, or of the error that the model is told."""
        if value.error:
            return self.failed(value.reason, value.error)
        fields = {**self._about, "output": value.text, "started_at": self._began, "finished_at": now()}
        return events.ToolUsageFinishedEvent, fields

    def failed(self, error: str, error_type: str) -> Said:
        """Return the event of a call without a result."""
        return events.ToolUsageErrorEvent, {**self._about, "error": error, "error_type": error_type}


def reused(source: object, about: dict[str, Any], how: str) -> FamilyEvents:
    """Return the events of a call that is not made, as its result exists: `how` is `from_cache` or `from_person`."""

    def fields(value: ToolResult) -> dict[str, Any]:
        at = now()
        return {"output": value.text, how: True, "started_at": at, "finished_at": at}

    family = None, events.ToolUsageFinishedEvent, events.ToolUsageErrorEvent
    return FamilyEvents(source, family, about, of_outcome=fields)


def refused(source: object, about: dict[str, Any], event: type[BaseEvent]) -> FamilyEvents:
    """Return the events of a call that is never made: its one event says why."""
    return FamilyEvents(source, (None, event, None), about, of_outcome=lambda value: {"error": value.text})


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that a reply asked for, with the address it will have."""

    id: str
    name: str
    """As the reply has it."""
    tool: BaseTool | None
    step: Step[ToolResult]
    intent: Intent
    arguments: dict[str, Any]
    decided: Callable[[Verdict], Step[ToolResult]] | None = None
    """Of a call that needs approval: the step that it becomes, given what a person says."""

    @property
    def address(self) -> str:
        """Where it is recorded."""
        return self.step.address or ""

    def make(self) -> Awaitable[ToolResult]:
        """Make the call; from the record if it was made before."""
        return durable.scope().step(self.step)

    def answers(self, result: ToolResult) -> bool:
        """Whether this result is the agent's answer."""
        return self.tool is not None and self.tool.result_as_answer and not result.error


def call_step(
    call: ToolCall,
    address: str,
    tool: BaseTool | None,
    work: Callable[[], Awaitable[ToolResult]],
    step_events: StepEvents,
    effect: Effect = "none",
    *,
    instead: Sequence[Any] = (),
) -> Step[ToolResult]:
    """Build the step of a call, whether `work` makes the call or returns a refusal or an earlier result.

    Its question is the name and the arguments, and what a person has decided `instead` of the call.
    """
    return Step(
        kind=kinds.TOOL,
        name=tool.name if tool else call.name,
        work=work,
        question=question_of(call, instead),
        events=step_events,
        encode=ToolResult.encode,
        decode=ToolResult.decode,
        answer=lambda value: ToolResult(as_text(value)),
        address=address,
        effect=effect,
        policies=Policies(inherits=True, inside=tool.failure_policy if tool else None),
        failure=lambda result: result.raised,
    )


def question_of(call: ToolCall, instead: Sequence[Any] = ()) -> Any:
    """Return the question of the step of a call. `instead`: see `call_step`."""
    return codec.encode([call.name, call.arguments, *instead])


async def use(tool: BaseTool, call: ToolCall, about: dict[str, Any]) -> ToolResult:
    """Make the tool ready, call it, and return the result. Raises an error that the model is not told of."""
    scope = durable.scope()
    try:
        guards = scope.guards
        seen = guarding(guards, guarded(scope, tool, call, scope.address), scope.mask) if guards else UNGUARDED
        async with seen:
            await resources.ready(tool, tool.timeout)
            result = await tool.arun(**call.arguments)
        text = as_text(result)
    except CONTROL_FLOW:
        raise  # no failure of the tool
    except Exception as error:  # the border: whatever a tool raises, the model or the author hears of it
        check_program_goes_on(error)
        said = {"error": text_of(error), "error_type": type(error).__name__, "traceback": tracebacks.text(error)}
        await scope.announce(tool, events.ToolExecutionErrorEvent, {**about, **said})
        if not tool.is_told_of(error):
            raise
        return _result_for_model(tool, call, error)
    return ToolResult(
        text, reusable=key_of(tool.description, call.arguments) if await _may_be_reused(tool, call, result) else None
    )


def guarded(scope: Scope, tool: BaseTool, call: ToolCall, address: str) -> GuardedCall:
    """Build the call as guards see it."""

    def earlier() -> list[EarlierCall]:
        asked = codec.digest([kinds.TOOL.name, question_of(call)])
        names = {address_name(tool.name), tool.safe_name}
        found = [one for one in scope.calls(kinds.TOOL.name, names) if isinstance(one.outcome, dict)]
        results = [(one, ToolResult.decode(one.outcome)) for one in found]
        return [
            EarlierCall(one.address, one.fingerprint == asked, it.told, bool(it.error))
            for one, it in results
            if it.error not in VETOES
        ]

    return GuardedCall("tool", tool.name, call.arguments, address, tool.effect, earlier, scope.shared)


def _result_for_model(tool: BaseTool, call: ToolCall, error: Exception) -> ToolResult:
    said = f"{type(error).__name__}: {text_of(error)}"
    if isinstance(error, StepTimeout) and error.what == f"tool {tool.name}":
        if tool.effect == "once":
            scope = durable.scope()
            raise scope.doubt(error.what, said, shown_arguments(call.arguments, scope.mask)) from error
        may = " It may still take effect." if tool.effect == "idempotent" else ""
        return ToolResult.failed(tool.safe_name, error, f"it did not end within {error.limit:g} s.{may}")
    return ToolResult.failed(tool.safe_name, error, said)


async def _may_be_reused(tool: BaseTool, call: ToolCall, result: object) -> bool:
    """Return whether the tool's cache_function allows the result to be reused; False if it raises."""
    if tool.cache_function is None:
        return False
    try:
        return bool(await background.blocking(tool.cache_function, dict(call.arguments), result))
    except Exception as error:  # the border: the call has its result, whatever this raises
        problem = f"the cache_function of tool {tool.name!r} raised {type(error).__name__}: {text_of(error)}"
        log.warning("%s; the result is used, and not kept for the same call", durable.scope().mask(problem))
        return False
