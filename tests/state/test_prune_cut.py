"""Forking, pruning and deleting that is cut anywhere, or that others do meanwhile, leaves whole runs behind."""

from __future__ import annotations

import random
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from crewlite import Agent, Crew, History, Task, ToolCall, tool
from crewlite.errors import BranchConflictError, CrewliteError, RefError
from crewlite.testing import CrashInjector, ScriptedLLM
from tests import soak


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}" + " and much besides" * 10


def reply(messages):
    return "answer" if messages[-1]["role"] == "tool" else ToolCall("look", {"where": "there"})


def crew(config):
    who = Agent(role="Worker", goal="g", llm=ScriptedLLM(reply), tools=[look])
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, context=[]) for n in range(3)]
    return Crew(tasks=tasks, checkpoint=config(on_events=["task_completed", "llm_call_completed"]))


def history(config):
    return History(config().location, config().provider)


def seen(config):
    """All that a store tells, but for what inner detail is left."""
    with history(config) as found:
        return [
            (run.run_id, run.branch, run.status, run.usage, [checkpoint.id for checkpoint in run.checkpoints()])
            for run in found.runs()
        ]


ACTS = {
    "fork": lambda found: found.fork("r/main@task:t1", operation_id="once"),
    "prune": lambda found: found.prune(keep_last=2),
    "delete": lambda found: found.delete("r"),
    "old": lambda found: found.prune(older_than=timedelta(0)),
}


@soak.every(3)
@pytest.mark.parametrize("act", ACTS)
def test_a_disk_that_fails_anywhere_leaves_whole_runs_and_the_act_can_be_done_again(on_disk, act, every, tmp_path):
    def prepared(name):
        copy = tmp_path / f"{name}{Path(on_disk().location).suffix}"
        (shutil.copytree if Path(on_disk().location).is_dir() else shutil.copy)(on_disk().location, copy)
        return lambda: on_disk().model_copy(update={"location": str(copy)})

    for run_id in ("r", "s"):
        crew(on_disk).kickoff(run_id=run_id)
    with history(on_disk) as found:
        found.fork("r/main@task:t0", branch="f")
    with history(prepared("clean")) as found, CrashInjector() as clean:
        ACTS[act](found)
    assert clean.log
    for at in range(1, len(clean.log) + 1, every):
        config = prepared(f"cut{at}")
        before = [(run, branch, status, usage) for run, branch, status, usage, _ in seen(config)]
        with CrashInjector(at, error=OSError(28, "No space left on device")):
            try:
                with history(config) as found:
                    ACTS[act](found)
            except OSError:
                pass
        left = [(run, branch, status, usage) for run, branch, status, usage, _ in seen(config)]
        gone = {"r", "s"} if act == "old" else {"r"} if act == "delete" else set()
        assert [line for line in left if line[1] in ("main", "f")] == [
            line for line in before if line[0] not in gone or line in left
        ], at
        with history(config) as found:
            try:
                ACTS[act](found)
            except RefError:
                assert act == "delete"
            assert found.doctor() == [], at
            if act == "fork":
                assert len(found.runs()) == 4
            elif act == "prune":
                assert [len(run.checkpoints()) for run in found.runs() if run.branch == "main"] == [2, 3]
            else:
                assert {run.run_id for run in found.runs()} == ({"s"} if act == "delete" else {"r"})


def test_forks_made_while_others_prune_are_whole(config):
    crew(config).kickoff(run_id="r")
    made, problems, ended = [], [], threading.Event()

    def fork(name):
        dice = random.Random(name)
        for number in range(6):
            try:
                with history(config) as found:
                    checkpoint = dice.choice(found.run("r").checkpoints())
                    found.fork(checkpoint.ref, branch=f"{name}/{number}")
                    made.append((f"r/{name}/{number}", checkpoint.tasks))
            except (RefError, BranchConflictError):
                pass  # the place was dropped while we looked
            except Exception as error:
                problems.append(error)

    def prune():
        keep = 6
        while not ended.is_set():
            try:
                with history(config) as found:
                    found.prune(keep_last=keep)
                    keep = max(1, keep - 1)
            except CrewliteError as error:
                problems.append(error)

    forkers = [threading.Thread(target=fork, args=(f"f{n}",)) for n in range(4)]
    pruners = [threading.Thread(target=prune) for _ in range(2)]
    for thread in (*forkers, *pruners):
        thread.start()
    for thread in forkers:
        thread.join()
    ended.set()
    for thread in pruners:
        thread.join()
    assert problems == []
    assert made
    with history(config) as found:
        assert found.doctor() == []
        for ref, tasks in made:
            shown = found.run(ref).checkpoints()
            assert shown[-1].tasks == tasks
            assert [checkpoint.parent_id for checkpoint in shown] == [
                None,
                *(checkpoint.id for checkpoint in shown[:-1]),
            ]
    for ref, tasks in made[:3]:
        result = crew(config).kickoff(from_checkpoint=config(restore_from=ref))
        assert len(result.tasks_output) == 3
