"""What is stored, where a process is forked while its parent uses it: locks, databases, states, recorded replies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import ConfigError, StoreError
from crewlite.flow import flow
from crewlite.state import RuntimeState
from crewlite.system import disk, forked
from crewlite.testing import RecordedLLM, ScriptedLLM
from tests import children
from tests.children import in_a_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


FORKS = """
import fcntl, os, signal, sys, time, warnings
from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.system import disk
from crewlite.testing import RecordedLLM, ScriptedLLM

warnings.simplefilter("ignore")
location, at = sys.argv[1], {"reads": fcntl.LOCK_SH, "writes": fcntl.LOCK_EX}[sys.argv[2]]
forked = []

def fork(event, args):
    if event == "fcntl.flock" and args[1] & at and not forked and os.path.exists(location + "/journal/r"):
        forked.append(True)
        if not os.fork():
            os.closerange(0, 3)
            time.sleep(60)
            os._exit(0)

def kill(operation):
    if forked and at == fcntl.LOCK_EX and operation.verb == "fsync":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(fork)
who = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "done"))
tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who) for n in range(2)]
with disk.watched(kill):
    Crew(tasks=tasks, checkpoint=CheckpointConfig(location=location, max_checkpoints=1)).kickoff(run_id="r")
with History(location) as history:
    assert history.run("r").status == "finished"
assert forked
print("done")
"""


@pytest.mark.parametrize("does", ["reads", "writes"])
def test_a_child_that_was_forked_while_its_parent_held_a_lock_is_in_nobodys_way(does, tmp_path):
    location = str(tmp_path / "store")
    command = [sys.executable, "-c", FORKS, location, does]
    first = children.run(command, stdout=children.PIPE, text=True, timeout=30)
    assert first.returncode == (-signal.SIGKILL if does == "writes" else 0)
    again = children.run([*command[:-1], "reads"], stdout=children.PIPE, text=True, timeout=30)
    assert again.stdout == "done\n"


def doubling(location):
    return flow(name="doubling", checkpoint=CheckpointConfig(location=location))(lambda n: n * 2)


def test_a_fork_waits_for_a_commit_so_that_the_child_can_use_the_same_database(tmp_path):
    parent, committing, going_on = os.getpid(), threading.Event(), threading.Event()
    twice = doubling(tmp_path / "runs.db")

    def hold(operation):
        if operation.verb == "commit" and os.getpid() == parent:
            committing.set()
            assert going_on.wait(60)

    with disk.watched(hold), ThreadPoolExecutor() as threads:
        here = threads.submit(twice.kickoff, 2, run_id="parent")
        assert committing.wait(60)
        there = threads.submit(in_a_fork, lambda: twice.kickoff(3, run_id="child") == 6)
        children.until(lambda: forked.between_forks.forking)
        assert not there.done()
        going_on.set()
        assert (here.result(), there.result()) == (4, True)
    with History(tmp_path / "runs.db") as history:
        assert history.doctor() == []
        assert {run.run_id: run.status for run in history.runs()} == {"parent": "finished", "child": "finished"}


def test_commits_of_a_child_last_when_its_parent_closes_the_database_that_it_had_open_at_the_fork(tmp_path):
    location = tmp_path / "runs.db"
    (written, write), (closed, close) = os.pipe(), os.pipe()
    with RuntimeState.open("parent", location) as state:
        state.snapshot()
        child = os.fork()
        if not child:
            signal.alarm(60)
            try:
                own = RuntimeState.open("child", location)
                own.snapshot()
                os.write(write, b".")
                os.read(closed, 1)
                own.snapshot()
            finally:
                os._exit(0)
        os.read(written, 1)
        state.snapshot()
    os.write(close, b".")
    assert os.waitpid(child, 0)[1] == 0
    for end in (written, write, closed, close):
        os.close(end)
    with History(location) as history:
        assert {run.run_id: len(run.checkpoints()) for run in history.runs()} == {"parent": 2, "child": 2}


def test_a_database_that_was_replaced_is_recognised_after_a_fork_too(tmp_path):
    with RuntimeState.open("s", tmp_path / "runs.db") as state:
        assert in_a_fork(lambda: True)
        (tmp_path / "runs.db").rename(tmp_path / "moved.db")
        with pytest.raises(StoreError, match="is gone: it was deleted, moved or replaced"):
            state.snapshot()
        assert not (tmp_path / "runs.db").exists()


def test_a_child_that_was_forked_amid_a_commit_by_its_own_thread_is_refused_databases_alone(tmp_path):
    told, parent = [], os.getpid()

    def refused():
        for location in ("runs.db", "other.db"):
            with pytest.raises(ConfigError, match="forked while its parent was using a database"):
                doubling(tmp_path / location).kickoff(3)
        with pytest.raises(ConfigError, match="forked while its parent was using a database"):
            History(tmp_path / "runs.db").runs()
        return doubling(tmp_path / "store").kickoff(3) == 6

    def fork(operation):
        if operation.verb == "commit" and os.getpid() == parent and not told:
            told.append(in_a_fork(refused))

    with disk.watched(fork):
        assert doubling(tmp_path / "runs.db").kickoff(2) == 4
    assert told == [True]


@pytest.mark.parametrize("name", [None, "store", "runs.db"])
def test_a_state_that_the_parent_has_open_is_refused_in_a_child_and_not_waited_for(name, tmp_path):
    location = name and tmp_path / name
    state = RuntimeState.open("s", location)
    first = state.snapshot()

    def change():
        state["a"] = 2

    async def later():
        await state.asnapshot()

    def refused():
        acts = [change, state.snapshot, state.checkpoint, state.flush, state.checkpoints, lambda: state.restore(first)]
        for act in [*acts, lambda: state.add_usage(requests=1), lambda: asyncio.run(later())]:
            with pytest.raises(StoreError, match=f"is written by process {os.getppid()}, from which"):
                act()
        state.close()
        return True

    assert in_a_fork(refused)
    change()
    assert state.snapshot().version == first.version + 1
    state.close()


def test_a_child_that_is_forked_while_a_reply_is_recorded_has_the_recorded_replies(tmp_path):
    first, llm = (RecordedLLM(tmp_path / "replies.jsonl", ScriptedLLM([reply])) for reply in ("one", "two"))
    parent, writes, go_on = os.getpid(), threading.Event(), threading.Event()

    def asked(text, llm=llm):
        return asyncio.run(llm.acall([{"role": "user", "content": text}])).text

    def pause(operation):
        if os.getpid() == parent and operation.verb == "write":
            writes.set()
            go_on.wait(60)

    def asked_again():
        for _ in range(20):  # else the thread that asks may get the number, and so the lock, of one of the parent
            threading.Thread(target=go_on.wait, daemon=True).start()
        return asked("first") == "one"

    assert asked("first", first) == "one"
    with disk.watched(pause), ThreadPoolExecutor(1) as pool:
        second = pool.submit(asked, "second")
        assert writes.wait(60)
        answered = in_a_fork(asked_again)
        go_on.set()
        assert second.result() == "two"
    assert answered, "it waits for a thread that its parent has"
