"""A run of another process is followed from the terminal; and what a resume or a fork would do is told."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM
from tests import children

BEGIN = ("run", "crews:crew", "--input", "topic=tides", "--run-id", "r")


@pytest.mark.parametrize("location", [".checkpoints", ".checkpoints.db"])
@pytest.mark.parametrize("names", [("one", "two"), ("one", "two", *map(str, range(40)))], ids=["short", "folded"])
def test_a_run_at_work_is_followed_until_it_ends(shop, location, names):
    asked, on = threading.Event(), threading.Event()

    def reply(messages):
        if "two" in messages[1]["content"]:
            asked.set()
            assert on.wait(30)
        return "done"

    agent = Agent(role="Clerk", goal="g", llm=ScriptedLLM(reply))
    tasks = [Task(name=name, description=name, expected_output="x", agent=agent) for name in names]
    crew = Crew(tasks=tasks, checkpoint=CheckpointConfig(location=str(shop.path / location), max_checkpoints=1))
    running = threading.Thread(target=crew.kickoff, kwargs={"run_id": "r"})
    running.start()
    assert asked.wait(30)
    with shop.begin("checkpoint", "tail", "r", "--all", "--json") as child:
        first = json.loads(child.stdout.readline())
        assert (first["type"], first["address"], first["run_id"]) == ("crew_kickoff_started", "", "r")
        on.set()
        lines = [json.loads(line) for line in child.stdout]
    running.join()
    assert child.wait() == 0
    assert [line["address"] for line in lines if line["type"] == "task_completed"] == [f"task:{name}" for name in names]
    assert [line["type"] for line in lines[-2:]] == ["crew_kickoff_completed", "end"]
    assert lines[-1]["status"] == "finished"
    assert len({line["event_id"] for line in lines[:-1]}) == len(lines) - 1, "each event once"
    ended = shop.ask("checkpoint", "tail", "r", "--last", "1")
    assert ended.stdout.split()[2:] == ["crew_kickoff_completed", "the", "crew"]
    assert ended.stderr == "r/main is finished\n"


def test_the_last_events_are_as_many_as_asked_for_also_where_a_prune_has_folded_commits(shop):
    shop.ask(*BEGIN)
    shop.ask("checkpoint", "prune", "--keep-last", "1", "--yes")
    events = shop.ask("checkpoint", "tail", "r", "--all").stdout.splitlines()
    for last in (1, 3, 5):
        assert shop.ask("checkpoint", "tail", "r", "--last", str(last)).stdout.splitlines() == events[-last:]
    assert not shop.ask("checkpoint", "tail", "r", "--last", "0").stdout


@pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals to another process")
def test_ctrl_c_ends_only_the_following_and_a_kill_of_the_run_ends_it(shop):
    shop.hang("two")
    process = shop.begin(*BEGIN)
    shop.until("two")
    with shop.begin("checkpoint", "tail", "r") as child:
        while "task_completed  task:one" not in child.stdout.readline():
            pass
        child.send_signal(signal.SIGINT)
        assert child.wait() == 130
        assert "Traceback" not in child.stderr.read()
    assert process.poll() is None
    with shop.begin("checkpoint", "tail", "r", "--last", "0") as child:
        process.kill()
        process.communicate()
        _, said = child.communicate()
    assert said == "r/main is unfinished, and no process is at work on it\n"


def test_a_preview_says_what_a_resume_and_a_fork_would_do_and_writes_nothing(shop):
    shop.fail("three")
    shop.ask(*BEGIN)
    shop.heal()
    shop.paid()
    before = children.run(
        ["find", ".checkpoints", "-newer", "crews.py", "-type", "f"], cwd=shop.path, capture_output=True
    )
    told = {
        ("r",): ["reused", "reused", "runs"],
        ("r@task:one",): ["reused", "runs", "runs"],
        ("r", "--edit", "task:one=x"): ["reused", "runs", "runs"],
        ("r", "--input", "topic=winds", "--model", "offline"): ["runs", "runs", "runs"],
        ("r", "--rerun", "task:two"): ["reused", "runs", "runs"],
    }
    for words, verdicts in told.items():
        done = shop.ask("checkpoint", "preview", *words, "--crew", "crews:crew")
        assert [line.split()[0] for line in done.stdout.splitlines()] == verdicts, (words, done.stdout, done.stderr)
    (steps,) = shop.lines("checkpoint", "preview", "r", "--crew", "crews:crew")
    assert [step["verdict"] for step in steps["steps"]] == ["reused", "reused", "runs"]
    assert shop.ask("checkpoint", "preview", "r", "--input", "topik=x", "--crew", "crews:crew").returncode == 1
    after = children.run(
        ["find", ".checkpoints", "-newer", "crews.py", "-type", "f"], cwd=shop.path, capture_output=True
    )
    assert (shop.paid(), after.stdout) == ([], before.stdout)
