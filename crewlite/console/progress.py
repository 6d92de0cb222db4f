"""Live progress of a run: a subscriber of the event bus that prints one line for each important event.

On a terminal, `crewlite.console.status_lines` shows the steps that run at this moment below these lines.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from crewlite import events, kinds
from crewlite.codec import decode
from crewlite.console.status_lines import status_lines_of
from crewlite.console.text import say
from crewlite.console.underway import Underway, depth_of, is_part_of, titled
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.ids import short
from crewlite.lazy import lazy
from crewlite.runtime.people.terminal import terminal
from crewlite.wording import number_of

if TYPE_CHECKING:
    from crewlite.usage import Usage

rich = lazy("rich.console")

_LONGEST = 100  # characters of a text that is quoted
_OF_AN_ERROR = 60  # the same for errors: each step that an error passes prints it, and the end prints it completely
_Line = tuple[str, str] | None

_shows: contextvars.ContextVar[Callable[[BaseEvent], bool]] = contextvars.ContextVar(
    "crewlite_shows", default=lambda event: False
)
"""Returns whether a kickoff around this one shows an event already."""


@contextlib.contextmanager
def shown(run_id: Callable[[], str | None], address: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Show the events of one kickoff during the block, except those that a kickoff around it shows already.

    `run_id` returns the run's id once it is known. `address` returns the step that the kickoff is, if it is part of
    another run, else "".
    """
    console, run = rich.Console(highlight=False), Underway()
    around, own = _shows.get(), partial(is_of, run_id, address)
    before = _shows.set(lambda event: around(event) or own(event))
    with status_lines_of(console, run) as status_lines:

        def hear(source: object, event: BaseEvent, state: Any) -> None:
            if around(event) or not own(event):
                return
            run.base = address()
            usage = state.usage_of(run.base) if state is not None else None
            run.hear(event, usage)
            if isinstance(event, events.ProgressReportedEvent) and not run.is_due(event):
                return
            if said := line_of(event, usage):
                depth, whole = depth_of(event.address or "", run.base), isinstance(event, events.ToolUsageErrorEvent)
                with status_lines.above() if status_lines else contextlib.nullcontext():
                    say(status_lines.console if status_lines else console, *said, depth=depth, whole=whole)

        try:
            with event_bus.on(BaseEvent, hear):
                yield
        finally:
            _shows.reset(before)


def is_of(run_id: Callable[[], str | None], address: Callable[[], str], event: BaseEvent) -> bool:
    """Return whether an event belongs to this kickoff."""
    return event.run_id is not None and event.run_id == run_id() and is_part_of(event.address or "", address())


def line_of(event: BaseEvent, usage: Usage | None) -> _Line:
    """Return the line for an event, as the name of its mark and a text; None if it is not shown."""
    for said in (
        _of_run,
        _of_trial,
        _of_flow,
        _of_method,
        _of_task,
        _of_step,
        _of_guardrail,
        _of_call,
        _of_recovery,
        _of_record,
    ):
        if line := said(event, usage):
            return line
    return None


def _of_run(event: BaseEvent, usage: Usage | None) -> _Line:
    verb = "goes on" if event.resumed else "begins"
    match event:
        case events.CrewKickoffStartedEvent():
            return "begun", f"crew {event.crew_name} {verb} (run {event.run_id})"
        case events.CrewKickoffCompletedEvent():
            return "done", f"crew {event.crew_name} has finished: {number_of(event.total_tokens, 'token')}"
        case events.CrewKickoffFailedEvent():
            return "failed", f"crew {event.crew_name} stopped: {_error(event)}"
        case events.LiteAgentExecutionStartedEvent():
            return "begun", f"agent {event.agent_role} {verb} (run {event.run_id})"
        case events.LiteAgentExecutionCompletedEvent():
            return "done", f"agent {event.agent_role} has finished: {_tokens(event.usage)}"
        case events.LiteAgentExecutionErrorEvent():
            return "failed", f"agent {event.agent_role} stopped: {_error(event)}"
        case events.SigTermEvent() | events.SigIntEvent() | events.SigHupEvent():
            return "failed", f"{event.type}: {event.reason}"
        case events.SigTStpEvent() | events.SigContEvent():
            return "said", f"{event.type}: {event.reason}"
    return None


def _of_trial(event: BaseEvent, usage: Usage | None) -> _Line:
    verb = "goes on" if event.resumed else "begins"
    match event:
        case events.CrewTestStartedEvent():
            return "begun", f"test of crew {event.crew_name} {verb} (run {event.run_id})"
        case events.AgentEvaluationCompletedEvent():
            return "done", f"{event.task_name or event.address} gets {event.score:.1f} of 10: {_short(event.reason)}"
        case events.AgentEvaluationFailedEvent():
            return "failed", f"{event.task_name or event.address} gets no score: {_error(event)}"
        case events.CrewTestResultEvent():
            return "done", f"iteration {event.iteration}: {event.quality:.1f} of 10"
        case events.CrewTestCompletedEvent():
            return "done", f"test of crew {event.crew_name} has finished: {event.quality:.1f} of 10"
        case events.CrewTrainStartedEvent():
            return "begun", f"training of crew {event.crew_name} {verb} (run {event.run_id})"
        case events.CrewTrainCompletedEvent():
            return "done", f"training of crew {event.crew_name} has finished"
        case events.CrewTestFailedEvent():
            return "failed", f"test of crew {event.crew_name} stopped: {_error(event)}"
        case events.CrewTrainFailedEvent():
            return "failed", f"training of crew {event.crew_name} stopped: {_error(event)}"
    return None


def _of_flow(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.FlowStartedEvent():
            return "begun", f"flow {event.flow_name} {'goes on' if event.resumed else 'begins'} (run {event.run_id})"
        case events.FlowFinishedEvent():
            paid = f": {_tokens(event.usage)}" if event.usage.requests else ""
            return "done", f"flow {event.flow_name} has finished{paid}"
        case events.FlowFailedEvent():
            return "failed", f"flow {event.flow_name} stopped: {_error(event)}"
        case events.FlowPausedEvent():
            return "waits", f"flow {event.flow_name} waits for {', '.join(event.waiting)}"
        case events.HumanFeedbackRequestedEvent() if terminal():
            return None  # the question itself is printed on the terminal
        case events.HumanFeedbackRequestedEvent():
            return "waits", f"{event.address} asks: {_short(event.question)}"
        case events.HumanFeedbackReceivedEvent():
            answer = event.answer if isinstance(event.answer, str) else repr(decode(event.answer))
            return "done", f"{event.address} is answered: {_short(answer)}"
    return None


def _of_method(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.MethodExecutionStartedEvent():
            by = f", by {event.trigger}" if event.trigger else ""
            return "begun", f"method {event.method_name}{' goes on' if event.resumed else by}"
        case events.MethodExecutionFinishedEvent():
            return "done", f"method {event.method_name}"
        case events.MethodExecutionFailedEvent():
            return "failed", f"method {event.method_name} failed: {_error(event)}"
        case events.MethodExecutionPausedEvent():
            return "waits", f"method {event.method_name} waits for {', '.join(event.waiting)}"
    return None


def _of_task(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.TaskStartedEvent():
            verb = "goes on" if event.resumed else "begins"
            return "begun", f"{_task(event)}: {event.agent_role} {verb}"
        case events.TaskCompletedEvent() if event.output.skipped:
            return "done", f"{_task(event)} is skipped: its condition does not hold"
        case events.TaskCompletedEvent():
            return "done", f"{_task(event)}: {event.agent_role} has finished"
        case events.TaskFailedEvent():
            return "failed", f"{_task(event)}: {event.agent_role} failed: {_error(event)}"
    return None


def _of_step(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.StepStartedEvent() if kinds.of(event.kind).holds_value:
            return "begun", f"{titled(event)}{' goes on' if event.resumed else ''}"
        case events.StepCompletedEvent() if event.reused_from:
            return "reused", f"{titled(event)} from {event.reused_from}"
        case events.StepCompletedEvent() if kinds.of(event.kind).holds_value:
            return "done", titled(event)
        case events.StepFailedEvent():
            return "failed", f"{titled(event)} failed: {_error(event)}"
        case events.ProgressReportedEvent():
            return "said", f"{event.source_name}: {_short(event.text)}"
        case events.StepReplayedEvent() if kinds.at(event.address or "").is_about_failure:
            return None  # a part of what follows a failure, which is told
        case events.StepReplayedEvent():
            changed = f", though its {' and '.join(event.changed)} changed" if event.changed else ""
            what = f"{event.address or 'the result'}{': its failure is' if event.failed else ''}"
            return "reused", f"{what} from the record{changed}"
    return None


def _of_guardrail(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.LLMGuardrailCompletedEvent() if event.success:
            return "done", f"guardrail passed: {_short(event.guardrail)}"
        case events.LLMGuardrailCompletedEvent():
            return "said", f"guardrail not passed: {_short(event.error or '')}"
        case events.LLMGuardrailFailedEvent():
            return "failed", f"guardrail {_short(event.guardrail)} failed: {_error(event)}"
    return None


def _of_call(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.LLMCallCompletedEvent():
            used = sum(event.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
            return "done", f"model {event.model}: {number_of(used, 'token')}, so far {_tokens(usage)}"
        case events.LLMCallFailedEvent():
            return "failed", f"model {event.model} failed: {_error(event)}"
        case events.LLMCallPacedEvent():
            return (
                "waits",
                f"a model call waits for {event.seconds:.0f} s or more: max_rpm={event.max_rpm} of {event.owner}",
            )
        case events.AgentLogsExecutionEvent():
            return "said", f"{event.agent_role}: {_short(event.formatted_answer)}"
        case events.ToolUsageStartedEvent():
            again = " (in doubt: it may have been called before)" if event.in_doubt else ""
            return "begun", f"tool {_call(event)}{again}"
        case events.ToolUsageFinishedEvent():
            return "done", f"tool {event.tool_name}: {len(event.output):,} characters"
        case events.ToolUsageErrorEvent():
            return "failed", f"tool {event.tool_name} failed: {event.error_type}: {event.error}"
        case events.ToolSelectionErrorEvent() | events.ToolValidateInputErrorEvent():
            return "failed", f"tool {_call(event)} refused: {_short(event.error)}"
    return None


def _of_recovery(event: Any, usage: Usage | None) -> _Line:
    if event.type == "recovery_started":
        return "failed", _again(event)
    if event.type == "recovery_completed" and event.remedy not in ("retry", "fallback"):
        return "done", f"{kinds.of(event.kind).title} {event.name}: {event.remedy} has helped, in try {event.attempt}"
    if event.type == "recovery_failed":
        reason = f": {_short(event.reason)}" if event.reason else ""
        return "failed", f"{kinds.of(event.kind).title} {event.name}: {event.remedy} after try {event.attempt}{reason}"
    return None


def _of_record(event: BaseEvent, usage: Usage | None) -> _Line:
    match event:
        case events.CheckpointCompletedEvent():
            return "saved", f"checkpoint {short(event.checkpoint_id)} at {event.trigger}"
        case events.CheckpointFailedEvent():
            return "failed", f"not saved: {_error(event)}"
        case events.CheckpointRestoreCompletedEvent():
            return "reused", f"{number_of(event.finished_steps, 'recorded step')} from {event.location}"
    return None


def _task(event: events.TaskStartedEvent | events.TaskCompletedEvent | events.TaskFailedEvent) -> str:
    return f"task {event.task_name}" if event.task_name else str(event.address)


def _call(
    event: events.ToolUsageStartedEvent | events.ToolSelectionErrorEvent | events.ToolValidateInputErrorEvent,
) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in event.tool_args.items())
    return f"{event.tool_name}({_short(arguments)})"


def _tokens(usage: Usage | None) -> str:
    return number_of(usage.total_tokens, "token") if usage is not None else "unknown"


def _again(event: Any) -> str:
    what, known = f"{kinds.of(event.kind).title} {event.name}", event.failure_type not in ("", "unknown")
    told = f"{what}: {event.failure_type}: {_error(event)}" if known else f"{what}: {_error(event)}"
    if event.remedy in ("retry", "fallback") and not known:
        return f"{told}; try {event.attempt + 1} in {event.delay:.1f} s"
    wait = f" in {event.delay:.1f} s" if event.delay else ""
    return f"{told}; {event.remedy}, try {event.attempt + 1}{wait}"


def _error(event: Any) -> str:
    return f"{event.error_type}: {_short(event.error, _OF_AN_ERROR)}"


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
