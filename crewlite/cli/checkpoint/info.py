"""`crewlite checkpoint info`: one checkpoint, and the lines that go on from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from crewlite.cli import questions
from crewlite.cli.checkpoint import document
from crewlite.cli.checkpoint.screen import Part, Screen, ago, cost, iso
from crewlite.cli.checkpoint.where import OPTIONS, Asked, Place, ref_argument
from crewlite.cli.places import DIRECTORY
from crewlite.cli.shell import shell_line
from crewlite.ids import short
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from crewlite.state.checkpoint import Checkpoint
    from crewlite.state.history import RunHistory
    from crewlite.usage import Usage

definitions = lazy("crewlite.cli.definitions")

_TASKS = 12  # that are listed one by one


@click.command()
@ref_argument("what", "[REF_OR_LOCATION]")
@OPTIONS
def info(asked: Asked, what: str | None) -> None:
    """Show one checkpoint, and how to go on from it.

    A checkpoint file, an id or a unique part of one, run/branch@task:name, a label; of a run, a branch, a directory or
    a database, the newest one.
    """
    with asked.open(what) as place:
        found = place.history.checkpoint(place.ref or "latest")
        run = place.history.run(f"{found.run_id}/{found.branch}")
        if asked.as_json:
            now = {"location": place.location, "status": run.status, "waiting": run.waiting}
            return document.answer({**now, **document.of_checkpoint(found)})
        _show(Screen(), place, found, run)
    return None


def _show(screen: Screen, place: Place, found: Checkpoint, run: RunHistory) -> None:
    named = place.ref or place.location
    if not any(part in named for part in (found.id, short(found.id), "@", "~")):
        screen.line((f"the newest checkpoint of {named}" if place.ref else _newest_in(place, found), "dim"), whole=True)
        screen.line()
    at = f" at {found.address}" if found.address else ""
    rows: list[tuple[str, Part]] = [
        ("checkpoint", (found.id, "cyan")),
        ("ref", found.ref),
        ("run", f"{found.run_id}/{found.branch}, now {run.status}"),
        ("trigger", f"{found.trigger}{at}"),
        ("created", f"{iso(found.created_at)} ({ago(found.created_at)})" if screen.terminal else iso(found.created_at)),
        ("parent", found.parent_id or "none, it is the first"),
        ("label", found.label or ""),
        ("metadata", compact(found.metadata) if found.metadata else ""),
        ("inputs", compact(found.inputs) if found.inputs else "none"),
        ("definition", name_of(found.definition)),
        ("usage", spent(found.usage)),
    ]
    screen.fields(rows)
    _tasks(screen, found)
    screen.line()
    waits(screen, place, run)
    if run.status != "finished":
        screen.line(("to go on with the run   ", "dim"), resuming(place, run), whole=True)
    screen.line(("to try again from here  ", "dim"), command(place, "fork", short(found.id)), whole=True)


def _newest_in(place: Place, found: Checkpoint) -> str:
    return f"the newest checkpoint of the newest run in {place.location}, {found.run_id}/{found.branch}"


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


def waits(screen: Screen, place: Place, run: RunHistory) -> None:
    """The questions that a run waits with, each with the line that answers it; nothing if there are none."""
    if not run.waiting:
        return
    screen.line(("waits for", "bold"))
    ref = going_on(run.run_id, run.branch)
    for line in questions.told(run.waiting, lambda address: command(place, "answer", ref, address, "VALUE")):
        screen.block(line, indent=2)
    screen.line()


def command(place: Place, verb: str, *words: str) -> str:
    """A line to copy: `crewlite checkpoint <verb> ...`, quoted for a shell."""
    where = [] if place.location == DIRECTORY else ["--location", place.location]
    return shell_line(["crewlite", "checkpoint", verb, *where, *words])


def resuming(place: Place, run: RunHistory) -> str:
    """The line that resumes a run. Of a flow it says where the function is, as no record holds it."""
    kind, name = run.definition["kind"], run.definition["name"]
    where = ["--crew", f"MODULE:{name}"] if kind == "flow" and not definitions.of_the_project() else []
    return command(place, "resume", going_on(run.run_id, run.branch), *where)


def going_on(run_id: str, branch: str) -> str:
    """The ref that a branch is resumed by."""
    return run_id if branch == "main" else f"{run_id}/{branch}"


def compact(value: Any) -> str:
    """A value in one line."""
    return json.dumps(document.plain(value), ensure_ascii=False)


def name_of(definition: dict[str, Any]) -> str:
    """Kind and name of a definition."""
    return f"{definition['kind']} {definition['name'] or ''}".rstrip()


def spent(usage: Usage) -> str:
    """Tokens, calls and cost in words."""
    parts = f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out"
    calls = f"{usage.requests:,} call{'' if usage.requests == 1 else 's'}"
    return f"{usage.total_tokens:,} tokens ({parts}) in {calls}, cost {cost(usage.cost) or 'unknown'}"
