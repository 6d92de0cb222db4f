"""Live progress of a run: a subscriber of the event bus that prints one line for each important event.

On a terminal, `crewlite.console.status_lines` shows the steps that run at this moment below these lines.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from crewlite import kinds
from crewlite.console.status_lines import status_lines_of
from crewlite.console.text import say
from crewlite.console.underway import Underway, depth_of, is_part_of, seen_from, task_of, titled
from crewlite.encoding.codec import decode
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.events.registry import EventType
from crewlite.ids import short
from crewlite.lazy import lazy
from crewlite.runtime.people.terminal import terminal
from crewlite.texts.resuming import without_advice
from crewlite.texts.wording import number_of

if TYPE_CHECKING:
    from crewlite.usage import Usage

rich = lazy("rich.console")

_LONGEST = 100  # characters of a text that is quoted
_OF_AN_ERROR = 60  # the same for errors: each step that an error passes prints it, and the end prints it completely
_OF_A_MODEL = 120  # the same for an error of a model call, where it is printed first
_Line = tuple[str, str] | None
_Said = Callable[[Any], _Line]

_shows: contextvars.ContextVar[Callable[[BaseEvent], bool]] = contextvars.ContextVar(
    "crewlite_shows", default=lambda event: False
)
"""Returns whether a kickoff around this one shows an event already."""


@contextlib.contextmanager
def shown(run_id: Callable[[], str | None], address: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Show the events of one kickoff during the block, except those that an enclosing kickoff shows already.

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
            if event.type == "progress_reported" and not run.is_due(event):
                return
            if said := line_of(event, usage, run.base):
                depth, whole = depth_of(event.address or "", run.base), event.type == "tool_usage_error"
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


def line_of(event: BaseEvent, usage: Usage | None, base: str) -> _Line:
    """Return the line for an event, as the name of its mark and a text; None if it is not shown.

    `usage` is that of the kickoff up to the event. `base` is the step that the kickoff is, "" for a run.
    """
    say = _LINES.get(cast(EventType, event.type))
    said = say(seen_from(event, base)) if say else None
    if said and event.type == "llm_call_completed":
        return said[0], f"{said[1]}, so far {_tokens(usage)}"
    return said


def _asked(event: Any) -> _Line:
    if terminal():
        return None  # the question itself is printed on the terminal
    return "waiting", f"{event.address} asks: {_short(event.question)}"


def _answered(event: Any) -> _Line:
    if event.answer is None:
        return "finished", f"{event.address} has no answer"
    answer = event.answer if isinstance(event.answer, str) else repr(decode(event.answer))
    return "finished", f"{event.address} is answered: {_short(answer)}"


def _method_started(event: Any) -> _Line:
    by = f", by {event.trigger}" if event.trigger else ""
    return "begun", f"method {event.method_name}{' goes on' if event.resumed else by}"


def _task_completed(event: Any) -> _Line:
    skipped = event.output.skipped
    how = " is skipped: its condition does not hold" if skipped else f": {event.agent_role} has finished"
    return "finished", f"{task_of(event)}{how}"


def _step_started(event: Any) -> _Line:
    again = " goes on" if event.resumed else ""
    return ("begun", f"{titled(event)}{again}") if kinds.of(event.kind).holds_value else None


def _step_completed(event: Any) -> _Line:
    if event.reused_from:
        return "reused", f"{titled(event)} from {event.reused_from}"
    if kinds.of(event.kind) is kinds.COMPENSATION:
        return "finished", f"{event.name.rpartition('-')[0]} is undone"  # behind the dash is a digest of what was done
    return ("finished", titled(event)) if kinds.of(event.kind).holds_value else None


def _step_replayed(event: Any) -> _Line:
    if kinds.at(event.address or "").is_about_failure:
        return None  # a part of what follows a failure, which is told
    changed = f", though its {' and '.join(event.changed)} changed" if event.changed else ""
    what = f"{event.address or 'the result'}{': its failure is' if event.failed else ''}"
    return "reused", f"{what} from the record{changed}"


def _guardrail_completed(event: Any) -> _Line:
    if event.success:
        return "finished", f"guardrail passed: {_short(event.guardrail)}"
    return "said", f"guardrail not passed: {_short(event.error or '')}"


def _call_completed(event: Any) -> _Line:
    used = sum(event.usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens"))
    return "finished", f"model {event.model}: {number_of(used, 'token')}"


def _call_paced(event: Any) -> _Line:
    limit = f"max_rpm={event.max_rpm} of {event.owner}"
    return "waiting", f"a model call waits for {event.seconds:.0f} s or more: {limit}"


def _tool_started(event: Any) -> _Line:
    again = " (in doubt: it may have been called before)" if event.in_doubt else ""
    return "begun", f"tool {_call(event)}{again}"


def _tool_refused(event: Any) -> _Line:
    return "failed", f"tool {_call(event)} refused: {_short(event.error)}"


def _recovery_started(event: Any) -> _Line:
    what, known = f"{kinds.of(event.kind).title} {event.name}", event.failure_type not in ("", "unknown")
    error = _model_error(event, event.name) if kinds.of(event.kind) is kinds.LLM else _error(event)
    failure = f"{what}: {event.failure_type}: {error}" if known else f"{what}: {error}"
    if event.remedy in ("retry", "fallback") and not known:
        return "failed", f"{failure}; try {event.attempt + 1} in {event.delay:.1f} s"
    wait = f" in {event.delay:.1f} s" if event.delay else ""
    return "failed", f"{failure}; {event.remedy}, try {event.attempt + 1}{wait}"


def _recovery_completed(event: Any) -> _Line:
    if event.remedy in ("retry", "fallback"):
        return None
    what = f"{kinds.of(event.kind).title} {event.name}"
    return "finished", f"{what}: {event.remedy} has helped, in try {event.attempt}"


def _recovery_failed(event: Any) -> _Line:
    reason = f": {_short(event.reason)}" if event.reason else ""
    return "failed", f"{kinds.of(event.kind).title} {event.name}: {event.remedy} after try {event.attempt}{reason}"


def _signal(mark: str) -> _Said:
    return lambda event: (mark, f"{event.type}: {event.reason}")


def _crew(event: Any) -> str:
    return "crew" if event.crew_name == "crew" else f"crew {event.crew_name}"


def _begins(event: Any) -> str:
    return f"{'goes on' if event.resumed else 'begins'} (run {event.run_id})"


def _evaluated(event: Any) -> str:
    return event.task_name or str(event.address)


def _call(event: Any) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in event.tool_args.items())
    return f"{event.tool_name}({_short(arguments)})"


def _tokens(usage: Usage | None) -> str:
    return number_of(usage.total_tokens, "token") if usage is not None else "unknown"


def _error(event: Any) -> str:
    return f"{event.error_type}: {_short(event.error, _OF_AN_ERROR)}"


def _model_error(event: Any, model: str) -> str:
    """Return the error of a call in a line that names the model, and says itself what follows."""
    said = without_advice(event.error).strip().removeprefix(f"{model} ")
    return f"{event.error_type}: {_short(said.removesuffix('.'), _OF_A_MODEL)}"


def _short(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


_LINES: dict[EventType, _Said] = {
    "crew_kickoff_started": lambda e: ("begun", f"{_crew(e)} {_begins(e)}"),
    "crew_kickoff_completed": lambda e: (
        "finished",
        f"{_crew(e)} has finished: {number_of(e.total_tokens, 'token')}",
    ),
    "crew_kickoff_failed": lambda e: ("failed", f"{_crew(e)} stopped: {_error(e)}"),
    "lite_agent_execution_started": lambda e: ("begun", f"agent {e.agent_role} {_begins(e)}"),
    "lite_agent_execution_completed": lambda e: ("finished", f"agent {e.agent_role} has finished: {_tokens(e.usage)}"),
    "lite_agent_execution_error": lambda e: ("failed", f"agent {e.agent_role} stopped: {_error(e)}"),
    "crew_test_started": lambda e: ("begun", f"test of {_crew(e)} {_begins(e)}"),
    "agent_evaluation_completed": lambda e: (
        "finished",
        f"{_evaluated(e)} gets {e.score:.1f} of 10: {_short(e.reason)}",
    ),
    "agent_evaluation_failed": lambda e: ("failed", f"{_evaluated(e)} gets no score: {_error(e)}"),
    "crew_test_result": lambda e: ("finished", f"iteration {e.iteration}: {e.quality:.1f} of 10"),
    "crew_test_completed": lambda e: ("finished", f"test of {_crew(e)} has finished: {e.quality:.1f} of 10"),
    "crew_test_failed": lambda e: ("failed", f"test of {_crew(e)} stopped: {_error(e)}"),
    "crew_train_started": lambda e: ("begun", f"training of {_crew(e)} {_begins(e)}"),
    "crew_train_completed": lambda e: ("finished", f"training of {_crew(e)} has finished"),
    "crew_train_failed": lambda e: ("failed", f"training of {_crew(e)} stopped: {_error(e)}"),
    "SIGTERM": _signal("failed"),
    "SIGINT": _signal("failed"),
    "SIGHUP": _signal("failed"),
    "SIGTSTP": _signal("said"),
    "SIGCONT": _signal("said"),
    "flow_started": lambda e: ("begun", f"flow {e.flow_name} {_begins(e)}"),
    "flow_finished": lambda e: (
        "finished",
        f"flow {e.flow_name} has finished{f': {_tokens(e.usage)}' if e.usage.requests else ''}",
    ),
    "flow_failed": lambda e: ("failed", f"flow {e.flow_name} stopped: {_error(e)}"),
    "flow_paused": lambda e: ("waiting", f"flow {e.flow_name} waits for {', '.join(e.waiting)}"),
    "human_feedback_requested": _asked,
    "flow_input_requested": _asked,
    "human_feedback_received": _answered,
    "flow_input_received": _answered,
    "method_execution_started": _method_started,
    "method_execution_finished": lambda e: ("finished", f"method {e.method_name}"),
    "method_execution_failed": lambda e: ("failed", f"method {e.method_name} failed: {_error(e)}"),
    "method_execution_paused": lambda e: ("waiting", f"method {e.method_name} waits for {', '.join(e.waiting)}"),
    "task_started": lambda e: ("begun", f"{task_of(e)}: {e.agent_role} {'goes on' if e.resumed else 'begins'}"),
    "task_completed": _task_completed,
    "task_failed": lambda e: ("failed", f"{task_of(e)}: {e.agent_role} failed: {_error(e)}"),
    "step_started": _step_started,
    "step_completed": _step_completed,
    "step_failed": lambda e: ("failed", f"{titled(e)} failed: {_error(e)}"),
    "step_replayed": _step_replayed,
    "progress_reported": lambda e: ("said", f"{e.source_name}: {_short(e.text)}"),
    "llm_guardrail_completed": _guardrail_completed,
    "llm_guardrail_failed": lambda e: ("failed", f"guardrail {_short(e.guardrail)} failed: {_error(e)}"),
    "llm_call_completed": _call_completed,
    "llm_call_failed": lambda e: ("failed", f"model {e.model} failed: {_model_error(e, e.model)}"),
    "llm_call_paced": _call_paced,
    "agent_logs_execution": lambda e: ("said", f"{e.agent_role}: {_short(e.formatted_answer)}"),
    "tool_usage_started": _tool_started,
    "tool_usage_finished": lambda e: ("finished", f"tool {e.tool_name}: {len(e.output):,} characters"),
    "tool_usage_error": lambda e: ("failed", f"tool {e.tool_name} failed: {e.error_type}: {e.error}"),
    "tool_selection_error": _tool_refused,
    "tool_validate_input_error": _tool_refused,
    "recovery_started": _recovery_started,
    "recovery_completed": _recovery_completed,
    "recovery_failed": _recovery_failed,
    "checkpoint_completed": lambda e: ("checkpoint", f"checkpoint {short(e.checkpoint_id)} at {e.trigger}"),
    "checkpoint_failed": lambda e: ("failed", f"not saved: {_error(e)}"),
    "checkpoint_restore_completed": lambda e: (
        "reused",
        f"{number_of(e.finished_steps, 'recorded step')} from {e.location}",
    ),
}
