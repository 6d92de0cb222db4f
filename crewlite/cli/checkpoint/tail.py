"""`crewlite checkpoint tail`: the events of a run as lines, as they are recorded, also of a run of another process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from crewlite.cli.checkpoint.screen import Screen
from crewlite.cli.checkpoint.where import Asked, Opened, options, ref_argument
from crewlite.cli.checkpoint.words import root_name
from crewlite.cli.exits import notice
from crewlite.cli.output import Output
from crewlite.system.steady_clock import steady

if TYPE_CHECKING:
    from crewlite.state.format.outcome import LightEvent
    from crewlite.state.run_history import RunHistory

_LAST = 10  # events that are shown before those to come
_GLANCE = 0.2  # seconds between two looks at the time of the last commit
_SHARE = 4  # how much longer than a reading of the run the pause after it is, at least
_SETTLED = 2.0  # seconds after which a commit has another time than the one before, on every file system
_ALIVE = 1.0  # seconds after which is looked whether the process of the run still lives


@click.command()
@ref_argument("ref", "[REF]")
@click.option("--last", type=click.IntRange(min=0), default=_LAST, help=f"Events to begin with. [default: {_LAST}]")
@click.option("--all", "whole", is_flag=True, help="Begin with the first event of the run.")
@options(json="One JSON line per event, then one with the status.")
def tail(asked: Asked, ref: str | None, last: int, whole: bool) -> None:
    """Follow a run, whichever process is at work on it: its events, as they are recorded.

    REF is a run or run/branch; without it, the newest run. It begins with the last events, and ends when the run ends,
    waits for a person, or was cut. It changes nothing, and Ctrl-C ends only the following.
    """
    with asked.open(ref) as opened:
        out: Output | Screen = Output(sys.stdout, True) if asked.as_json else Screen()
        found = opened.run()
        begun = found.events()
        for event in begun if whole else begun[max(0, len(begun) - last) :]:
            _tell(out, found, event)
        told = {event.event_id for event in begun}  # a compaction gives events the number of a later commit
        for run in _readings(opened, found):
            for event in run.events():
                if event.event_id not in told:
                    told.add(event.event_id)
                    _tell(out, run, event)
        if isinstance(out, Output):
            out.tell({"type": "end", "run_id": run.run_id, "branch": run.branch, "status": run.status})
        else:
            notice(f"{run.ref} {_ended(run)}")


def _readings(opened: Opened, run: RunHistory) -> Iterator[RunHistory]:
    """Yield the run, and anew after each change, until no process is at work on it."""
    while True:
        touched, began = run.touched(), steady()
        now = opened.history.run(run.ref)
        yield now
        if not now.at_work and run.touched() == touched:  # else its process has recorded more before it ended
            return
        time.sleep(max(_GLANCE, _SHARE * (steady() - began)))
        settles, looked = time.time() - touched < _SETTLED, steady()
        while run.touched() == touched and not settles and steady() - looked < _ALIVE:
            time.sleep(_GLANCE)


def _tell(out: Output | Screen, run: RunHistory, event: LightEvent) -> None:
    if isinstance(out, Output):
        return out.tell({**event._asdict(), "run_id": run.run_id, "branch": run.branch})
    when = (event.timestamp, "dim")
    return out.line(f"{event.seq:>4}  ", when, f"  {event.type}  {event.address or root_name(run)}", whole=True)


def _ended(run: RunHistory) -> str:
    if run.waiting and run.status == "waiting":
        return f"waits for an answer: {', '.join(one.address for one in run.waiting)}"
    if run.stopped_by:
        return f"has stopped: {run.stopped_by}"
    return {"finished": "is finished", "failed": "has failed", "cancelled": "is cancelled"}.get(
        run.status, "is unfinished, and no process is at work on it"
    )
