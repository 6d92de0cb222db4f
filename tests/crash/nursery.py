"""Lives and deaths of a crew: run it in a child, kill the child, look at what is left, let the next child go on.

Run as a program, so that it can fork before any thread exists. It prints one line of JSON and exits with 1 if any
promise was broken: {"trials": 212, "kills": 230, "violations": [...]}.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import sqlite_utils  # noqa: F401 - loaded before the forks, once

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, tool
from crewlite.durable import idempotency_key, scope
from crewlite.events import LLMCallCompletedEvent, TaskCompletedEvent, ToolUsageFinishedEvent, ToolUsageStartedEvent
from crewlite.state.providers.json import JsonStore
from crewlite.testing import CrashInjector, ScriptedLLM

TASKS = ("survey", "weigh", "write")
TURNS = 2  # tool calls a task makes before it answers
RUN = "trial"
SEPARATE = False


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


def build(yard: Yard, provider: str, life: int) -> Crew:
    """The crew: three tasks, each calls a tool twice and then answers from what it heard."""

    @tool
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
        return f"answer from {heard} to {messages[1]['content'][-200:]}"

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply), tools=[effect])
    tasks, last = [], []
    for name in TASKS:
        last = [Task(name=name, description=f"Do {name}", expected_output="text", agent=agent, context=last)]
        tasks += last
    location = yard.directory / ("store" if provider == "json" else "store.db")
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location))


def live(yard: Yard, provider: str, life: int, injector: CrashInjector) -> None:
    """One life, in a child process. Writes the result if it gets that far."""

    def ack(source, event):
        yard.note("acks", str(life), event.address, "committed")

    def doubt(source, event):
        yard.note("starts", str(life), event.address, str(event.in_doubt))

    for kind in (LLMCallCompletedEvent, ToolUsageFinishedEvent, TaskCompletedEvent):
        event_bus.on(kind, ack)
    event_bus.on(ToolUsageStartedEvent, doubt)
    with injector:
        result = build(yard, provider, life).kickoff(run_id=RUN)
    document = {"raw": [output.raw for output in result.tasks_output], "durability": result.durability}
    document["operations"] = injector.count
    (yard.directory / "result.json").write_text(json.dumps(document))


def spawn(yard: Yard, provider: str, life: int, injector: CrashInjector, patience: float | None) -> int:
    """Start a life; with `patience`, kill it after so many seconds. Returns its wait status."""
    if SEPARATE:
        command = [sys.executable, __file__, "--live", str(life), "--provider", provider, "--directory", yard.directory]
        child = subprocess.Popen(command).pid
    else:
        child = os.fork()
    if child == 0:
        try:
            live(yard, provider, life, injector)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(3)
    if patience is not None:
        time.sleep(patience)
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    _, status = os.waitpid(child, 0)
    return status


def recorded(yard: Yard, provider: str) -> tuple[set[str], set[str]]:
    """What is on disk: addresses with an outcome, addresses in doubt. Raises if anything is torn."""
    location = yard.directory / ("store" if provider == "json" else "store.db")
    if not location.exists():
        return set(), set()
    if provider == "json":
        for file in location.glob("*_*.json"):
            JsonStore(location).check_file(file)
    with History(location) as history:
        runs = history.runs()
        if not runs:
            return set(), set()
        steps = runs[0].steps
        for place in runs[0].checkpoints():
            counted = [step for step in steps if step.kind == "task"]
            assert len(place.tasks) <= len(counted)
    return (
        {step.address for step in steps if step.status == "finished"},
        {step.address for step in steps if step.status == "in_doubt"},
    )


def trial(yard: Yard, provider: str, injectors: list[CrashInjector], patience: list[float], expected: list[str]):
    """Kill as told, then live on to the end. Returns the number of kills and the promises broken."""
    kills, broken = 0, []
    doubts: list[set[str]] = []
    for life in range(len(injectors) + len(patience) + 2):
        try:
            done, doubted = recorded(yard, provider)
        except Exception as error:
            return kills, [f"torn: {type(error).__name__}: {error}"]
        acked = {address for _, address, _ in yard.notes("acks")}
        if lost := acked - done - {""}:
            broken.append(f"committed but lost: {sorted(lost)}")
        injector = injectors[life] if life < len(injectors) else CrashInjector()
        wait = patience[life - len(injectors)] if 0 <= life - len(injectors) < len(patience) else None
        status = spawn(yard, provider, life, injector, wait)
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
    if outcome["durability"] != "sync":
        broken.append(f"durability {outcome['durability']}")
    return kills, broken


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--separate", action="store_true", help="processes of their own instead of forks")
    parser.add_argument("--live", type=int, help="be the life of that number, in a yard that exists")
    parser.add_argument("--random", type=int, default=100, help="trials killed at random instants")
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    if options.live is not None:
        live(Yard(options.directory), options.provider, options.live, CrashInjector())
        return 0
    global SEPARATE
    SEPARATE = options.separate
    chance = random.Random(options.seed)

    clean = Yard(options.directory / "clean")
    before = time.perf_counter()
    assert spawn(clean, options.provider, 0, CrashInjector(), None) == 0, "the uninterrupted run failed"
    length = time.perf_counter() - before
    finished = json.loads((clean.directory / "result.json").read_text())
    expected, operations = finished["raw"], finished["operations"]

    trials = kills = 0
    violations: list[str] = []
    plans = [([], [chance.uniform(length * 0.5 * SEPARATE, length)]) for _ in range(options.random)]
    if not SEPARATE:
        plans += [([CrashInjector(n, torn=n % 2 == 0)], []) for n in range(1, operations + 1)]
        twice = [(chance.randrange(1, operations), chance.randrange(1, operations)) for _ in range(options.random // 4)]
        plans += [([CrashInjector(first), CrashInjector(second, torn=True)], []) for first, second in twice]
    for number, (injectors, patience) in enumerate(plans):
        yard = Yard(options.directory / f"trial{number}")
        died, broken = trial(yard, options.provider, injectors, patience, expected)
        trials, kills = trials + 1, kills + died
        violations += [f"trial {number}: {text}" for text in broken]
    print(json.dumps({"trials": trials, "kills": kills, "operations": operations, "violations": violations[:20]}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
