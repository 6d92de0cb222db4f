"""Pruning of whole locations: what stays whatever is said, which runs go, and who is left alone."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from crewlite import event_bus
from crewlite.errors import BranchConflictError, ConfigError, RefError
from crewlite.events import TaskCompletedEvent
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop, outputs
from tests.state.folded import EVERYTHING, at, history, looking, loop, size

# What stays whatever is said.


def test_labelled_places_and_those_that_forks_stand_on_stay_and_other_runs_are_judged_alone(config):
    @event_bus.on(TaskCompletedEvent)
    def mark(source, event, state):
        if event.task_name == "t1" and event.branch == "main" and event.run_id == "r":
            state.checkpoint(label="good")

    crew = looking(loop(), 6, config())
    crew.kickoff(run_id="r")
    crew.kickoff(run_id="s")
    crew.fork(at(config, "r/main@task:t2"), branch="f").kickoff()
    with history(config) as found:
        pruned = found.prune(keep_last=2)

        def kept(ref):
            return [
                (place.branch, place.address.removeprefix("task:"), place.label)
                for place in found.run(ref).checkpoints()
            ]

        assert kept("r") == [
            ("main", "t1", "good"),
            ("main", "t2", None),
            ("main", "t4", None),
            ("main", "t5", None),
        ]
        assert kept("s") == [("main", "t4", None), ("main", "t5", None)]
        assert kept("r/f") == [("main", "t1", "good"), ("main", "t2", None), ("f", "t4", None), ("f", "t5", None)]
        assert len(pruned.checkpoints) == 3 + 4 + 1
        assert len(found.checkpoints()) == 4 + 2 + 2


def test_a_dry_run_tells_the_same_and_writes_nothing(config):
    crew = looking(loop(), 6, config(on_events=EVERYTHING))
    crew.kickoff(run_id="old")
    crew.kickoff(run_id="r")
    crew.fork(at(config, "r/main@task:t2"), branch="f").kickoff()

    def state(found):
        return [(run.run_id, run.branch, run.digest) for run in found.runs()], found.checkpoints()

    for wanted in (
        {"keep_last": 2},
        {"older_than": timedelta(0)},
        {"keep_last": 1, "older_than": datetime(2000, 1, 1, tzinfo=UTC)},
    ):
        with history(config) as found:
            before = state(found)
        with history(config) as found:
            said = found.prune(**wanted, dry_run=True)
            assert state(found) == before
            if wanted != {"older_than": timedelta(0)}:
                assert found.prune(**wanted) == said
                assert state(found) != before
            else:
                assert sorted(said.runs) == ["old", "r"]


@pytest.mark.parametrize("verb", ["prune", "delete"])
def test_what_is_freed_is_freed_on_the_disk(on_disk, verb):
    for n in range(4):
        looking(loop(), 20, on_disk(on_events=EVERYTHING)).kickoff(run_id=f"r{n}")
    before = size(on_disk)
    with history(on_disk) as found:
        freed = found.prune(keep_last=1).freed if verb == "prune" else sum(found.delete(f"r{n}").freed for n in (1, 2))
    left = before - size(on_disk)
    assert freed > 0.3 * before
    assert left >= 0.8 * freed, f"{freed} bytes of journals were said to be freed, and the disk has {left} more"


# Whole runs.


def test_old_finished_runs_are_deleted_and_no_others(config):
    looking(loop(), 2, config()).kickoff(run_id="old")
    with pytest.raises(Stop):
        looking(ScriptedLLM([Stop()]), 2, config()).kickoff(run_id="cut")
    with pytest.raises(Stop):
        looking(loop(), 2, config()).kickoff(run_id="forked")
        looking(ScriptedLLM([Stop()]), 2, config()).fork(at(config, "forked/main@task:t0"), branch="f").kickoff()
    time.sleep(0.05)
    since = datetime.now(UTC)
    time.sleep(0.05)
    looking(loop(), 2, config()).kickoff(run_id="new")
    with history(config) as found:
        pruned = found.prune(older_than=since)
        assert pruned.runs == ("old",)
        assert {run.run_id for run in found.runs()} == {"cut", "forked", "new"}
        assert {place.run_id for place in found.checkpoints()} == {"forked", "new"}
        assert found.prune(older_than=timedelta(days=1)).runs == ()
        assert found.prune(older_than=timedelta(0)).runs == ("new",)


def test_a_run_can_be_deleted_whatever_became_of_it_and_begun_anew(config):
    with pytest.raises(Stop):
        looking(ScriptedLLM([Stop()]), 2, config()).kickoff(run_id="r")
    looking(loop(), 2, config()).fork(at(config, "r"), branch="f").kickoff()
    with history(config) as found:
        assert found.delete("r").runs == ("r",)
        assert found.runs() == []
        assert found.checkpoints() == []
        with pytest.raises(RefError, match="names no run"):
            found.delete("r")
    llm = loop()
    looking(llm, 2, config()).kickoff(run_id="r")
    assert len(llm.calls) == 6


def test_prune_wants_to_be_told_what(config):
    looking(loop(), 1, config()).kickoff(run_id="r")
    with history(config) as found:
        for wrong in ({}, {"keep_last": 0}, {"keep_last": True}, {"keep_last": 1.5}, {"older_than": 3}):
            with pytest.raises(ConfigError, match="has no limit|wanted"):
                found.prune(**wrong)
        with pytest.raises(ConfigError, match="time zone"):
            found.prune(older_than=datetime(2026, 1, 1))
        for days in (-1, 999_999_999):
            with pytest.raises(ConfigError, match="wanted 0 or more days"):
                found.prune(older_than=timedelta(days=days))
        assert len(found.checkpoints()) == 1


# Whoever is at work is left alone.


def test_a_run_at_work_in_this_process_is_left_alone(config):
    found = []

    @event_bus.on(TaskCompletedEvent)
    def prune(source, event):
        if event.run_id == "r" and event.task_name == "t2":
            with history(config) as kept:
                found.append(kept.prune(keep_last=1, older_than=timedelta(0)))
                with pytest.raises(BranchConflictError, match="run by this process"):
                    kept.delete("r")

    looking(loop(), 4, config()).kickoff(run_id="done")
    assert outputs(looking(loop(), 4, config()).kickoff(run_id="r")) == [f"answer {n}" for n in range(4)]
    assert found[0].busy == ("r/main",)
    assert found[0].runs == ("done",)
    with history(config) as kept:
        assert len(kept.run("r").checkpoints()) == 4


WORKING = """
import sys, time
from crewlite import Agent, Crew, Task, CheckpointConfig
from crewlite.testing import ScriptedLLM
def reply(messages):
    if "Do 1" in messages[1]["content"]:
        print("waiting", flush=True)
        sys.stdin.readline()
    return "answer"
who = Agent(role="W", goal="g", llm=ScriptedLLM(reply))
tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, context=[]) for n in range(3)]
print(Crew(tasks=tasks, checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r").durability)
"""


def test_a_run_at_work_in_another_process_is_left_alone(on_disk):
    command = [sys.executable, "-c", WORKING, on_disk().location]
    with children.Child(command, stdin=children.PIPE, stdout=children.PIPE, text=True) as process:
        assert process.stdout.readline() == "waiting\n"
        with history(on_disk) as found:
            pruned = found.prune(keep_last=1, older_than=timedelta(0))
            with pytest.raises(BranchConflictError, match=f"run by process {process.pid}"):
                found.delete("r")
        rest, _ = process.communicate("go on\n")
    assert (pruned.busy, pruned.runs, pruned.checkpoints) == (("r/main",), (), ())
    assert rest == "sync\n"
    with history(on_disk) as found:
        assert len(found.run("r").checkpoints()) == 3
        assert found.prune(keep_last=1).busy == ()
