"""What people read about runs: times, spending, values in one line, and the names of definitions and steps."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from crewlite import kinds
from crewlite.cli.checkpoint.document import plain
from crewlite.ids import now, short
from crewlite.pages.rendering import cost
from crewlite.state.format.addresses import around
from crewlite.state.reading.checkpoint import usage_change
from crewlite.texts.wording import cut, number_of

if TYPE_CHECKING:
    from crewlite.state.reading.steps import StepView
    from crewlite.state.run_history import Base, RunHistory
    from crewlite.usage import Usage

_FIRST = 200  # characters of a value of which only the beginning is told
_LONG = 2_000  # characters of values that are told whole


def ago(moment: datetime) -> str:
    """Return how long ago a time was, as text."""
    seconds = (now() - moment).total_seconds()
    if seconds < 0:
        return iso(moment)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now" if seconds < 5 else f"{int(seconds)} s ago"


def iso(moment: datetime) -> str:
    """Return a time to the second, in UTC, as text."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def spent(usage: Usage) -> str:
    """Return tokens, calls and cost in words."""
    parts = f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out"
    tokens, calls = number_of(usage.total_tokens, "token"), number_of(usage.requests, "call")
    return f"{tokens} ({parts}) in {calls}, cost {cost(usage.cost) or 'unknown'}"


def compact(value: object) -> str:
    """Return a value as JSON, in one line."""
    return json.dumps(plain(value), ensure_ascii=False)


def beginning(text: str) -> str:
    """Return a text, or its beginning and how long it is."""
    return text if len(text) <= _FIRST else f"{cut(text, _FIRST)} ({len(text):,} characters; --json has them all)"


def shortened(values: dict[str, Any]) -> str:
    """Return names and values in one line; if that is long, the beginning of each long one, and how long it is."""
    text = compact(values)
    if len(text) <= _LONG:
        return text
    return ", ".join(f"{name}: {beginning(compact(value))}" for name, value in values.items())


def name_of(definition: dict[str, Any]) -> str:
    """Return kind and name of a definition."""
    return f"{definition['kind']} {definition['name'] or ''}".rstrip()


def root_name(run: RunHistory) -> str:
    """Return the name of the run itself among its steps, such as "the crew"."""
    return f"the {run.definition['kind']}"


def sums_of(run: RunHistory) -> dict[str, Usage]:
    """Return the usage of all steps, under "", and of each step that encloses others, with all steps inside it.

    Those inside may not be listed any more: pruning removes them, and not what they have used. What rewinds have
    abandoned is in none of them.
    """
    steps = run.steps
    pruned_around = [step.address for step in steps if not step.usage.requests and run.usage_of(step.address).requests]
    inside = {address: run.usage_of(address) for address in (*around(step.address for step in steps), *pruned_around)}
    return {**inside, "": usage_change(run.abandoned_usage, run.usage)}


def place_of(base: Base) -> str:
    """Return where a fork begins: the branch, and its checkpoint or commit there."""
    at = f"checkpoint {short(base.checkpoint_id)}" if base.checkpoint_id else f"commit {base.seq}"
    return f"{base.branch} at {at}"


def first_line(step: StepView) -> str:
    """Return the beginning of the outcome of a step, or of its last failure, in one line."""
    if step.asks:
        return "asks a person"
    if step.repeatable:
        return "cut; made again when the run goes on"
    if step.status != "finished":
        return beginning_of_line(step.attempts[-1].message) if step.attempts else ""
    if kinds.of(step.kind) is kinds.CREW:
        return ""  # its value consists of the values of its tasks
    value = step.value
    if isinstance(value, dict):
        value = next((value[name] for name in ("raw", "text") if value.get(name)), _calls(value) or value)
    return beginning_of_line(value if isinstance(value, str) else compact(value))


def beginning_of_line(text: str) -> str:
    """Return the beginning of the first line of a text."""
    return cut(text.strip().partition("\n")[0], _FIRST)


def _calls(value: dict[str, Any]) -> str:
    """Return the tool calls that a model requested, as text; "" if it requested none."""
    calls = value.get("tool_calls")
    return ", ".join(f"{call[0]}({compact(call[1])})" for call in calls) if isinstance(calls, list) else ""
