"""A process that stands still, stopped by SIGSTOP in the middle of what it does, and goes on when another has been there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from crewlite import History
from tests import children

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only there it is told who has a lock")

PROGRAM = """
import os, signal, sys, threading, time
from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.system import disk, file_locks
from crewlite.errors import CrewliteError
from crewlite.testing import ScriptedLLM

file_locks.PATIENCE = 0.2
location = sys.argv[1]

asked = []

def answer(messages):
    asked.append(messages[1]["content"].split()[1])
    return "done"

def kickoff():
    who = Agent(role="Worker", goal="work", llm=ScriptedLLM(answer))
    tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who) for n in range(3)]
    print(Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location)).kickoff(run_id="r").raw, flush=True)

def stop():
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # so that not even this thread goes on for a moment

def at_write(act, of="main.jsonl"):
    "Do this once, right before the first write to that file after the first answer of the model."
    todo = [act]
    def watch(operation):
        if operation.verb == "write" and os.path.basename(operation.path) == of and todo and len(asked) == 1:
            todo.pop()()
    return disk.watched(watch)

def told(act):
    try:
        act()
    except CrewliteError as error:
        print(type(error).__name__, getattr(error, "stopped", None), flush=True)
"""


def child(body, location):
    return children.Child([sys.executable, "-c", PROGRAM + body, str(location)], stdout=children.PIPE, text=True)


def stopped(one):
    """Wait until a child has stopped itself."""
    children.until(lambda: os.waitid(os.P_PID, one.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT))


@pytest.mark.parametrize(
    "act",
    [
        "kickoff()",
        "History(location).cancel('r')",
        "History(location).runs()[0].status",
        "History(location).export('r', 'r.json')",
    ],
)
def test_whoever_meets_one_that_stands_still_in_a_commit_is_told_and_does_not_wait_for_ever(act, tmp_path):
    """Its files are locked. A database needs no such lock to be read."""
    holder = child("with at_write(stop): kickoff()", tmp_path / "store")
    stopped(holder)
    assert child(f"told(lambda: {act})", tmp_path / "store").communicate()[0] == f"StoreBusy {holder.pid}\n"
    holder.send_signal(signal.SIGCONT)
    assert holder.communicate()[0].split("\n")[-2] == "done"
    with History(tmp_path / "store") as history:
        assert history.doctor() == []


def test_a_slow_process_is_waited_for_however_long(tmp_path):
    slow = child("with at_write(lambda: [print('in it', flush=True), time.sleep(1)]): kickoff()", tmp_path / "store")
    assert slow.stdout.readline() == "in it\n"
    reader = child("print(len(History(location).runs()[0].steps), flush=True)", tmp_path / "store")
    assert int(reader.communicate()[0]) >= 1
    assert slow.communicate()[0] == "done\n"


def test_a_stopped_reader_of_a_head_holds_up_no_commit(tmp_path):
    child("kickoff()", tmp_path / "store").communicate()
    head = next((tmp_path / "store").glob("heads/r/*.json"))
    reader = child(f"f = open({str(head)!r}); file_locks.take_lock(f, f.name, shared=True); stop()", tmp_path / "store")
    stopped(reader)
    assert child("History(location).label('r', 'here')", tmp_path / "store").wait() == 0
    assert b"here" in (tmp_path / "store/journal/r/main.jsonl").read_bytes()
