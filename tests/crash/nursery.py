"""Lives and deaths of a crew: run it in a child, kill the child, look at what is left, let the next child go on.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if any
promise was broken: {"trials": 212, "kills": 230, "violations": [...]}.

`--mode` changes the crew: `async` saves behind the run's back, and its tool may be called but once; `fold` has so many
steps and so few checkpoints that its journal is compacted; `fork` forks the dead run at any of its places, and drives both;
`big` has an answer of 10 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import sqlite_utils  # noqa: F401 - loaded before the forks, once

from crewlite import Agent, CheckpointConfig, Crew, CrewOutput, History, Task, ToolCall, event_bus, tool
from crewlite.durable import idempotency_key, scope
from crewlite.errors import InDoubt
from crewlite.events import (
    CheckpointCompletedEvent,
    LLMCallCompletedEvent,
    TaskCompletedEvent,
    ToolUsageFinishedEvent,
    ToolUsageStartedEvent,
)
from crewlite.state.providers.json import JsonStore
from crewlite.state.run_history import RunHistory
from crewlite.testing import CrashInjector, ScriptedLLM
from crewlite.texts.resuming import nth_attempt
from tests import children

TASKS = ("survey", "weigh", "write")
TURNS = 2  # tool calls a task makes before it answers
RUN = "trial"
SEPARATE = False
MODES = {
    "sync": {},
    "async": {"durability": "async"},
    "fold": {"max_checkpoints": 2},
    "fork": {"on_events": ["task_completed", "llm_call_completed", "tool_usage_finished"]},
    "big": {},
}
MODE = "sync"
BIG = "x" * 10_000_000


class Yard:
    """Where one trial leaves its traces. Each is appended to with one write, so a kill tears nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def note(self, file: str, *words: str) -> None:
        handle = os.open(self.directory / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, (" ".join(words) + "\n").encode())
        os.close(handle)

    def notes(self, file: str) -> list[list[str]]:
        path = self.directory / file
        return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []


def names() -> list[str]:
    return [f"{name}{n}" for n in range(4) for name in TASKS] if MODE == "fold" else list(TASKS)


def store_of(yard: Yard, provider: str) -> Path:
    return yard.directory / ("store" if provider == "json" else "store.db")


def build(yard: Yard, location: Path, life: int) -> Crew:
    """The crew: three tasks, each calls a tool twice and then answers from what it heard."""

    @tool(effect="once" if MODE == "async" else "idempotent")
    def effect(word: str) -> str:
        """Have an effect on the world."""
        yard.note("effects", str(life), scope().address, idempotency_key())
        return f"{word} done"

    def reply(messages):
        yard.note("asked", str(life), scope().address)
        heard = [message["content"] for message in messages if message["role"] == "tool"]
        if len(heard) < TURNS:
            # two calls in the first reply, so that siblings are cut in the middle too
            return [ToolCall("effect", {"word": f"w{n}"}) for n in range(TURNS)]
        answer = f"answer from {heard} to {messages[1]['content'][-200:]}"
        return BIG + answer if MODE == "big" and len(messages[1]["content"]) < len(BIG) else answer

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply), tools=[effect])
    tasks, last = [], []
    for name in names():
        last = [Task(name=name, description=f"Do {name}", expected_output="text", agent=agent, context=last)]
        tasks += last
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location, **MODES[MODE]))


def live(yard: Yard, location: Path, life: int, injector: CrashInjector, doubts: set[str], fork: str | None) -> None:
    """One life, in a child process. Writes the result if it gets that far."""

    def ack(source, event):
        yard.note("acks", str(life), event.address, "committed")

    def doubt(source, event):
        yard.note("starts", str(life), event.address, str(event.in_doubt))

    for kind in (LLMCallCompletedEvent, ToolUsageFinishedEvent, TaskCompletedEvent) if MODE != "async" else ():
        event_bus.on(kind, ack)
    event_bus.on(CheckpointCompletedEvent, lambda source, event: yard.note("places", event.checkpoint_id))
    event_bus.on(ToolUsageStartedEvent, doubt)
    with injector:
        crew = build(yard, location, life)
        if fork:
            result = crew.fork(fork, branch="other/way").kickoff()
        else:
            result = kicked_off(crew, doubts if MODE == "async" else ())
    document = {"raw": [output.raw for output in result.tasks_output], "durability": result.durability}
    document["operations"] = injector.count
    (yard.directory / "result.json").write_text(json.dumps(document))


def kicked_off(crew: Crew, doubts: Collection[str]) -> CrewOutput:
    """Kick the crew off; make the calls in doubt again, also those that were cut when they were made again."""
    try:
        return crew.kickoff(run_id=RUN, rerun=doubts)
    except InDoubt as cut:  # it names the attempts
        calls = {cut.address: cut.times, **cut.others}
        return crew.kickoff(run_id=RUN, rerun=[nth_attempt(address, times) for address, times in calls.items()])


def spawn(
    yard: Yard,
    location: Path,
    life: int,
    injector: CrashInjector,
    patience: float | None,
    doubts: set[str] = frozenset(),
    fork: str | None = None,
) -> int:
    """Start a life; with `patience`, kill it after so many seconds. Returns its wait status."""
    if SEPARATE:
        command = [sys.executable, __file__, "--live", str(life), "--directory", yard.directory]
        command += ["--provider", "sqlite" if location.suffix else "json"]
        return ended(children.Child(command).pid, patience)
    return child(lambda: live(yard, location, life, injector, doubts, fork), patience)


def child(act: Callable[[], object], patience: float | None = None) -> int:
    """Do something in a process of its own; with `patience`, kill it after so many seconds. Returns its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    return ended(pid, patience)


def ended(pid: int, patience: float | None) -> int:
    if patience is not None:
        time.sleep(patience)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


@contextlib.contextmanager
def left_behind(location: Path) -> Iterator[RunHistory | None]:
    """The run as the dead left it. Raises if anything is torn."""
    if not location.exists():
        yield None
        return
    if location.is_dir():
        for file in location.glob("*_*.json"):
            JsonStore(location).check_file(file)
    with History(location) as history:
        yield next((run for run in history.runs() if run.branch == "main"), None)


def recorded(location: Path) -> tuple[set[str], set[str], list[str]]:
    """What is on disk: addresses with an outcome, addresses in doubt, places. Raises if anything is torn."""
    with left_behind(location) as run:
        if run is None:
            return set(), set(), []
        steps, places = run.steps, run.checkpoints()
        for place in places:
            counted = [step for step in steps if step.kind == "task"]
            assert len(place.tasks) <= len(counted)
    return (
        {step.address for step in steps if step.status == "finished"},
        {step.address for step in steps if step.status == "in_doubt"},
        [place.id for place in places],
    )


def forked(yard: Yard, location: Path, places: list[str], expected: list[str], chance: random.Random) -> list[str]:
    """Fork a dead run at any of its places and drive the fork to its end."""
    there = Yard(yard.directory / "fork")
    before, _, _ = recorded(location)
    if spawn(there, location, 0, CrashInjector(), None, fork=f"{RUN}@{chance.choice(places)}") != 0:
        return ["the fork came to no end"]
    broken = [] if recorded(location)[0] == before else ["to fork changed what was forked"]
    outcome = json.loads((there.directory / "result.json").read_text())
    return broken + ([] if outcome["raw"] == expected else ["the fork has another result"])


def trial(
    yard: Yard,
    provider: str,
    injectors: list[CrashInjector],
    patience: list[float],
    expected: list[str],
    chance: random.Random,
) -> tuple[int, list[str]]:
    """Kill as told, then live on to the end. Returns the number of kills and the promises broken."""
    kills, broken, location = 0, [], store_of(yard, provider)
    doubts: list[set[str]] = []
    for life in range(len(injectors) + len(patience) + 2):
        try:
            done, doubted, places = recorded(location)
        except Exception as error:
            return kills, [f"torn: {type(error).__name__}: {error}"]
        acked = {address for _, address, _ in yard.notes("acks")}
        if lost := acked - done - {""}:
            broken.append(f"committed but lost: {sorted(lost)}")
        named = {identifier for (identifier,) in yard.notes("places")}
        if MODE != "fold" and (lost := named - set(places)):
            broken.append(f"checkpoints completed but lost: {sorted(lost)}")
        effects = {address for _, address, _ in yard.notes("effects")}
        if MODE == "async" and (unknown := effects - done - doubted):
            broken.append(f"done once, and not known to be: {sorted(unknown)}")
        if MODE == "fork" and life == 1 and places:
            broken += forked(yard, location, places, expected, chance)
        injector = injectors[life] if life < len(injectors) else CrashInjector()
        wait = patience[life - len(injectors)] if 0 <= life - len(injectors) < len(patience) else None
        status = spawn(yard, location, life, injector, wait, doubted)
        repeated = {a for n, a in yard.notes("asked") if n == str(life)} & done
        repeated |= {a for n, a, _ in yard.notes("effects") if n == str(life)} & done
        if repeated:
            broken.append(f"recorded, and done again: {sorted(repeated)}")
        for n, address, flagged in yard.notes("starts"):
            before = any(int(m) < life and a == address for m, a, _ in yard.notes("effects"))
            if n == str(life) and before and flagged != "True":
                broken.append(f"cut in the middle, made again, and not known to be in doubt: {address}")
        doubts.append(doubted)
        if os.WIFSIGNALED(status):
            kills += 1
            continue
        if status != 0:
            return kills, [*broken, f"life {life} ended with status {os.waitstatus_to_exitcode(status)}"]
        break
    else:
        broken.append("never came to its result")
    keys = [(address, key) for _, address, key in yard.notes("effects")]
    if len({a for a, _ in keys}) != len(set(keys)):
        broken.append("an idempotency key changed between lives")
    outcome = json.loads((yard.directory / "result.json").read_text())
    if expected and outcome["raw"] != expected:
        broken.append("another result than the uninterrupted run")
    if outcome["durability"] != MODES[MODE].get("durability", "sync"):
        broken.append(f"durability {outcome['durability']}")
    return kills, broken


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--separate", action="store_true", help="processes of their own instead of forks")
    parser.add_argument("--live", type=int, help="be the life of that number, in a yard that exists")
    parser.add_argument("--random", type=int, default=100, help="trials killed at random instants")
    parser.add_argument("--share", type=int, default=1, help="kill at every so many-th operation")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--until", help="stop at the first violation that says this")
    parser.add_argument("--mode", choices=list(MODES), default="sync")
    parser.add_argument("--operations", action="store_true", help="in other modes too, killed at every operation")
    options = parser.parse_args()
    if options.live is not None:
        yard = Yard(options.directory)
        live(yard, store_of(yard, options.provider), options.live, CrashInjector(), set(), None)
        return 0
    global SEPARATE, MODE
    SEPARATE, MODE = options.separate, options.mode
    chance = random.Random(options.seed)

    lengths = []
    for number in range(3):
        clean = Yard(options.directory / f"clean{number}")
        before = time.perf_counter()
        done = spawn(clean, store_of(clean, options.provider), 0, CrashInjector(), None)
        assert done == 0, "the uninterrupted run failed"
        lengths.append(time.perf_counter() - before)
    length = min(lengths)  # a kill after the end would kill nobody
    finished = json.loads((clean.directory / "result.json").read_text())
    expected, operations = finished["raw"], finished["operations"]

    trials = kills = 0
    violations: list[str] = []
    plans = [([], [chance.uniform(length * 0.5 * SEPARATE, length)]) for _ in range(options.random)]
    if plans and not SEPARATE:  # whatever the length that a busy machine showed, one is killed
        plans[0] = ([CrashInjector(chance.randrange(1, operations // 2))], [])
    if not SEPARATE and (MODE == "sync" or options.operations):
        plans += [
            ([CrashInjector(n, torn=bool(chance.getrandbits(1)))], []) for n in range(1, operations + 1, options.share)
        ]
        twice = [(chance.randrange(1, operations), chance.randrange(1, operations)) for _ in range(options.random // 4)]
        plans += [([CrashInjector(first), CrashInjector(second, torn=True)], []) for first, second in twice]
    chance.shuffle(plans)  # in no order, so that --until is soon there
    for number, (injectors, patience) in enumerate(plans):
        yard = Yard(options.directory / f"trial{number}")
        died, broken = trial(yard, options.provider, injectors, patience, expected, chance)
        shutil.rmtree(yard.directory)
        trials, kills = trials + 1, kills + died
        violations += [f"trial {number}: {text}" for text in broken]
        if options.until and any(options.until in text for text in broken):
            break
    print(
        json.dumps(
            {
                "trials": trials,
                "kills": kills,
                "operations": operations,
                "seconds": round(length, 2),
                "violations": violations[:20],
            }
        )
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
