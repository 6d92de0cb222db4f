"""`crewlite checkpoint info`: one checkpoint, and the lines that go on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from crewlite.cli.checkpoint import document, hints
from crewlite.cli.checkpoint.document import beginning, compact
from crewlite.cli.checkpoint.screen import Part, Screen, ago, cost, iso
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument
from crewlite.ids import short
from crewlite.wording import number_of

if TYPE_CHECKING:
    from crewlite.state.reading.checkpoint import Checkpoint
    from crewlite.state.run_history import RunHistory
    from crewlite.usage import Usage

_TASKS = 12  # that are listed one by one
_LONG = 2_000  # characters of values that are told whole


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
            now = {"location": opened.location, "status": run.status, "at_work": run.at_work, "waiting": run.waiting}
            return document.answer({**now, **document.of_checkpoint(found)})
        _show(Screen(), opened, found, run)
    return None


def _show(screen: Screen, opened: Opened, found: Checkpoint, run: RunHistory) -> None:
    named = opened.ref or opened.location
    if not any(part in named for part in (found.id, short(found.id), "@", "~")):
        where = f"of {named}" if opened.ref else f"in {opened.location}, {found.run_id}/{found.branch}"
        screen.line((f"the newest checkpoint {where}", "dim"), whole=True)
        screen.line()
    at = f" at {found.address}" if found.address else ""
    rows: list[tuple[str, Part]] = [
        ("checkpoint", (found.id, "cyan")),
        ("ref", found.ref),
        ("run", f"{found.run_id}/{found.branch}, now {hints.status_of_run(run)}"),
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
    if run.status != "finished":
        hints.tell(screen, opened, run, head="to go on with the run   ")
    line = hints.fork(opened, run, found)
    screen.line(("to try again from here  ", "dim"), line, whole=True)


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


def shortened(values: dict[str, Any]) -> str:
    """Names and values in one line; if that is long, the beginning of each long one, and how long it is."""
    text = compact(values)
    if len(text) <= _LONG:
        return text
    return ", ".join(f"{name}: {beginning(compact(value))}" for name, value in values.items())


def name_of(definition: dict[str, Any]) -> str:
    """Kind and name of a definition."""
    return f"{definition['kind']} {definition['name'] or ''}".rstrip()


def spent(usage: Usage) -> str:
    """Tokens, calls and cost in words."""
    parts = f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out"
    tokens, calls = number_of(usage.total_tokens, "token"), number_of(usage.requests, "call")
    return f"{tokens} ({parts}) in {calls}, cost {cost(usage.cost) or 'unknown'}"
