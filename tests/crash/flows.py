"""Random flows of methods with crews, agents and flows inside, killed at random instants, and gone on with.

The first kill comes at a commit, so that no flow is too fast for it; the others come after a random time.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if any
promise was broken: {"flows": 120, "kills": 310, "violations": [...]}.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import jinja2.sandbox  # noqa: F401 - loaded before the forks, once, as are all these
import sqlite_utils  # noqa: F401
from hypothesis import HealthCheck, Phase, given, seed, settings

import crewlite.agent.root
import crewlite.crew.root
import crewlite.flow.classes.root
import crewlite.flow.root
import crewlite.runtime.kickoffs.engine
import crewlite.runtime.main_thread.sync_bridge  # noqa: F401
from crewlite import CheckpointConfig, event_bus
from crewlite.errors import TooManyCalls
from crewlite.events import (
    BaseEvent,
    LLMCallCompletedEvent,
    MethodExecutionFinishedEvent,
    StepCompletedEvent,
    TaskCompletedEvent,
)
from crewlite.state.format.record import Record
from crewlite.state.providers import provider_for
from tests.class_flows.graphs import Plan, World, causes, flow_of, lived, plans
from tests.crash.nursery import Yard, child
from tests.cuts import RUN

COMMITTED = LLMCallCompletedEvent, MethodExecutionFinishedEvent, StepCompletedEvent, TaskCompletedEvent
LIVES = 4  # of each flow, the last of which nobody kills


class Noted(World):
    """A world that survives its process."""

    def __init__(self, yard: Yard, life: int) -> None:
        super().__init__()
        self.yard, self.life = yard, life

    def note(self) -> str:
        address = super().note()
        self.yard.note("done", str(self.life), address)
        return address


def live(plan: Plan, yard: Yard, location: Path, life: int, last: int = 0) -> None:
    """One life, in a child process. Writes what the flow comes to if it gets that far. It dies at commit `last`, if any."""
    left = itertools.count(last - 1, -1)

    def committed(source: object, event: BaseEvent) -> None:
        yard.note("committed", str(life), event.address)
        if not next(left):
            os.kill(os.getpid(), signal.SIGKILL)

    for kind in COMMITTED:
        event_bus.on(kind, committed)
    try:
        result, state, said = lived(plan, Noted(yard, life), CheckpointConfig(location=location))
    except TooManyCalls:
        found = "too many calls"
    else:
        del state["id"]  # of each run another
        found = json.dumps([result, state, said], sort_keys=True)
    (yard.directory / "result.json").write_text(found)


def record_of(location: Path) -> Record | None:
    """The run as the dead left it."""
    if not location.exists():
        return None
    with contextlib.closing(provider_for(str(location), None).open(str(location))) as store:
        entries = store.read(RUN, "main") if store.branches() else []
    return Record.of(entries) if entries else None


def trial(plan: Plan, directory: Path, suffix: str, chance: random.Random) -> tuple[int, list[str]] | None:
    """Live once without being killed; then be killed, and go on until it is done. How often, and what was broken.

    None for a flow that makes too many calls to come to a result.
    """
    whole, yard = Yard(directory / "whole"), Yard(directory / "killed")
    begun = time.perf_counter()
    assert child(lambda: live(plan, whole, whole.directory / f"store{suffix}", 0)) == 0, "the whole run failed"
    length, location = time.perf_counter() - begun, yard.directory / f"store{suffix}"
    expected = (whole.directory / "result.json").read_text()
    if expected == "too many calls":
        return None
    commits, kills, broken = len(whole.notes("committed")), 0, list[str]()
    for life in range(LIVES):
        record = record_of(location)
        recorded = set(record.outcomes) if record else set()
        if lost := {address for _, address in yard.notes("committed")} - recorded - {""}:
            broken.append(f"committed and lost: {sorted(lost)}")
        last = chance.randint(1, commits) if life == 0 else 0
        patience = chance.uniform(0, length) if 0 < life < LIVES - 1 else None
        status = child(lambda life=life, last=last: live(plan, yard, location, life, last), patience)
        if repeated := {address for number, address in yard.notes("done") if number == str(life)} & recorded:
            broken.append(f"recorded, and done again: {sorted(repeated)}")
        if os.WIFSIGNALED(status):
            kills += 1
        elif status:
            return kills, [*broken, f"life {life} ended with status {os.waitstatus_to_exitcode(status)}"]
        else:
            break
    if (yard.directory / "result.json").read_text() != expected:
        broken.append("another result, state or feedback than the uninterrupted run")
    if {at for _, at in yard.notes("done")} != {at for _, at in whole.notes("done")}:
        broken.append("something else was done than in the uninterrupted run")
    record, made = record_of(location), flow_of(plan, World())
    assert record and made
    for address, (cause, _) in causes(made, record).items():
        if record.outcomes[address].provenance.get("by") != cause:
            broken.append(f"{address} has another cause than the order of the commits says")
    return kills, broken


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--flows", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    chance, count, kills, violations = random.Random(options.seed), 0, 0, list[str]()

    @seed(options.seed)
    @settings(
        max_examples=options.flows * 3,  # of many a plan no class can be made, and some have no end
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(plans(nested=True))
    def kill(plan: Plan) -> None:
        nonlocal count, kills
        if count >= options.flows or flow_of(plan, World()) is None:
            return
        directory = options.directory / f"flow{count}"
        tried = trial(plan, directory, "" if count % 2 else ".db", chance)
        shutil.rmtree(directory)
        if tried:
            count, kills = count + 1, kills + tried[0]
            violations.extend(f"{plan}: {text}" for text in tried[1])

    kill()
    print(json.dumps({"flows": count, "kills": kills, "violations": violations[:20]}))
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
