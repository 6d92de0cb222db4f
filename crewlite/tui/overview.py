"""The overview of a place: the checkpoint, the state of the run at it, its progress, and the run as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.text import Text

from crewlite import kinds
from crewlite.cli.checkpoint.words import ago, beginning, compact, iso, name_of, shortened, spent
from crewlite.console.text import style_of
from crewlite.ids import short
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.wanted import what_fits
from crewlite.state.run_history import RunHistory
from crewlite.tui.words import line, mark, plain
from crewlite.wording import cut, number_of

Rows = list[tuple[str, "Text | Moment"]]
"""Names and values. A row without a name goes on with the value above it."""
_BAR = 20  # characters of the bar of progress
_TASKS = 40  # that are listed one by one
_LONG = 400  # characters of a value of the state


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, with how long ago that is whenever it is drawn."""

    at: datetime

    def __rich__(self) -> Text:
        return line(f"{ago(self.at)}  {iso(self.at)}")


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
    rows: Rows = [
        ("branch", line((f"{run.run_id}/{run.branch}", "bold"))),
        ("checkpoint", line((short(checkpoint.id), "cyan"), f"  version {checkpoint.version}")),
        ("made by", line(f"{checkpoint.trigger}{at}")),
        ("created", Moment(checkpoint.created_at)),
        ("parent", line(short(checkpoint.parent_id) if checkpoint.parent_id else "none, it is the first")),
    ]
    if checkpoint.label:
        rows.append(("label", line((checkpoint.label, "magenta"))))
    if checkpoint.metadata:
        rows.append(("metadata", Text(plain(shortened(checkpoint.metadata)))))
    return rows


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
    return [(plain(name), value) for name, value in rows]


def _definition(run: RunHistory) -> Rows:
    """Return what is known of the crew, flow or agent, and of its agents with their models."""
    definition = run.definition
    rows: Rows = [("kind", line(name_of(definition)))]
    for number, agent in enumerate(definition.get("agents", ())):
        rows.append(("" if number else "agents", line(*_agent(agent))))
    if kinds.has_methods(definition):
        rows.append(("methods", Text(plain(", ".join(map(str, definition["methods"]))))))
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
    if run.status == "failed" and (own := [one for one in run.attempts if not one.address]):
        rows.append(("because", Text(plain(cut(f"{own[-1].error_type}: {own[-1].message}", _LONG)))))
    if run.stopped_by:
        rows.append(("stopped by", Text(plain(run.stopped_by))))
    for asked in run.waiting:
        wanted = what_fits(asked.schema)
        rows.append(("waits for", Text(plain(f"{asked.address}: {asked.question.strip()}"))))
        rows.append(("", line((f"wanted: {wanted}", "dim"))))
    for given in run.unused_answers:
        rows.append(("answered", Text(plain(f"{given.address}: {beginning(compact(given.value))}"))))
        rows.append(("", line(("not used yet", "dim"))))
    rows.append(("begun", Moment(run.started_at)))
    if base := run.base:
        at = f"checkpoint {short(base.checkpoint_id)}" if base.checkpoint_id else f"commit {base.seq}"
        rows.append(("forked from", line(f"{base.branch} at {at}")))
    rows.append(("usage", Text(spent(run.usage))))
    for role, used in run.usage.by_agent.items():
        rows.append(("", line(f"{role}: ", (number_of(used.total_tokens, "token"), "dim"))))
    return rows


def _value(value: Any) -> Text:
    text = plain(value if isinstance(value, str) else compact(value))
    return Text(text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters)")
