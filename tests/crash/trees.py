"""Random trees of steps, killed several times in a row, at random instants and at random operations on the disk.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if any
promise was broken: {"trees": 20, "kills": 31, ..., "violations": [...]}.

Each ends as if nobody had killed it. A run that nobody disturbs is compared with one that is killed: result, recorded
outcomes, failures and their causes are the same. Whatever a life did is on record, but for what was in flight when it
was killed; that is done once more, with the same idempotency key. So a step runs at most once more for each kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grove
import sqlite_utils  # noqa: F401 - loaded before the forks, once
from nursery import RUN, Yard, child, left_behind, store_of

from crewlite import CheckpointConfig, History, event_bus
from crewlite.durable import idempotency_key, scope
from crewlite.errors import Suspended
from crewlite.events import StepCompletedEvent
from crewlite.state.reading.steps import StepView
from crewlite.testing import CrashInjector

KILLS = 3  # at most, of one run
LIVES = 60  # after which a run never comes to its end
LONGEST = 60  # seconds after which a life never ends


@dataclass(frozen=True)
class Plan:
    """A tree, and the flow it grows in."""

    tree: grove.Tree
    blocking: bool
    width: int | None

    @classmethod
    def of(cls, chance: random.Random) -> Plan:
        return cls(grove.planted(chance), chance.random() < 0.5, chance.choice([None, None, 2, 3]))


@dataclass
class Seen:
    """A run as it stands on disk."""

    steps: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Kind, status and outcome, by address; of a timer the outcome is its own in each run."""
    failures: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    """Type, message and cause of the tries that failed, by address."""
    waiting: tuple[str, ...] = ()

    @classmethod
    def at(cls, location: Path) -> Seen:
        """Raises if anything is torn."""
        with left_behind(location) as run:
            if run is None:
                return cls()
            steps = {step.address: (step.kind, step.status, _told(step)) for step in run.steps}
            failures: dict[str, list[tuple[str, str, str]]] = {}
            for a in run.attempts:
                failures.setdefault(a.address, []).append((a.error_type, a.message, a.cause or ""))
            return cls(steps, failures, tuple(waiting.address for waiting in run.waiting))

    def having(self, status: str) -> set[str]:
        return {address for address, step in self.steps.items() if step[1] == status}

    def tries(self) -> Counter[str]:
        """How often each step came to an end, well or not."""
        return Counter(self.having("finished")) + Counter({a: len(tries) for a, tries in self.failures.items()})


def _told(step: StepView) -> str:
    return "a time" if step.kind == "timer" else json.dumps(step.value)


def live(yard: Yard, location: Path, plan: Plan, life: int, waiting: tuple[str, ...], injector: CrashInjector) -> None:
    """One life, in a child process. Leaves an outcome, unless somebody must be asked first."""
    signal.alarm(LONGEST)
    with injector:
        outcome = grown(yard, location, plan, life, waiting)
    yard.note("operations", str(injector.count))
    if outcome:
        (yard.directory / "outcome.json").write_text(json.dumps(outcome))


def grown(yard: Yard, location: Path, plan: Plan, life: int, waiting: tuple[str, ...]) -> dict[str, Any] | None:
    grove.outside = lambda: yard.note("ran", str(life), scope().address, idempotency_key())
    event_bus.on(StepCompletedEvent, lambda source, event: yard.note("acks", event.address))
    answers = {address: len(address) for address in waiting}
    if answers and life % 2:
        with History(location) as history:
            while answers:
                history.answer(RUN, *answers.popitem())
    made = grove.flow_of(CheckpointConfig(location=location), blocking=plan.blocking, width=plan.width)
    try:
        return {"result": made.kickoff(plan.tree, run_id=RUN, answers=answers)}
    except grove.Broken as error:
        return {"error": str(error)}
    except Suspended:
        return None


@dataclass
class Trial:
    """A run, life after life, until it has an outcome."""

    yard: Yard
    provider: str
    plan: Plan
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    longest: float = 0.0
    """Seconds of its longest life."""
    seen: Seen = field(default_factory=Seen)

    def run(self, deaths: list[float | CrashInjector]) -> Any:
        """Its outcome. The first lives are killed, each after so many seconds or at an operation on the disk."""
        location, document = store_of(self.yard, self.provider), self.yard.directory / "outcome.json"
        for life in range(LIVES):
            before, began = self.seen, time.perf_counter()
            death = deaths[life] if life < len(deaths) else None
            injector = death if isinstance(death, CrashInjector) else CrashInjector()
            act = partial(live, self.yard, location, self.plan, life, before.waiting, injector)
            status = child(act, death if isinstance(death, float) else None)
            self.longest = max(self.longest, time.perf_counter() - began)
            killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            self.counts += Counter(lives=1, kills=int(killed))
            if status and not killed:
                self.broken.append(f"life {life} ended with {os.waitstatus_to_exitcode(status)}")
                return None
            self.seen = Seen.at(location)
            waits = not killed and not document.exists()
            self.counts += Counter(waits=int(waits))
            in_flight = self._judge(life, before, cut=killed or waits)
            self.counts += Counter({"in flight": in_flight * killed, "kills midway": int(killed and in_flight > 0)})
            if not killed and not waits:
                return json.loads(document.read_text())
        self.broken.append("never came to its end")
        return None

    def death(self, chance: random.Random) -> float | CrashInjector:
        """An instant of its longest life, mostly when it is at work and no longer about to begin; or an operation."""
        if chance.random() < 0.5:
            return chance.triangular(0, self.longest, self.longest * 0.7)
        operations = max(int(count) for (count,) in self.yard.notes("operations"))
        return CrashInjector(chance.randint(1, operations), torn=chance.random() < 0.5)

    def _judge(self, life: int, before: Seen, *, cut: bool) -> int:
        """What this life did is on record, but for what was in flight when it was cut. Returns how many those are."""
        ran = Counter(address for n, address, _ in self.yard.notes("ran") if n == str(life))
        steps = {address for address, (kind, *_) in self.seen.steps.items() if kind == "step"}
        ended = Counter({a: n for a, n in (self.seen.tries() - before.tries()).items() if a in steps})
        if again := ran.keys() & before.having("finished"):
            self.broken.append(f"life {life}: recorded, and done again: {sorted(again)}")
        if lost := ended - ran:
            self.broken.append(f"life {life}: recorded, and never done: {dict(lost)}")
        unknown = ran - ended
        if any(n > cut for n in unknown.values()):
            self.broken.append(f"life {life}: done, and not on record: {dict(unknown)}")
        if lost := {address for (address,) in self.yard.notes("acks")} - self.seen.having("finished"):
            self.broken.append(f"life {life}: committed but lost: {sorted(lost)}")
        keys = {(address, key) for _, address, key in self.yard.notes("ran")}
        if len(keys) != len({address for address, _ in keys}):
            self.broken.append(f"life {life}: an idempotency key changed between lives")
        return unknown.total()


def different(whole: Seen, found: Seen) -> list[str]:
    """Where two runs of one tree differ."""
    failed = whole.having("failed")
    broken = []
    for address in sorted(whole.steps.keys() | found.steps.keys()):
        if any(address.startswith(f"{given_up}!") for given_up in failed):
            continue  # what failed for good is tried anew in the next life: how often depends on the kills
        if whole.steps.get(address) != found.steps.get(address):
            broken.append(f"{address} is {found.steps.get(address)}, not {whole.steps.get(address)}")
        elif address in failed:
            one, other = _reasons(whole.failures[address]), _reasons(found.failures[address])
            broken += [] if one == other else [f"{address} failed for {other}, not {one}"]
        elif (one := whole.failures.get(address)) != (other := found.failures.get(address)):
            broken.append(f"{address} failed on its way for {other}, not {one}")
    return broken


def _reasons(tries: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Why something failed for good, however often it did, and whichever of its tries the cause was in."""
    return {(kind, message, re.sub(r"!\d+", "!", cause)) for kind, message, cause in tries}


def compared(directory: Path, provider: str, chance: random.Random) -> Trial:
    """A tree that is killed, after one that is not; with all that is wrong with either."""
    plan = Plan.of(chance)
    whole = Trial(Yard(directory / "whole"), provider, plan)
    expected = whole.run([])
    if whole.broken:
        whole.broken.append("all of it undisturbed")
        return whole
    trial = Trial(Yard(directory / "killed"), provider, plan)
    found = trial.run([whole.death(chance) for _ in range(chance.randint(1, KILLS))])
    if found != expected:
        trial.broken.append(f"ends with {found}, not {expected}")
    trial.broken += different(whole.seen, trial.seen)
    trial.counts += Counter(trees=1, steps=len(whole.seen.steps), failures=sum(map(len, whole.seen.failures.values())))
    trial.counts += Counter({"failing trees": int("error" in expected)})
    return trial


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--only", type=int, help="the tree of this number alone; what it leaves is kept")
    parser.add_argument("--until", help="stop at the first violation that says this")
    options = parser.parse_args()
    counts, violations = Counter[str](), list[str]()
    for number in range(options.trees) if options.only is None else [options.only]:
        directory = options.directory / f"tree{number}"
        try:
            trial = compared(directory, options.provider, random.Random(f"{options.seed}/{number}"))
        except Exception as error:
            violations.append(f"tree {number}: torn: {type(error).__name__}: {error}")
            continue
        counts += trial.counts
        violations += [f"tree {number}: {text}" for text in trial.broken]
        if options.only is None:
            shutil.rmtree(directory)
        if options.until and any(options.until in text for text in trial.broken):
            break
    print(json.dumps({**counts, "seed": options.seed, "violations": violations[:20]}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
