"""Every n-th operation on the disk fails, or is the last one: save, fork, prune, delete, export, import, repair.

Whatever is done, afterwards all is as it was or as it is to be, errors are typed, and doing it again completes it. For
each act, each of its operations is one trial: killed there, or refused there (no space, a broken disk), or there the
disk is full and stays so. The provider in memory has no door to the disk, so nothing of it can fail like that.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if any
promise was broken: {"trials": 812, "operations": {"fork": 9, ...}, "violations": [...]}.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlite_utils  # noqa: F401 - loaded before the forks, once
import worlds
from worlds import ACTS, Act, look_at, notes, store_of

from crewlite.errors import CrewliteError
from crewlite.system import disk
from crewlite.system.disk import Operation
from crewlite.testing.failing import kill

FEW = 12  # operations of an act of which at least every third is tried, each with the next fault in turn
QUICK = ("refused", "kill")
ALL = ("ENOSPC", "EIO", "full", "kill", "torn")
SAYS = {errno.ENOSPC: "database or disk is full", errno.EIO: "disk I/O error"}
Outcome = dict[str, Any]


class Fault:
    """What befalls the n-th operation; `None` befalls none, and counts them."""

    def __init__(self, kind: str, at: int | None) -> None:
        if kind == "refused":
            kind = "ENOSPC" if (at or 0) % 4 < 2 else "EIO"
        self.kind, self.at, self.count = kind, at, 0

    def __call__(self, operation: Operation) -> None:
        self.count += 1
        if self.at is None or (self.count != self.at and not (self.kind == "full" and self.count > self.at)):
            return
        if self.kind in ("kill", "torn"):
            if self.kind == "torn" and operation.verb == "write" and operation.data:
                with open(operation.path, "r+b") as file:
                    file.seek(operation.offset)
                    file.write(operation.data[: len(operation.data) // 2])
            kill()
        number = errno.EIO if self.kind == "EIO" else errno.ENOSPC
        if operation.verb in ("sql", "commit"):
            raise sqlite3.OperationalError(SAYS[number])
        if self.kind != "full" or operation.verb in ("mkdir", "write", "fsync"):  # a full disk can still be emptied
            raise OSError(number, os.strerror(number), operation.path)


def in_child(act: Callable[[], Any]) -> tuple[Any, int]:
    """What `act` returns in a process of its own, and how that ended: 0, or the signal that killed it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        logging.disable()
        try:
            os.close(reading)
            os.write(writing, json.dumps(act()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status <= 0, "a child failed: see above"
    return json.loads(said) if said else None, -status


def tried(act: Act, world: Path, provider: str, fault: Fault) -> Outcome:
    """Do it while the fault lies in wait, and say how it went."""
    try:
        with disk.watched(fault):
            said = act.do(world, provider) or {}
    except (CrewliteError, OSError) as error:
        said = {"error": type(error).__name__, "text": str(error)}
    except Exception as error:
        said = {"untyped": f"{type(error).__name__}: {error}"}
    return {**said, "operations": fault.count}


def trial(act: Act, name: str, world: Path, provider: str, fault: Fault, before: Outcome, after: Outcome) -> list[str]:
    """Do it in the face of a fault, look, do it again, look again. The promises broken."""
    location = store_of(world, provider)
    outcome, killed = in_child(lambda: tried(act, world, provider, fault))
    broken = []
    try:
        found = look_at(location)
    except Exception as error:
        return [f"torn: {type(error).__name__}: {error}"]
    broken += act.judge(before, after, found)
    if not killed:
        broken += told(act, outcome, before, after, found)
    if name == "export":
        broken += exported(world)
    if act.fresh:
        broken += saved(act, world, outcome, killed, before, found)
    asked = notes(world, "asked")
    (world / "asked").unlink(missing_ok=True)
    again, died = in_child(lambda: tried(act, world, provider, Fault("", None)))
    if died or "error" in again or "untyped" in again:
        return [*broken, f"cannot be done again: {again}"]
    if twice := notes(world, "asked") & _answered(act, found):
        broken.append(f"recorded, and paid again: {sorted(twice)} (asked before: {len(asked)})")
    try:
        return broken + act.done(after, look_at(location))
    except Exception as error:
        return [*broken, f"torn after all: {type(error).__name__}: {error}"]


def told(act: Act, outcome: Outcome, before: Outcome, after: Outcome, found: Outcome) -> list[str]:
    """Whether what a caller was told is so: an error that has a type and a text, or success that is one."""
    if "untyped" in outcome:
        return [f"untyped: {outcome['untyped']}"]
    if "error" in outcome:
        return [] if len(outcome["text"]) > 10 else [f"{outcome['error']} says nothing: {outcome['text']!r}"]
    if outcome.get("durability", "sync") != "sync":
        return []
    return [f"said to be done: {wrong}" for wrong in act.done(after, found) if "listing" not in wrong]


def saved(act: Act, world: Path, outcome: Outcome | None, killed: int, before: Outcome, found: Outcome) -> list[str]:
    """Whether a run has kept what it acknowledged; one that could not begin has paid nothing."""
    held = _answered(act, found)
    degraded = outcome and outcome.get("durability") == "degraded"
    broken = []
    if (lost := notes(world, "acks") - held) and not degraded:
        broken.append(f"committed but lost: {sorted(lost)}")
    if outcome and "error" in outcome and notes(world, "asked"):
        broken.append(f"{outcome['error']}, though something was paid: {outcome['text']}")
    if gone := _answered(act, before) - held:
        broken.append(f"it was there before, and is gone: {sorted(gone)}")
    return broken


def exported(world: Path) -> list[str]:
    """The file is the old one or the new one."""
    text = (world / "out.json").read_text()
    return [] if text in ("what was there before", (world / "trunk.json").read_text()) else ["the file is torn"]


def _answered(act: Act, found: Outcome) -> set[str]:
    """Addresses that need not be asked again: they, or the task around them, have an outcome."""
    runs = [found["branches"].get(f"{run}/main", {"steps": {}})["steps"] for run in act.concerns]
    done = {address for steps in runs for address, (status, _) in steps.items() if status == "finished"}
    return done | {f"{task}/llm#{n}" for task in done if task.count("/") == 0 for n in (1, 2)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--acts", default=",".join(ACTS))
    parser.add_argument("--all", action="store_true", help="every fault at every operation, not one or two")
    parser.add_argument("--share", type=int, default=1, help="of acts with many operations, only every so many-th")
    parser.add_argument("--seed", type=int, default=1, help="which of them")
    parser.add_argument("--only", type=int, help="this operation alone; what it leaves is kept")
    parser.add_argument("--until", help="stop at the first violation that says this")
    options = parser.parse_args()
    trials, operations, violations = 0, {}, []
    template = options.directory / "template"
    template.mkdir(parents=True)
    in_child(lambda: worlds.make(template, options.provider))
    for name in options.acts.split(","):
        for broken in trials_of(name, template, operations, options):
            violations += broken
            trials += 1
            if options.until and any(options.until in text for text in broken):
                break
    said = {"trials": trials, "operations": operations, "seed": options.seed, "violations": violations[:40]}
    print(json.dumps(said))
    return 1 if violations else 0


def trials_of(
    name: str, template: Path, operations: dict[str, int], options: argparse.Namespace
) -> Iterator[list[str]]:
    """Do an act once undisturbed, and then in the face of each fault. The promises that each trial breaks."""
    act, provider, directory = ACTS[name], options.provider, options.directory
    start = directory / f"{name}-start"
    shutil.copytree(template, start)
    in_child(lambda: worlds.prepare(name, start, provider))
    clean = copy(start, directory / f"{name}-clean", act)
    before = look_at(store_of(clean, provider))
    outcome, _ = in_child(lambda: tried(act, clean, provider, Fault("", None)))
    assert "error" not in outcome and "untyped" not in outcome, outcome
    after = look_at(store_of(clean, provider))
    operations[name] = outcome["operations"]
    few = operations[name] <= FEW
    step = min(options.share, 3) if few else options.share
    for at in [options.only] if options.only else range(1 + options.seed % step, operations[name] + 1, step):
        for kind in ALL if options.all else QUICK[at % 2 :][:1] if few else QUICK:
            world = copy(start, directory / f"{name}-{at}-{kind}", act)
            broken = trial(act, name, world, provider, Fault(kind, at), before, after)
            yield [f"{name}, operation {at}, {kind}: {text}" for text in broken]
            if not options.only:
                shutil.rmtree(world)


def copy(start: Path, world: Path, act: Act) -> Path:
    """A world that begins like another."""
    if act.empty:
        world.mkdir()
        shutil.copy(start / "trunk.json", world)
    else:
        shutil.copytree(start, world)
    return world


if __name__ == "__main__":
    sys.exit(main())
