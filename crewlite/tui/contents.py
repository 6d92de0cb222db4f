"""What the panels show of a place: the overview, the steps along the time, and values as texts that can be edited.

Plain functions and data, without a widget.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

from rich.text import Text

from crewlite import kinds
from crewlite.cli.checkpoint import document, words
from crewlite.console.text import style_of
from crewlite.ids import short
from crewlite.state.format.addresses import as_tree, leaf
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.fitting import what_fits
from crewlite.state.reading.steps import StepView, status_without_step
from crewlite.state.run_history import RunHistory
from crewlite.state.verbs.edit import can_edit
from crewlite.texts.wording import an, cut, escaped_lines, number_of
from crewlite.tui.words import line, mark, shown
from crewlite.usage import Usage

Rows = list[tuple[str, "Text | Moment"]]
"""Names and values. A row without a name goes on with the value above it."""
LONGEST = 100_000
"""Characters of a value that can be edited in the view."""
_BAR = 20  # characters of the bar of progress
_TASKS = 40  # that are listed one by one
_LONG = 400  # characters of a value of the state


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, with how long ago that is whenever it is drawn."""

    at: datetime

    def __rich__(self) -> Text:
        return line(f"{words.ago(self.at)}  {words.iso(self.at)}")


def overview(run: RunHistory, checkpoint: Checkpoint | None) -> list[tuple[str, Rows]]:
    """Return the sections of the overview, each with its title. Sections without rows are left out."""
    sections = [
        ("", _place(run, checkpoint)),
        ("Progress", _progress(run, checkpoint)),
        ("State", _state(run, checkpoint)),
        ("Definition", _definition(run)),
        ("Run", _run(run)),
    ]
    return [(title, rows) for title, rows in sections if rows]


def _place(run: RunHistory, checkpoint: Checkpoint | None) -> Rows:
    if checkpoint is None:
        place = f"{run.place}, what a rewind has left behind" if run.place else "its head"
        return [("branch", line((f"{run.run_id}/{run.branch}", "bold"))), ("place", line(place))]
    at = f" at {checkpoint.address}" if checkpoint.address else ""
    return [
        ("branch", line((f"{run.run_id}/{run.branch}", "bold"))),
        ("checkpoint", line((short(checkpoint.id), "cyan"), f"  version {checkpoint.version}")),
        ("made by", line(f"{checkpoint.trigger}{at}")),
        ("created", Moment(checkpoint.created_at)),
        ("parent", line(short(checkpoint.parent_id) if checkpoint.parent_id else "none, it is the first")),
        *([("label", line((checkpoint.label, "magenta")))] if checkpoint.label else []),
        *([("metadata", Text(escaped_lines(words.shortened(checkpoint.metadata))))] if checkpoint.metadata else []),
    ]


def _progress(run: RunHistory, checkpoint: Checkpoint | None) -> Rows:
    done = checkpoint.tasks if checkpoint else run.tasks
    known = [task["address"] for task in run.definition.get("tasks", ())]
    addresses = [*known, *(address for address in done if address not in known)]
    if not addresses:
        return []
    count = sum(address in done for address in addresses)
    full = round(_BAR * count / len(addresses))
    counted = f"  {count} of {len(addresses)}"
    rows: Rows = [("tasks", line(("━" * full, "green"), ("━" * (_BAR - full), "dim"), counted))]
    for address in addresses[:_TASKS]:
        finished = address in done
        rows.append(("", line(mark("finished" if finished else "open"), " ", (address, "" if finished else "dim"))))
    if len(addresses) > _TASKS:
        rows.append(("", line((f"… {len(addresses) - _TASKS} more", "dim"))))
    return rows


def _state(run: RunHistory, checkpoint: Checkpoint | None) -> Rows:
    """Return the inputs, named values and collections as of the place."""
    place = checkpoint or run
    rows: Rows = [(f"input {name}", _value(value)) for name, value in place.inputs.items()]
    rows += [(name, _value(value)) for name, value in place.values.items()]
    rows += [(name, line(number_of(len(items), "item"))) for name, items in place.collections.items()]
    return [(escaped_lines(name), value) for name, value in rows]


def _definition(run: RunHistory) -> Rows:
    """Return what is known of the crew, flow or agent, and of its agents with their models."""
    definition = run.definition
    rows: Rows = [("kind", line(words.name_of(definition)))]
    for number, agent in enumerate(definition.get("agents", ())):
        rows.append(("" if number else "agents", line(*_agent(agent))))
    if kinds.has_methods(definition):
        rows.append(("methods", Text(escaped_lines(", ".join(map(str, definition["methods"]))))))
    return rows


def _agent(agent: Mapping[str, Any]) -> Iterator[Any]:
    yield str(agent.get("role", "agent"))
    live = agent.get("live", {})
    model = live.get("llm") if isinstance(live, dict) else None
    if isinstance(model, str):
        yield (f"  {model}", "dim")


def _run(run: RunHistory) -> Rows:
    status = run.status_text
    by = f" ({run.at_work})" if run.at_work else ""
    rows: Rows = [("status", line(mark(status), " ", (status, style_of(status)), by))]
    if run.because:
        rows.append(("because", Text(escaped_lines(cut(run.because, _LONG)))))
    for asked in run.waiting:
        wanted = what_fits(asked.schema)
        rows.append(("waits for", Text(escaped_lines(f"{asked.address}: {asked.question.strip()}"))))
        rows.append(("", line((f"wanted: {wanted}", "dim"))))
    for given in run.unused_answers:
        answer = words.beginning(words.compact(given.value))
        rows.append(("answered", Text(escaped_lines(f"{given.address}: {answer}"))))
        rows.append(("", line(("not used yet", "dim"))))
    rows.append(("begun", Moment(run.started_at)))
    if run.base:
        rows.append(("forked from", line(words.place_of(run.base))))
    rows.append(("usage", Text(words.spent(run.usage))))
    if (abandoned := run.abandoned_usage).requests:
        rows.append(("abandoned", Text(f"of these, {words.spent(abandoned)}")))
    for role, used in run.usage.by_agent.items():
        rows.append(("", line(f"{role}: ", (number_of(used.total_tokens, "token"), "dim"))))
    return rows


def _value(value: Any) -> Text:
    text = escaped_lines(value if isinstance(value, str) else words.compact(value))
    return Text(text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters)")


@dataclass(frozen=True, slots=True)
class Row:
    """One step. `begins` and `ends` are fractions of the time that the run was at work."""

    address: str
    name: str
    depth: int
    status: str
    seconds: float
    tokens: int
    cost: float | None
    begins: float
    ends: float
    later: bool
    """Whether it finished after the place that is shown."""
    line: str
    """The beginning of its outcome."""


def timeline(run: RunHistory, steps: Sequence[StepView], sums: Mapping[str, Usage], at: int | None = None) -> list[Row]:
    """Return the steps of a run, each before those inside it. `at` is the commit that is shown; None for the head.

    `sums`: the usage of steps with all steps inside them.
    """
    time = _WorkingTime([(one.started_at, one.ended_at) for one in steps if one.started_at and one.ended_at])
    views, rows = {one.address: one for one in steps}, []
    for address in as_tree(views):
        step = views.get(address)
        depth = address.count("/") + 1 if address else 0
        name = leaf(address) or words.root_name(run)
        used = sums[address] if address in sums else views[address].usage
        if step is None:
            paid = used.total_tokens, used.cost
            status = status_without_step(address, views)
            rows.append(Row(address, name, depth, status, 0.0, *paid, 0.0, 0.0, at is not None, ""))
            continue
        begins, ends = (time.at(step.started_at), time.at(step.ended_at)) if step.ended_at else (0.0, 0.0)
        later = at is not None and (step.seq is None or step.seq > at)
        numbers = step.seconds, used.total_tokens, used.cost, begins, ends
        rows.append(Row(address, name, depth, step.status_text, *numbers, later, words.first_line(step)))
    return rows


def bar(row: Row, width: int) -> tuple[str, str, str]:
    """Return the bar of a step in so many characters: the space before it, the bar, and the space after it."""
    if row.ends <= 0.0:
        return " " * width, "", ""
    first = min(width - 1, int(row.begins * width))
    length = max(1, min(width - first, round((row.ends - row.begins) * width)))
    return " " * first, "━" * length, " " * (width - first - length)


class _WorkingTime:
    """The time covered by some spans, as fractions from 0 to 1."""

    def __init__(self, spans: Sequence[tuple[datetime, datetime]]) -> None:
        joined: list[list[datetime]] = []
        for began, ended in sorted(spans):
            if joined and began <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], ended)
            else:
                joined.append([began, ended])
        self._begins = [began for began, _ in joined]
        lengths = [(ended - began).total_seconds() for began, ended in joined]
        self._before = [0.0, *accumulate(lengths)]
        self._lengths = lengths

    def at(self, moment: datetime | None) -> float:
        number = bisect_right(self._begins, moment) - 1 if moment else -1
        if moment is None or number < 0 or not self._before[-1]:
            return 0.0 if moment is None or number < 0 else 1.0
        inside = min((moment - self._begins[number]).total_seconds(), self._lengths[number])
        return (self._before[number] + inside) / self._before[-1]


@dataclass(frozen=True, slots=True)
class Field:
    """A value with its name: of an input, or the address of a step."""

    name: str
    text: str
    """The value as a text, or, if `is_json`, as JSON."""
    option: str
    """The option of `crewlite checkpoint fork` that changes it."""
    is_json: bool = False
    fixed: str = ""
    """Why it cannot be edited here; "" if it can."""

    def word(self, text: str) -> list[str]:
        """Return the words of the command line that set another value. Raises ValueError for text that is no JSON.

        RecursionError for text that is nested too deeply.
        """
        if self.option == "--message":
            return [f"--message={text}"]
        if self.is_json:
            value = json.loads(text)
        elif not text.startswith("@"):  # which would name a file
            return [f"{self.option}={self.name}={text}"]
        else:
            value = text
        return [f"{self.option}={self.name}:={json.dumps(value)}"]


def inputs_of(run: RunHistory) -> list[Field]:
    """Return the inputs of a run; for an agent, the message to ask next, which is empty."""
    if kinds.of(run.definition["kind"]).takes_messages:
        return [Field("message", "", "--message")]
    return [_field(name, value, "--input") for name, value in run.inputs.items()]


def outputs_of(steps: Sequence[StepView], at: int | None = None) -> list[Field]:
    """Return the outcomes of the outermost steps, such as tasks and methods, as of the commit `at`; None: of all."""
    done = [one for one in steps if one.status == "finished" and one.address and "/" not in one.address]
    return [_output(one) for one in done if at is None or (one.seq or 0) <= at]


def _output(step: StepView) -> Field:
    kind, value = kinds.of(step.kind), step.value
    if not kind.holds_value and isinstance(value, dict):
        value = next((value[name] for name in ("raw", "text", "answer") if name in value), value)
    fixed = "" if can_edit(kind) else f"the outcome of {an(kind.title)} step cannot be edited"
    return _field(step.address, value, "--edit", fixed)


def _field(name: str, value: Any, option: str, fixed: str = "") -> Field:
    text, is_json = as_text(value)
    if len(text) > LONGEST:
        fixed = fixed or f"it has {len(text):,} characters: edit it with crewlite checkpoint fork {option} {name}=@FILE"
        text = shown(text)
    return Field(name, text, option, is_json, fixed)


def as_text(value: Any) -> tuple[str, bool]:
    """Return a value as a text, and whether that is JSON. A text with control characters becomes JSON too."""
    if isinstance(value, str) and all(c.isprintable() or c == "\n" for c in value):
        return value, False
    text = json.dumps(document.plain(value), ensure_ascii=False, indent=None if isinstance(value, str) else 2)
    if not all(c.isprintable() or c == "\n" for c in text):
        text = json.dumps(document.plain(value), indent=None if isinstance(value, str) else 2)
    return text, True
