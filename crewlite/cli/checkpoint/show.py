"""`crewlite checkpoint show` and `info`: one run, step by step, and one checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.hints import Hints, status_of_run
from crewlite.cli.checkpoint.screen import Column, Part, Screen
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument
from crewlite.cli.checkpoint.words import (
    ago,
    beginning_of_line,
    compact,
    first_line,
    iso,
    name_of,
    place_of,
    root_name,
    shortened,
    spent,
    sums_of,
)
from crewlite.cli.exits import notice
from crewlite.console.text import style_of
from crewlite.errors import RefError
from crewlite.ids import short
from crewlite.pages.rendering import cost, duration
from crewlite.state.format.addresses import as_tree, leaf
from crewlite.state.format.entry import STATE
from crewlite.state.reading.missing import no_step
from crewlite.state.reading.steps import status_without_step

if TYPE_CHECKING:
    from crewlite.state.format.outcome import Attempt
    from crewlite.state.reading.checkpoint import Checkpoint
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
_TASKS = 12  # tasks of a checkpoint that are listed one by one


@click.command()
@ref_argument("what", "[REF_OR_LOCATION]")
@click.option("--step", "address", metavar="ADDRESS", help="Only this step: all that is recorded of it.")
@click.option("--events", is_flag=True, help="Only the events, in order.")
@options()
def show(asked: Asked, what: str | None, address: str | None, events: bool) -> None:
    """Show one run: its steps, failed attempts, events.

    The newest run, unless a run or run/branch is named; of a checkpoint, the run as it was there. RUN@ADDRESS shows one
    step, as --step does.
    """
    if address is not None and events:
        raise click.UsageError("--step shows one step, --events the history of all: pass only one of the two.")
    with asked.open(what) as opened:
        run, named = _named(opened)
        address = named if address is None and not events else address
        if address is not None:
            _show_step(asked, opened, run, address)
        elif events:
            _show_events(asked, opened, run)
        elif asked.as_json:
            usage_of = {at: used for at, used in sums_of(run).items() if at}  # that of the run is its `usage`
            about = document.of_run(run, usage_of=usage_of, steps=run.steps, attempts=run.attempts)
            opened.answer(**about)
        else:
            _show_run(Screen(), opened, run)


def _named(opened: Opened) -> tuple[RunHistory, str | None]:
    """Return the requested run, and the address of a step if that is the part of the ref after the @."""
    name, at, address = (opened.ref or "latest").partition("@")
    if at and ":" in address and not address.startswith("label:"):
        run = opened.history.run(name or "latest")
        if address in {step.address for step in run.steps}:
            return run, address
    return opened.history.run(opened.ref or "latest", as_of=True), None


def _show_run(screen: Screen, opened: Opened, run: RunHistory) -> None:
    status = run.status
    now = (f"{status_of_run(run)}{', as it was there' if run.as_of else ''}", style_of(status))
    screen.line(screen.mark(status), " ", (run.ref, "bold"), "  ", now, whole=True)
    begun = f"{iso(run.started_at)} ({ago(run.started_at)})" if screen.terminal else iso(run.started_at)
    rows: list[tuple[str, Part]] = [
        ("because", beginning_of_line(run.because or "")),
        ("definition", name_of(run.definition)),
        ("begun", begun),
        ("forked from", place_of(run.base) if run.base else ""),
        ("inputs", shortened(run.inputs) if run.inputs else "none"),
        ("usage", spent(run.usage)),
        ("abandoned", f"of these, {spent(abandoned)}" if (abandoned := run.abandoned_usage).requests else ""),
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
    if not (hints := Hints(opened, run)).finished:
        screen.line()
        hints.tell(screen)


def _table(screen: Screen, run: RunHistory) -> None:
    """Print the steps, with a column of types if one has a type. A step shows the usage of all steps inside it."""
    views, sums = {step.address: step for step in run.steps}, sums_of(run)
    ordered = [(at, views.get(at) or status_without_step(at, views)) for at in as_tree(views)]
    rows = [_row(screen, run, at, step, sums[at] if at in sums else views[at].usage) for at, step in ordered]
    if not any(step.type for step in views.values()):
        return screen.table(_STEPS, rows)
    types = [(step.type or "") if not isinstance(step, str) else "" for _, step in ordered]
    typed = [[*row[:2], kind, *row[2:]] for row, kind in zip(rows, types, strict=True)]
    return screen.table([*_STEPS[:2], Column("type", spare=4), *_STEPS[2:]], typed)


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


def _row(screen: Screen, run: RunHistory, address: str, step: StepView | str, used: Usage) -> list[Part]:
    """Return the cells of a step. `step`: its status if nothing more of it is recorded."""
    depth = address.count("/") + 1 if address else 0
    own = leaf(address) if screen.terminal else address  # a pipe has room for the complete address
    name = "  " * depth + (own or root_name(run))
    tokens = f"{used.total_tokens:,}" if used.requests else ""
    if isinstance(step, str):
        return [name, "", (step, style_of(step)), "", "", tokens, cost(used.cost), ""]
    status = step.status_text
    tries = len(step.attempts) + (status in ("finished", "unused"))
    tried = str(tries) if tries > 1 or not screen.terminal else ""
    numbers: list[Part] = [tried, duration(step.seconds), tokens, cost(used.cost)]
    return [name, step.kind, (status, style_of(status)), *numbers, first_line(step)]


def _attempt(screen: Screen, run: RunHistory, attempt: Attempt, *, whole: bool = False) -> None:
    what = attempt.address or root_name(run)
    after = "not decided yet" if attempt.undecided else "given up" if attempt.final else "tried again"
    about = ", ".join(filter(None, (f"try {attempt.number}", attempt.model, after)))
    screen.line(f"  {what}  ", (about, "dim"), whole=True)
    if whole:
        rows: list[tuple[str, Part]] = [
            ("began", iso(attempt.started_at)),
            ("ended", f"{iso(attempt.ended_at)}, after {duration(attempt.milliseconds / 1_000)}"),
            ("usage", spent(attempt.usage) if attempt.usage.requests else ""),
        ]
        screen.fields(rows, indent=4)
    message = f"because {attempt.cause} failed" if attempt.cause else f"{attempt.error_type}: {attempt.message}"
    screen.block(message, indent=4)


def _show_step(asked: Asked, opened: Opened, run: RunHistory, address: str) -> None:
    step = _find(run, address)
    if asked.as_json:
        usage_of = {step.address: run.usage_of(step.address)}
        return opened.answer(run_id=run.run_id, branch=run.branch, usage_of=usage_of, step=step)
    screen = Screen()
    screen.line(
        (step.address or root_name(run), "bold"), "  ", (step.status_text, style_of(step.status_text)), whole=True
    )
    used = run.usage_of(step.address)
    rows: list[tuple[str, Part]] = [
        ("kind", step.kind),
        ("type", step.type or ""),
        ("model", step.model or ""),
        ("began", iso(step.started_at) if step.started_at else ""),
        ("ended", iso(step.ended_at) if step.ended_at else ""),
        ("reused from", step.reused_from or ""),
        ("time", duration(step.seconds)),
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
    """Return the step at an address, or the only one whose address ends in it. Raises RefError."""
    steps = {step.address: step for step in run.steps}
    wanted = "" if address in (root_name(run), run.definition["kind"]) else address
    if wanted in steps:
        return steps[wanted]
    ends = [step for name, step in steps.items() if wanted and name.endswith(f"/{wanted}")]
    if len(ends) == 1:
        return ends[0]
    where = f"of {run.run_id}/{run.branch}"
    if ends:
        raise RefError(address, f"names {len(ends)} steps {where}", [step.address for step in ends])
    raise no_step(address, f"names no step that is recorded {where}", run.read()[1], list(filter(None, steps)))


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
        return opened.answer(run_id=run.run_id, branch=run.branch, events=[one._asdict() for one in events])
    if not events:
        return notice(f"No events of {run.run_id}/{run.branch} are recorded yet.")
    screen = Screen()
    rows: list[list[Part]] = [[str(e.seq), (e.timestamp, "dim"), e.type, e.address or root_name(run)] for e in events]
    screen.table(_EVENTS, rows)
    return None


@click.command()
@ref_argument("what", "[REF_OR_LOCATION]")
@options()
def info(asked: Asked, what: str | None) -> None:
    """Show one checkpoint, and how to go on from it.

    A checkpoint file, an id or 8 characters of one, run/branch@task:name, a label; of a run, a branch, a directory or
    a database, the newest one.
    """
    with asked.open(what) as opened:
        ref = opened.ref or _newest(opened) or "latest"
        run, identifier = opened.history.locate(ref)
        found = run.checkpoint(identifier) or opened.history.checkpoint(ref)  # which says that it is gone
        if run.ref != f"{found.run_id}/{found.branch}":
            run = opened.history.run(f"{found.run_id}/{found.branch}")
        if asked.as_json:
            now = {"status": run.status, "at_work": run.at_work, "waiting": run.waiting}
            return opened.answer(**now, **document.of_checkpoint(found))
        _show_checkpoint(Screen(), opened, found, run)
    return None


def _show_checkpoint(screen: Screen, opened: Opened, found: Checkpoint, run: RunHistory) -> None:
    named = opened.ref or opened.location
    if not any(part in named for part in (found.id, short(found.id), "@", "~")):
        where = f"of {named}" if opened.ref else f"in {opened.location}, {found.run_id}/{found.branch}"
        screen.line((f"the newest checkpoint {where}", "dim"), whole=True)
        screen.line()
    at = f" at {found.address}" if found.address else ""
    rows: list[tuple[str, Part]] = [
        ("checkpoint", (found.id, "cyan")),
        ("ref", found.ref),
        ("run", f"{found.run_id}/{found.branch}, now {status_of_run(run)}"),
        ("version", str(found.version)),
        ("trigger", f"{found.trigger}{at}"),
        ("created", f"{iso(found.created_at)} ({ago(found.created_at)})" if screen.terminal else iso(found.created_at)),
        ("parent", found.parent_id or "none, it is the first"),
        ("label", found.label or ""),
        ("abandoned", "yes: its branch has gone back to before it" if found.abandoned else ""),
        ("metadata", shortened(found.metadata) if found.metadata else ""),
        ("inputs", shortened(found.inputs) if found.inputs else "none"),
        ("values", shortened(found.values) if found.versions else ""),
        ("definition", name_of(found.definition)),
        ("usage", spent(found.usage)),
    ]
    screen.fields(rows)
    _tasks(screen, found)
    screen.line()
    hints = Hints(opened, run)
    if not hints.finished:
        hints.tell(screen, head="to go on with the run   ")
    screen.line(("to try again from here  ", "dim"), hints.fork_at(found.id), whole=True)


def _newest(opened: Opened) -> str | None:
    """The newest checkpoint of all runs and branches at a location; None if there is none."""
    for one in opened.history.checkpoints(limit=1):
        return f"{one.run_id}/{one.branch}" if one.abandoned else one.id
    return None


def _tasks(screen: Screen, found: Checkpoint) -> None:
    """The tasks of the definition, and those that it has no more."""
    known = [task["address"] for task in found.definition.get("tasks", ())]
    addresses = [*known, *(address for address in found.tasks if address not in known)]
    if len(addresses) > _TASKS:
        left = [address for address in addresses if address not in found.tasks]
        comes = f", then {', '.join(left[:3])}{' ...' if left[3:] else ''}" if left else ""
        return screen.fields([("tasks     ", f"{len(addresses) - len(left)} of {len(addresses)} finished{comes}")])
    for number, address in enumerate(addresses):
        done = address in found.tasks
        head = ("tasks       " if number == 0 else " " * 12, "dim")
        screen.line(
            head, screen.mark("finished" if done else "open"), f" {address}", ("" if done else " not done", "dim")
        )
    return None
