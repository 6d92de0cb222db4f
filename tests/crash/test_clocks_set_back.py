"""A wall clock that was set back between two lives of a run, as on a machine that takes its time from the network late."""

from __future__ import annotations

import sys

import pytest

from tests import children

PROGRAM = """
import sys, time
from datetime import timedelta

location, what, shift = sys.argv[1], sys.argv[2], int(sys.argv[3])
from crewlite import ids  # before all that takes the clock from there

now, nanoseconds = ids.now, time.time_ns
ids.now = lambda: now() + timedelta(seconds=shift)
time.time_ns = lambda: nanoseconds() + shift * 10**9

import asyncio, os
from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import DeadlineExceeded
from crewlite.flow import flow, sleep_for
from crewlite.testing import ScriptedLLM

config = CheckpointConfig(location=location)

def maybe_die():
    if not shift:
        asyncio.get_running_loop().call_later(0.3, os._exit, 9)

@flow(checkpoint=config)
async def timer():
    maybe_die()
    await sleep_for(1)
    return "awake"

@flow(checkpoint=config, timeout=1)
async def deadline():
    maybe_die()
    await asyncio.sleep(3600)

def crew():
    def reply(messages):
        if not shift and "Do 2" in messages[1]["content"]:
            os._exit(9)
        return "done"
    who = Agent(role="Worker", goal="work", llm=ScriptedLLM(reply))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who) for n in range(4)]
    kept = CheckpointConfig(location=location, on_events=["task_completed"])
    Crew(tasks=tasks, checkpoint=kept).kickoff(run_id="r")
    with History(location) as history:
        return [place.address for place in history.checkpoints()]

try:
    print(crew() if what == "crew" else globals()[what].kickoff(run_id="r"))
except DeadlineExceeded:
    print("late")
"""


def lives(what, location):
    """What a run says in its second life, a day before its first one."""
    command = [sys.executable, "-c", PROGRAM, str(location), what]
    assert children.run([*command, "0"], timeout=60, cold=True).returncode == 9
    return children.run([*command, "-86400"], stdout=children.PIPE, text=True, timeout=60, cold=True).stdout.strip()


@pytest.mark.parametrize(("what", "said"), [("timer", "awake"), ("deadline", "late")])
def test_a_clock_that_was_set_back_prolongs_no_wait_and_no_deadline(what, said, tmp_path):
    assert lives(what, tmp_path / "store") == said


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_checkpoints_are_listed_in_the_order_in_which_their_run_made_them(name, tmp_path):
    assert lives("crew", tmp_path / name) == str([f"task:t{n}" for n in (3, 2, 1, 0)])
