"""Many processes in one store: writers, readers, one that forks, one that prunes, and fights for one branch.

Run as a program. It prints one line of JSON and exits with 1 if any promise was broken:
{"runs": 480, "forks": 31, "reads": 212, "wins": 12, "told": 84, "violations": [...]}.

Every promise of the crowd: all work that was acknowledged is in the store, each run is finished and paid once, one of
those who want the same branch gets it and the others are told so, readers never see half of anything, and nobody hears
an error without a type.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import sqlite_utils  # noqa: F401 - loaded before anybody is timed

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.durable import scope
from crewlite.errors import BranchConflictError, RefError
from crewlite.events import TaskCompletedEvent
from crewlite.state.providers.json import JsonStore
from crewlite.testing import ScriptedLLM
from tests import children

PATIENCE = 20.0  # seconds after which the others are not waited for any longer
LONGEST = 120.0  # seconds after which a result never comes
TURN = 2  # tasks that one process does before another has its turn, where they fight for one run


class Yard:
    """Where a swarm leaves its traces. Each is appended to with one write, so nothing is ever torn or mixed up."""

    def __init__(self, directory: Path, provider: str) -> None:
        self.directory = directory
        self.location = directory / ("store" if provider == "json" else "store.db")

    def note(self, file: str, *words: str) -> None:
        handle = os.open(self.directory / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, (" ".join(words) + "\n").encode())
        os.close(handle)

    def notes(self, file: str) -> list[list[str]]:
        path = self.directory / file
        return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []


class Turns(Exception):
    """This process has done its share."""


class Waiting(ScriptedLLM):
    """A model that answers once a file of notes has so many lines."""

    def __init__(self, yard: Yard, reply, file: str = "", lines: int = 0) -> None:
        super().__init__(reply)
        self._yard, self._file, self._lines = yard, file, lines

    async def acall(self, messages, **context):
        until = time.monotonic() + PATIENCE
        while self._lines and len(self._yard.notes(self._file)) < self._lines and time.monotonic() < until:
            await asyncio.sleep(0.002)
        return await super().acall(messages, **context)


def crew(yard: Yard, llm: ScriptedLLM, tasks: int) -> Crew:
    """A crew of small tasks, each building on the one before."""
    who, made = Agent(role="Worker", goal="work", llm=llm), []
    for n in range(tasks):
        made.append(Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, context=made[-1:]))
    return Crew(tasks=made, checkpoint=CheckpointConfig(location=yard.location, on_events=["task_completed"]))


class Worker:
    """One process of the swarm. Each of its verbs is done when it is told to, and returns what it counted."""

    def __init__(self, yard: Yard, number: int, seed: int) -> None:
        self.yard, self.number = yard, number
        self.chance = random.Random(seed * 100 + number)

    def work(self, runs: int) -> dict:
        """Run many runs of one's own."""

        def ack(source, event):
            self.yard.note("acks", event.run_id, event.address)

        made = crew(self.yard, ScriptedLLM(lambda messages: f"done {messages[1]['content'][:4]}"), 2)
        with event_bus.on(TaskCompletedEvent, ack):
            for n in range(runs):
                result = made.kickoff(run_id=f"w{self.number}.{n}")
                self.yard.note("results", result.run_id, result.durability, str(len(result.tasks_output)))
        self.yard.note("workers-done", str(self.number))
        return {"runs": runs}

    def read(self, workers: int) -> dict:
        """Look at runs and places, while they are written, until all workers are done."""
        reads, slowest, broken = 0, 0.0, []
        while len(self.yard.notes("workers-done")) < workers:
            before = time.perf_counter()
            try:
                broken += self._look()
            except RefError as error:  # nothing is there yet, or a place was pruned while it was looked at
                broken += [] if "not exist" in str(error) or "any more" in str(error) else [f"reader: {error}"]
            reads, slowest = reads + 1, max(slowest, time.perf_counter() - before)
            time.sleep(0.02)
        return {"reads": reads, "slowest look": round(slowest, 3), "broken": broken}

    def _look(self) -> list[str]:
        broken = []
        with History(self.yard.location) as history:
            runs = history.runs()
            for run in self.chance.sample(runs, min(3, len(runs))):
                finished = [step.address for step in run.steps if step.kind == "task" and step.status == "finished"]
                places = run.checkpoints()
                for place in places:
                    if place.tasks != tuple(finished[: len(place.tasks)]) or not place.tasks:
                        broken.append(f"a place of {run.run_id} has {place.tasks} of {finished}")
                    if place.parent_id and place.parent_id not in {other.id for other in places}:
                        broken.append(f"the parent of a place of {run.run_id} is gone")
                if run.run_id[0] == "w" and run.status == "finished" and len(finished) != 2:
                    broken.append(f"{run.run_id} is finished with {finished}")
            found = history.checkpoints(limit=20)
            for place in self.chance.sample(found, min(2, len(found))):
                try:
                    run = history.run(place.id)
                    broken += [] if run.run_id == place.run_id else [f"{place.id} names {run.run_id}"]
                except RefError as error:
                    broken += [] if "names nothing" in str(error) else [f"reader: {error}"]
        files = sorted(self.yard.location.glob("*_*.json")) if self.yard.location.is_dir() else []
        for file in self.chance.sample(files, min(3, len(files))):
            try:
                JsonStore(self.yard.location).check_file(file)
            except RefError:
                continue  # pruned meanwhile
        return broken

    def fork(self, workers: int) -> dict:
        """Fork runs that are at work or finished, at their head or at a place."""
        forks = missed = 0
        while len(self.yard.notes("workers-done")) < workers:
            try:
                with History(self.yard.location) as history:
                    run = self.chance.choice(history.runs() or [None])
                    places = run.checkpoints() if run and forks % 2 else []
                    if run:
                        made = history.fork(places[0].id if places else f"{run.run_id}/{run.branch}")
                        self.yard.note("forks", made.run_id, made.branch)
                        forks += 1
            except RefError:
                missed += 1  # nothing there yet, or the place was pruned meanwhile
            time.sleep(0.05)
        return {"forks": forks, "forks missed": missed}

    def prune(self, workers: int) -> dict:
        """Take old places away, again and again."""
        prunes = gone = busy = 0
        while len(self.yard.notes("workers-done")) < workers:
            try:
                with History(self.yard.location) as history:
                    done = history.prune(keep_last=1)
                prunes, gone, busy = prunes + 1, gone + len(done.checkpoints), busy + len(done.busy)
            except RefError:
                pass  # nothing there yet
            time.sleep(0.05)
        return {"prunes": prunes, "pruned": gone, "busy": busy}

    def clear(self) -> dict:
        """Take every run away, as others do at the same time."""
        cleared = 0
        with History(self.yard.location) as history:
            for run_id in sorted({run.run_id for run in history.runs()}):
                try:
                    cleared += len(history.delete(run_id).runs)
                except (RefError, BranchConflictError):
                    continue  # somebody was faster
        return {"cleared": cleared}

    def browse(self) -> dict:
        """Look at everything, while it is taken away."""
        looks, broken = 0, []
        with History(self.yard.location) as history:
            while runs := history.runs():
                with contextlib.suppress(RefError):  # deleted meanwhile
                    broken += self._look()
                for run in self.chance.sample(runs, min(3, len(runs))):
                    try:
                        whole = run.branch != "main" or run.status == "finished"
                        broken += [] if whole and run.inputs == {} else [f"{run.run_id} is {run.status}"]
                    except RefError:
                        continue  # deleted meanwhile
                looks += 1
        return {"looks while cleared": looks, "broken": broken}

    def want(self, run_id: str, others: int) -> dict:
        """Want one branch that others want too. Who gets it goes on when all others know."""

        def reply(messages):
            self.yard.note(f"paid-{run_id}", scope().address, str(self.number))
            return "whole"

        try:
            result = crew(self.yard, Waiting(self.yard, reply, f"told-{run_id}", others), 3).kickoff(run_id=run_id)
        except BranchConflictError as error:
            self.yard.note(f"told-{run_id}", str(self.number))
            named = (error.run_id, error.branch) == (run_id, "main")
            return {"told": 1, "broken": [] if named else [f"the conflict names {error.run_id}/{error.branch}"]}
        answers = [output.raw for output in result.tasks_output]
        whole = answers[1:] == ["whole", "whole"] and result.durability == "sync"
        return {"wins": 1, "broken": [] if whole else [f"{run_id} gave {answers}, {result.durability}"]}

    def fight(self, run_id: str, tasks: int) -> dict:
        """Have turns at one run until it is finished: who has the branch does a few tasks and lets go of it."""
        turns, told, done = 0, 0, 0

        def reply(messages):
            nonlocal done
            if done == TURN:
                raise Turns
            done += 1
            self.yard.note(f"paid-{run_id}", scope().address, str(self.number))
            return "whole"

        made = crew(self.yard, ScriptedLLM(reply), tasks)
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            done = 0
            try:
                result = made.kickoff(run_id=run_id)
            except Turns:
                turns += 1
                time.sleep(self.chance.uniform(0, 0.02))
            except BranchConflictError:
                told += 1
                time.sleep(self.chance.uniform(0, 0.01))
            else:
                whole = [output.raw for output in result.tasks_output] == ["whole"] * tasks
                return {"turns": turns, "told": told, "broken": [] if whole else [f"{run_id} is not whole"]}
        return {"broken": [f"{run_id} never came to its result"]}


def serve(yard: Yard, number: int, seed: int) -> None:
    """Be a worker: do what each line of the standard input says, at the moment it says."""
    worker = Worker(yard, number, seed)
    for line in sys.stdin:
        order = json.loads(line)
        time.sleep(max(0.0, order["at"] - time.time()))
        try:
            answer = getattr(worker, order["do"])(**order["with"])
        except Exception as error:
            answer = {"broken": [f"{order['do']} {number}: {type(error).__name__}: {error}"]}
            if order["do"] == "work":
                yard.note("workers-done", str(number))
        print(json.dumps(answer), flush=True)


class Swarm:
    """The processes, and what they have counted."""

    def __init__(self, yard: Yard, provider: str, size: int, seed: int) -> None:
        self.yard, self.counts, self.violations = yard, Counter(), list[str]()
        command = [sys.executable, __file__, "--provider", provider, "--directory", str(yard.directory)]
        self.workers = [
            children.Child(
                [*command, "--seed", str(seed), "--number", str(n)],
                stdin=children.PIPE,
                stdout=children.PIPE,
                stderr=(yard.directory / f"stderr{n}").open("w"),
                text=True,
            )
            for n in range(size)
        ]

    def all(self, *orders: tuple[str, dict]) -> None:
        """Give the n-th order to the n-th process, to be done at the same moment, and wait for all of them."""
        at = time.time() + 0.02
        given = list(zip(self.workers, orders, strict=False))
        for worker, (do, fields) in given:
            print(json.dumps({"do": do, "at": at, "with": fields}), file=worker.stdin, flush=True)
        for worker, (do, _) in given:
            line = worker.stdout.readline()
            answer = json.loads(line) if line else {"broken": [f"{do}: the process is gone"]}
            self.violations += answer.pop("broken", [])
            for name, number in answer.items():
                self.counts[name] = max(self.counts[name], number) if "slow" in name else self.counts[name] + number

    def end(self) -> None:
        for number, worker in enumerate(self.workers):
            worker.stdin.close()
            if status := worker.wait():
                self.violations.append(f"process {number} ended with {status}")
            said = (self.yard.directory / f"stderr{number}").read_text()
            for word in ("Traceback", "locked", "gave no sign", "could not be compacted", "Left out of the list"):
                self.violations += [f"process {number} said: {line}" for line in said.splitlines() if word in line][:3]


def check_runs(yard: Yard, workers: int, runs: int) -> list[str]:
    """What is wrong with the store after the crowd has left."""
    broken = []
    acks: dict[str, list[str]] = {}
    for run_id, address in yard.notes("acks"):
        acks.setdefault(run_id, []).append(address)
    if any(durability != "sync" or tasks != "2" for _, durability, tasks in yard.notes("results")):
        broken.append("a run was not kept as it ought to be")
    with History(yard.location) as history:
        found = {(run.run_id, run.branch): run for run in history.runs()}
        mains = {run_id: run for (run_id, branch), run in found.items() if branch == "main"}
        if mains.keys() != {f"w{w}.{n}" for w in range(workers) for n in range(runs)}:
            broken.append(f"{len(mains)} runs, wanted {workers * runs}")
        for run_id, run in mains.items():
            finished = [step.address for step in run.steps if step.kind == "task" and step.status == "finished"]
            if not (acks.get(run_id) == finished == ["task:t0", "task:t1"]) or run.status != "finished":
                broken.append(f"{run_id} is {run.status}, acknowledged {acks.get(run_id)}, has {finished}")
            if run.usage.requests != 2:
                broken.append(f"{run_id} was paid {run.usage.requests} times")
        forks = sorted((run_id, branch) for run_id, branch in found if branch != "main")
        if forks != sorted(map(tuple, yard.notes("forks"))):
            broken.append(f"{len(forks)} forks, {len(yard.notes('forks'))} were made")
        for key in forks:
            found[key].checkpoints()
        if wrong := history.doctor():
            broken.append(f"the doctor finds: {wrong[:3]}")
    return broken


def check_paid(yard: Yard, run_id: str, tasks: int) -> list[str]:
    """Each task of a run that many wanted was asked once."""
    paid = Counter(address for address, _ in yard.notes(f"paid-{run_id}"))
    if paid != {f"task:t{n}/llm#1": 1 for n in range(tasks)}:
        return [f"{run_id} was paid for {dict(paid)}"]
    return []


def cut(yard: Yard, run_id: str) -> None:
    """Let a process die in the middle of the second task of a run."""
    child = os.fork()
    if child == 0:

        def reply(messages):
            if "t1" in scope().address:
                os._exit(9)
            yard.note(f"paid-{run_id}", scope().address, "victim")
            return "whole"

        crew(yard, ScriptedLLM(reply), 3).kickoff(run_id=run_id)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9, "the victim was not cut where it ought to be"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--provider", choices=["json", "sqlite"], required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--runs", type=int, default=60, help="runs of each process")
    parser.add_argument("--rounds", type=int, default=6, help="times that all want one run, begun or cut")
    parser.add_argument("--tasks", type=int, default=24, help="tasks of the run that all have turns at")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--number", type=int, help="be the process of that number")
    options = parser.parse_args()
    yard = Yard(options.directory, options.provider)
    if options.number is not None:
        serve(yard, options.number, options.seed)
        return 0
    size, crowd = options.processes, [("read", {}), ("read", {}), ("fork", {}), ("prune", {})]
    swarm = Swarm(yard, options.provider, size + len(crowd), options.seed)
    began = time.perf_counter()
    swarm.all(*[("work", {"runs": options.runs})] * size, *[(do, {"workers": size}) for do, _ in crowd])
    took = {"work": round(time.perf_counter() - began, 2)}
    swarm.violations += check_runs(yard, size, options.runs)
    for n in range(options.rounds):
        for run_id in (f"begun{n}", f"cut{n}"):
            if run_id.startswith("cut"):
                cut(yard, run_id)
            swarm.all(*[("want", {"run_id": run_id, "others": size - 1})] * size)
            swarm.violations += check_paid(yard, run_id, 3)
    if (wins := swarm.counts["wins"]) != 2 * options.rounds:
        swarm.violations.append(f"{wins} got the branch in {2 * options.rounds} rounds")
    if (told := swarm.counts["told"]) != 2 * options.rounds * (size - 1):
        swarm.violations.append(f"{told} were told that another has it")
    took["rounds"] = round(time.perf_counter() - began - took["work"], 2)
    swarm.all(*[("fight", {"run_id": "fight", "tasks": options.tasks})] * size)
    swarm.violations += check_paid(yard, "fight", options.tasks)
    took["fight"] = round(time.perf_counter() - began - took["work"] - took["rounds"], 2)
    swarm.all(*[("clear", {})] * 2, *[("browse", {})] * 2)
    if (cleared := swarm.counts["cleared"]) != (there := size * options.runs + 2 * options.rounds + 1):
        swarm.violations.append(f"{cleared} of {there} runs were taken away")
    took["all"] = round(time.perf_counter() - began, 2)
    swarm.end()
    print(json.dumps({**swarm.counts, "seed": options.seed, "took": took, "violations": swarm.violations[:20]}))
    return 1 if swarm.violations else 0


if __name__ == "__main__":
    sys.exit(main())
