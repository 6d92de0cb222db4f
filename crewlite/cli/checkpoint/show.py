"""`crewlite checkpoint show`: one run, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from crewlite import kinds
from crewlite.cli.checkpoint import document, hints
from crewlite.cli.checkpoint.document import compact
from crewlite.cli.checkpoint.info import name_of, shortened, spent
from crewlite.cli.checkpoint.screen import STYLES, Column, Part, Screen, ago, cost, duration, iso
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument
from crewlite.cli.exits import Failed, notice
from crewlite.ids import short
from crewlite.state.format.addresses import around, hollow, in_order, leaf
from crewlite.state.format.entry import STATE
from crewlite.wording import cut

if TYPE_CHECKING:
    from crewlite.state.format.outcome import Attempt
    from crewlite.state.reading.steps import StepView
    from crewlite.state.run_history import RunHistory
    from crewlite.usage import Usage

_STEPS = (
    Column("step", least=16),
    Column("kind", spare=3),
    Column("status"),
    Column("tries", right=True),
    Column("time", right=True, spare=1),
    Column("tokens", right=True),
    Column("cost", right=True, spare=2),
    Column("value", least=12),
)
_EVENTS = (Column("seq", right=True), Column("when"), Column("event", least=16), Column("address", least=16))
_SNAPSHOTS = (
    Column("version", right=True),
    Column("id"),
    Column("label", least=8),
    Column("when", spare=1),
    Column("values", least=12),
)
_FIRST = 200  # characters of a value that its line in the table is made from


@click.command()
@ref_argument("what", "[RUN_OR_LOCATION]")
@click.option("--step", "address", metavar="ADDRESS", help="Only this step: all that is recorded of it.")
@click.option("--events", is_flag=True, help="Only the events, in order.")
@options()
def show(asked: Asked, what: str | None, address: str | None, events: bool) -> None:
    """Show one run: its steps, failed attempts, events.

    The newest run, unless a run, run/branch or a checkpoint of it is named. RUN@ADDRESS shows one step, as --step does.
    """
    if address is not None and events:
        raise click.UsageError("--step shows one step, --events the history of all: take one of them.")
    with asked.open(what) as opened:
        run, named = _named(opened)
        address = named if address is None and not events else address
        if address is not None:
            _show_step(asked, opened, run, address)
        elif events:
            _show_events(asked, opened, run)
        elif asked.as_json:
            usage_of = {at: used for at, used in _sums(run).items() if at}  # that of the run is its `usage`
            about = document.of_run(run, usage_of=usage_of, steps=run.steps, attempts=run.attempts)
            document.answer({"location": opened.location, **about})
        else:
            _show_run(Screen(), opened, run)


def _named(opened: Opened) -> tuple[RunHistory, str | None]:
    """Return the requested run, and the address of a step if that is the part of the ref after the @."""
    name, at, address = (opened.ref or "latest").partition("@")
    if at and ":" in address and not address.startswith("label:"):
        run = opened.history.run(name or "latest")
        if address in {step.address for step in run.steps}:
            return run, address
    return opened.history.run(opened.ref or "latest"), None


def _show_run(screen: Screen, opened: Opened, run: RunHistory) -> None:
    status = run.status
    now = (hints.status_of_run(run), STYLES[status])
    screen.line(screen.mark(status), " ", (run.ref, "bold"), "  ", now, whole=True)
    begun = f"{iso(run.started_at)} ({ago(run.started_at)})" if screen.terminal else iso(run.started_at)
    base = run.base
    stands = (
        f"{base.branch} at {short(base.checkpoint_id) if base.checkpoint_id else f'commit {base.seq}'}" if base else ""
    )
    rows: list[tuple[str, Part]] = [
        ("because", _why(run) if status == "failed" else run.stopped_by or ""),
        ("definition", name_of(run.definition)),
        ("begun", begun),
        ("forked from", stands),
        ("inputs", shortened(run.inputs) if run.inputs else "none"),
        ("usage", spent(run.usage)),
    ]
    screen.fields(rows, indent=2)
    if run.steps:
        screen.line()
        _table(screen, run)
    elif run.definition["kind"] == STATE:
        screen.line()
        _snapshots(screen, run)
    elif not run.waiting:
        screen.line()
        screen.line(("no step has finished yet", "dim"))
    if run.attempts:
        screen.line()
        screen.line(("failed attempts", "bold"))
        for attempt in run.attempts:
            _attempt(screen, run, attempt)
    if status != "finished":
        screen.line()
        hints.tell(screen, opened, run)


def _table(screen: Screen, run: RunHistory) -> None:
    """Print the steps, with a column of types if one has a type. A step shows the usage of all steps inside it."""
    views, sums = {step.address: step for step in run.steps}, _sums(run)
    ordered = [(address, views.get(address)) for address in in_order(views)]
    rows = [_row(screen, run, at, step, sums[at] if at in sums else views[at].usage) for at, step in ordered]
    if not any(step.type for step in views.values()):
        return screen.table(_STEPS, rows)
    types = [(step.type or "") if step else "" for _, step in ordered]
    typed = [[*row[:2], kind, *row[2:]] for row, kind in zip(rows, types, strict=True)]
    return screen.table([*_STEPS[:2], Column("type", spare=4), *_STEPS[2:]], typed)


def _sums(run: RunHistory) -> dict[str, Usage]:
    """Return the usage of the run, under "", and of each step that encloses others, with all steps inside it.

    Those inside may not be listed any more: pruning removes them, and not what they have used.
    """
    hollow = [step.address for step in run.steps if not step.usage.requests and run.usage_of(step.address).requests]
    return {address: run.usage_of(address) for address in ("", *around(step.address for step in run.steps), *hollow)}


def _snapshots(screen: Screen, run: RunHistory) -> None:
    """Print the checkpoints of a state, with the names of the values in each."""
    rows: list[list[Part]] = [
        [
            str(one.version),
            (short(one.id), "cyan"),
            one.label or "",
            screen.when(one.created_at),
            ", ".join(one.coded_values()),
        ]
        for one in run.checkpoints()
    ]
    if rows:
        screen.table(_SNAPSHOTS, rows)
    else:
        screen.line(("no snapshot was made yet", "dim"))


def _why(run: RunHistory) -> str:
    """Return the error of the run's last failure, in one line."""
    last = [attempt for attempt in run.attempts if not attempt.address][-1]
    return _cut(f"{last.error_type}: {last.message}")


def _row(screen: Screen, run: RunHistory, address: str, step: StepView | None, used: Usage) -> list[Part]:
    depth = address.count("/") + 1 if address else 0
    own = leaf(address) if screen.terminal else address  # a pipe has room for the complete address
    name = "  " * depth + (own or root_name(run))
    tokens = f"{used.total_tokens:,}" if used.requests else ""
    if step is None:
        return [name, "", ("unfinished", STYLES["unfinished"]), "", "", tokens, cost(used.cost), ""]
    status = status_of(step)
    tries = len(step.attempts) + (status == "finished")
    tried = str(tries) if tries > 1 or not screen.terminal else ""
    numbers: list[Part] = [tried, duration(step.milliseconds), tokens, cost(used.cost)]
    return [name, step.kind, (status, STYLES[status]), *numbers, first_line(step)]


def status_of(step: StepView) -> str:
    """Return the status of a step, or where else its outcome is from: "edited" or "reused"."""
    return "edited" if step.edited else "reused" if step.reused_from else step.status


def root_name(run: RunHistory) -> str:
    """Return the name of the run itself among its steps, such as "the crew"."""
    return f"the {run.definition['kind']}"


def first_line(step: StepView) -> str:
    """Return the beginning of the outcome of a step, or of its last failure, in one line."""
    if step.repeatable:
        return "cut; made again when the run goes on"
    if step.status != "finished":
        return _cut(step.attempts[-1].message) if step.attempts else ""
    if kinds.of(step.kind) is kinds.CREW:
        return ""  # its value consists of the values of its tasks
    value = step.value
    if isinstance(value, dict):
        value = next((value[name] for name in ("raw", "text") if value.get(name)), _calls(value) or value)
    return _cut(value if isinstance(value, str) else compact(value))


def _cut(text: str) -> str:
    return cut(text.strip().partition("\n")[0], _FIRST)


def _calls(value: dict[str, Any]) -> str:
    """Return the tool calls that a model requested, as text; "" if it requested none."""
    calls = value.get("tool_calls")
    return ", ".join(f"{call[0]}({compact(call[1])})" for call in calls) if isinstance(calls, list) else ""


def _attempt(screen: Screen, run: RunHistory, attempt: Attempt, *, whole: bool = False) -> None:
    what = attempt.address or root_name(run)
    after = "not decided yet" if attempt.undecided else "given up" if attempt.final else "tried again"
    about = ", ".join(filter(None, (f"try {attempt.number}", attempt.model, after)))
    screen.line(f"  {what}  ", (about, "dim"), whole=True)
    if whole:
        rows: list[tuple[str, Part]] = [
            ("began", iso(attempt.started_at)),
            ("ended", f"{iso(attempt.ended_at)}, after {duration(attempt.milliseconds)}"),
            ("usage", spent(attempt.usage) if attempt.usage.requests else ""),
        ]
        screen.fields(rows, indent=4)
    message = f"because {attempt.cause} failed" if attempt.cause else f"{attempt.error_type}: {attempt.message}"
    screen.block(message, indent=4)


def _show_step(asked: Asked, opened: Opened, run: RunHistory, address: str) -> None:
    step = _find(run, address)
    if asked.as_json:
        about: dict[str, object] = {"location": opened.location, "run_id": run.run_id, "branch": run.branch}
        return document.answer({**about, "usage_of": {step.address: run.usage_of(step.address)}, "step": step})
    screen = Screen()
    screen.line((step.address or root_name(run), "bold"), "  ", (status_of(step), STYLES[status_of(step)]), whole=True)
    used = run.usage_of(step.address)
    rows: list[tuple[str, Part]] = [
        ("kind", step.kind),
        ("type", step.type or ""),
        ("model", step.model or ""),
        ("began", iso(step.started_at) if step.started_at else ""),
        ("ended", iso(step.ended_at) if step.ended_at else ""),
        ("reused from", step.reused_from or ""),
        ("time", duration(step.milliseconds)),
        ("usage", spent(used) if used.requests else ""),
    ]
    screen.fields(rows, indent=2)
    if step.status == "finished":
        screen.line()
        _value(screen, step.value)
    for attempt in step.attempts:
        screen.line()
        _attempt(screen, run, attempt, whole=True)
        if attempt.traceback:
            screen.block(attempt.traceback, indent=4)
    return None


def _find(run: RunHistory, address: str) -> StepView:
    """Return the step at an address, or the only one whose address ends in it. Raises Failed."""
    steps = {step.address: step for step in run.steps}
    wanted = "" if address in (root_name(run), run.definition["kind"]) else address
    if wanted in steps:
        return steps[wanted]
    ends = [step for name, step in steps.items() if wanted and name.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0]
    if outcome := hollow(address, steps):
        raise Failed(f"{address!r} is inside {outcome}, of which only the outcome is recorded; a prune drops the rest.")
    near = [step.address for step in ends] or [name for name in steps if name]
    problem = f"names {len(ends)} steps" if ends else "names no step that is recorded"
    raise Failed(f"{address!r} {problem} of {run.run_id}/{run.branch}. Candidates: {', '.join(near[:12])}.")


def _value(screen: Screen, value: Any) -> None:
    """Print a complete value: texts as they are, other data as JSON."""
    if isinstance(value, str):
        return screen.block(value)
    if not isinstance(value, dict):
        return screen.block(compact(value))
    for name, item in value.items():
        if isinstance(item, str) and ("\n" in item or len(item) > screen.width - len(str(name)) - 2):
            screen.line((f"{name}:", "bold"), whole=True)
            screen.block(item, indent=2)
        else:
            screen.line((f"{name}:", "bold"), " ", item if isinstance(item, str) else compact(item), whole=True)
    return None


def _show_events(asked: Asked, opened: Opened, run: RunHistory) -> None:
    events = run.events()
    if asked.as_json:
        return document.answer(
            {"location": opened.location, "run_id": run.run_id, "branch": run.branch, "events": events}
        )
    if not events:
        return notice(f"No events of {run.run_id}/{run.branch} are recorded yet.")
    screen = Screen()
    rows: list[list[Part]] = [[str(e.seq), (e.timestamp, "dim"), e.type, e.address or root_name(run)] for e in events]
    screen.table(_EVENTS, rows)
    return None
