"""A power cut after every operation on the disk: what was not synced is gone, what was acknowledged must not be.

The I/O door's log of a real run, or of something done to a location (see worlds.py), is replayed onto a disk that
forgets all that was not synced: data until the file's fsync, names until the directory's. A second disk is eager: it
keeps names at once and data late, as some file systems do. Prints JSON and exits with 1 if an acknowledged outcome was
ever lost, or anything torn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import worlds
from disks import after_the_cut
from nth import in_child
from worlds import ACTS, look_at, store_of

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.events import LLMCallCompletedEvent, TaskCompletedEvent
from crewlite.state.providers.json import JsonStore
from crewlite.system.disk import Operation
from crewlite.testing import CrashInjector, ScriptedLLM

Log = list[Operation | str]
DONE = ("fork", "thin", "prune", "delete", "import", "import-beside", "doctor", "export")


def live(location: Path) -> Log:
    """One run, and its log: operations, and the addresses of outcomes as they were acknowledged."""
    injector = CrashInjector()
    log: Log = injector.log
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "done " * 40))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=agent, context=[]) for n in range(5)]
    with event_bus.scoped() as bus, injector:
        for kind in (LLMCallCompletedEvent, TaskCompletedEvent):
            bus.on(kind, lambda source, event: log.append(event.address))
        config = CheckpointConfig(location=location, max_checkpoints=2)
        Crew(tasks=tasks, checkpoint=config).kickoff(run_id="cut")
    return log


def check(disk: Path, acknowledged: set[str]) -> list[str]:
    """The promises that such a disk breaks."""
    try:
        for file in disk.glob("*_*.json"):
            JsonStore(disk).check_file(file)
        if not (disk / "journal").exists():
            return [f"lost: {sorted(acknowledged)}"] if acknowledged else []
        with History(disk) as history:
            runs = history.runs()
            held = {step.address for step in runs[0].steps} if runs else set()
    except Exception as error:
        return [f"torn: {type(error).__name__}: {error}"]
    lost = acknowledged - held
    return [f"lost: {sorted(lost)}"] if lost else []


def cut_run(scratch: Path, *, eager: bool) -> tuple[int, list[str]]:
    root = scratch / "store"
    log = live(root)
    violations = []
    for cut in range(len(log) + 1):
        disk = scratch / f"disk{cut}"
        after_the_cut([item for item in log[:cut] if isinstance(item, Operation)], disk, root, eager=eager)
        acknowledged = {item for item in log[:cut] if isinstance(item, str)}
        violations += [f"cut {cut}: {text}" for text in check(disk, acknowledged)]
    return len(log) + 1, violations


def cut_act(name: str, template: Path, scratch: Path, *, eager: bool, every: int) -> tuple[int, list[str]]:
    """Do it once; then cut the power after each of its operations, look, and do it again."""
    act, start, clean = ACTS[name], scratch / "start", scratch / "clean"
    shutil.copytree(template, start)
    if act.empty:
        shutil.rmtree(store_of(start, "json"))
    worlds.prepare(name, start, "json")
    shutil.copytree(start, clean)
    before = look_at(store_of(start, "json"))
    with CrashInjector() as injector:
        act.do(clean, "json")
    after = look_at(store_of(clean, "json"))
    violations = []
    cuts = sorted({*range(0, len(injector.log), every), len(injector.log)})
    for cut in cuts:
        world = scratch / f"world{cut}"
        after_the_cut(injector.log[:cut], world, clean, eager=eager, before=start)
        try:
            found = look_at(store_of(world, "json"))
            broken = act.judge(before, after, found)
            if cut == len(injector.log):
                broken += act.done(after, found)
            act.do(world, "json")
            broken += act.done(after, look_at(store_of(world, "json")))
        except Exception as error:
            broken = [f"torn: {type(error).__name__}: {error}"]
        violations += [f"{name}, cut {cut}: {text}" for text in broken]
        shutil.rmtree(world)
    return len(cuts), violations


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--acts", default=",".join(DONE))
    parser.add_argument("--disks", default="lazy,eager")
    parser.add_argument("--every", type=int, default=1, help="cut only after every so many-th operation, and the last")
    options = parser.parse_args()
    cuts, violations = {}, []
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory).resolve()
        template = scratch / "template"
        template.mkdir()
        in_child(lambda: worlds.make(template, "json"))
        for kind in options.disks.split(","):
            eager = kind == "eager"
            for name in ("kickoff", *filter(None, options.acts.split(","))):
                there = scratch / kind / name
                there.mkdir(parents=True)
                if name == "kickoff":
                    count, broken = cut_run(there, eager=eager)
                else:
                    count, broken = cut_act(name, template, there, eager=eager, every=options.every)
                cuts[name] = cuts.get(name, 0) + count
                violations += [f"{kind}: {text}" for text in broken]
    print(json.dumps({"cuts": sum(cuts.values()), "operations": cuts, "violations": violations[:40]}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
