"""A process may be forked at any moment: the child has the memory of its parent's runs, but not their threads or locks."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, bound
from crewlite.errors import BranchConflictError, ConfigError, StoreError
from crewlite.flow import ask, flow, step
from crewlite.lazy import lazy
from crewlite.state import RuntimeState
from crewlite.system import disk, forked
from crewlite.testing import RecordedLLM, ScriptedLLM
from tests import children

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


class Sleeper(ScriptedLLM):
    """A model that says when it was asked, and never answers."""

    def __init__(self):
        super().__init__([])
        self.asleep = threading.Event()

    async def acall(self, messages, **context):
        self.asleep.set()
        await asyncio.sleep(60)


def crew(location, llm):
    who = Agent(role="Worker", goal="work", llm=llm)
    task = Task(name="t", description="Do it", expected_output="text", agent=who)
    return Crew(tasks=[task], checkpoint=CheckpointConfig(location=location))


def while_at_work(location, act):
    """What `act` gives, done in a thread while run r is at work in this process."""

    async def main():
        llm = Sleeper()
        run = asyncio.create_task(crew(location, llm).akickoff(run_id="r"))
        await asyncio.to_thread(llm.asleep.wait)
        done = await asyncio.to_thread(act)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return done

    return asyncio.run(main())


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_an_answer_from_a_forked_child_reaches_the_run_of_its_parent(name, tmp_path):
    def forked():
        child = os.fork()
        if not child:
            signal.alarm(60)
            try:
                with History(tmp_path / name) as history:
                    os._exit(0 if history.answer("r", "human:go", "yes", ahead=True) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0, "it waits for a thread that its parent has"
        with History(tmp_path / name) as history:
            return [one.value for one in history.run("r").unused_answers]

    assert while_at_work(tmp_path / name, forked) == ["yes"]


def test_a_handle_is_of_no_use_in_a_child_that_was_forked_while_the_run_was_at_work(tmp_path):
    begun, going_on = threading.Event(), threading.Event()

    @step
    def work():
        begun.set()
        going_on.wait(30)
        return "done"

    stream = flow(name="long")(work).stream()
    begun.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            for refused in (
                stream.handle.result,
                lambda: stream.handle.status,
                lambda: stream.result,
                lambda: [*stream],
            ):
                with pytest.raises(ConfigError, match=f"is at work in process {os.getppid()}, from which"):
                    refused()
            (tmp_path / "said").write_text("all refused")
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "it waits for a thread that its parent has"
    assert (tmp_path / "said").read_text() == "all refused"
    going_on.set()
    assert stream.result == "done"


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_an_answer_to_the_copy_of_a_run_at_work_is_not_given_to_the_run(name, tmp_path):
    def answer():
        with History(tmp_path / name) as history, History(tmp_path / f"other-{name}", make=True) as other:
            history.export("r", tmp_path / "r.json")
            other.import_run(tmp_path / "r.json")
            before = history.run("r").digest
            with pytest.raises(BranchConflictError):
                other.answer("r", "human:go", "yes", ahead=True)
            return before == history.run("r").digest

    assert while_at_work(tmp_path / name, answer)


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


def in_a_child(act):
    """Whether `act` gives something true in a forked child."""
    child = os.fork()
    if not child:
        signal.alarm(60)
        done = False
        try:
            done = act()
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("make", [forked.lock, forked.rlock])
def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child(make):
    lock, held, over = make(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            over.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    assert in_a_child(lambda: lock.acquire(timeout=1))
    assert not lock.acquire(blocking=False)
    over.set()
    holder.join()


def test_a_reentrant_lock_that_the_forking_thread_holds_can_be_released_in_the_child():
    lock = forked.rlock()

    def released():
        lock.release()
        return True

    with lock:
        assert in_a_child(released)


def test_a_question_can_be_asked_in_a_child_that_was_forked_while_another_was_asked(monkeypatch):
    asking, over = threading.Event(), threading.Event()

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    class Slow(Terminal):
        def readline(self, *size):
            asking.set()
            over.wait(20)
            return "yes\n"

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdin", Slow())
    monkeypatch.setattr("select.select", lambda *files: (files[0], [], []))
    asked = threading.Thread(target=ask, args=["Go?", bool])
    asked.start()
    asking.wait(20)
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert in_a_child(lambda: ask("Go?", bool))
    over.set()
    asked.join()


@step
def double(n):
    return n * 2


@flow
def doubled(n):
    return double(n)


@pytest.mark.parametrize("act", [double, bound(double), doubled.kickoff])
@pytest.mark.parametrize("location", [None, "store"])
def test_a_child_that_was_forked_in_a_step_is_outside_of_the_run_as_a_thread_is(act, location, tmp_path):
    @step
    def in_child():
        return in_a_child(lambda: act(2) == 4)

    @step
    async def in_child_of_the_loop():
        return in_a_child(lambda: act(2) == 4)

    @flow(checkpoint=location and CheckpointConfig(location=tmp_path / location))
    def both():
        return [in_child(), in_child_of_the_loop(), double(3)]

    assert both.kickoff(run_id=location and "r") == [True, True, 6]


def test_what_belongs_to_a_run_is_not_waited_for_in_a_child_that_was_forked_in_it():
    going_on = threading.Event()

    @step
    def slow():
        return going_on.wait(60)

    def refused(future):
        with pytest.raises(ConfigError, match="Step 'slow' is at work in process"):
            future.result()
        return True

    @flow
    def both():
        one, in_run = slow.submit(), bound(double)
        told = [in_a_child(act) for act in (lambda: refused(one), lambda: in_run(2) == 4)]
        going_on.set()
        return [*told, one.result()]

    assert both.kickoff() == [True, True, True]


def doubling(location):
    return flow(name="doubling", checkpoint=CheckpointConfig(location=location))(lambda n: double(n))


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
        there = threads.submit(in_a_child, lambda: twice.kickoff(3, run_id="child") == 6)
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
        assert in_a_child(lambda: True)
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
            told.append(in_a_child(refused))

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

    assert in_a_child(refused)
    change()
    assert state.snapshot().version == first.version + 1
    state.close()


def test_a_child_that_is_forked_while_a_thread_imports_a_module_imports_it_too(tmp_path, monkeypatch):
    begun = threading.Event()
    monkeypatch.setitem(sys.modules, "told_by", SimpleNamespace(begun=begun))
    (tmp_path / "slow.py").write_text("import time, told_by\ntold_by.begun.set()\ntime.sleep(0.3)\nvalue = 1")
    monkeypatch.syspath_prepend(tmp_path)
    slow = lazy("slow")
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert begun.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            os._exit(slow.value != 1)
        finally:
            os._exit(2)
    thread.join()
    monkeypatch.delitem(sys.modules, "slow")
    assert os.waitpid(child, 0)[1] == 0, "it waits for a thread that its parent has"


def test_a_child_that_is_forked_while_a_thread_works_out_a_graph_works_out_its_own():
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        @forked.cached_property
        def graph(self):
            begun.set()
            return go_on.wait(30)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: Slow().graph)
        assert begun.wait(30)
        child = os.fork()
        go_on.set()
        if not child:
            signal.alarm(20)
            try:
                os._exit(Slow().graph is not True)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0, "it waits for a thread that its parent has"
        assert other.result()


def test_a_child_that_is_forked_while_a_reply_is_recorded_has_the_recorded_replies(tmp_path):
    first, llm = (RecordedLLM(tmp_path / "replies.jsonl", ScriptedLLM([reply])) for reply in ("one", "two"))
    parent, writes, go_on = os.getpid(), threading.Event(), threading.Event()

    def asked(text, llm=llm):
        return asyncio.run(llm.acall([{"role": "user", "content": text}])).text

    def pause(operation):
        if os.getpid() == parent and operation.verb == "write":
            writes.set()
            go_on.wait(60)

    assert asked("first", first) == "one"
    with disk.watched(pause), ThreadPoolExecutor(1) as pool:
        second = pool.submit(asked, "second")
        assert writes.wait(60)
        child = os.fork()
        if not child:
            signal.alarm(20)
            for _ in range(20):  # else the thread that asks may get the number, and so the lock, of one of the parent
                threading.Thread(target=go_on.wait, daemon=True).start()
            try:
                os._exit(asked("first") != "one")
            finally:
                os._exit(2)
        status = os.waitpid(child, 0)[1]
        go_on.set()
        assert second.result() == "two"
    assert status == 0, "it waits for a thread that its parent has"


FORKS_IN_A_STEP = """
import os, sys, warnings
from crewlite.flow import flow, step

warnings.simplefilter("ignore")

def fork():
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    {ends}

@step
def in_a_thread():
    return fork()

@step
async def on_the_loop():
    return fork()

@flow
def program():
    return {step}()

print("code", program.kickoff())
"""


@pytest.mark.parametrize(
    ("step", "ends", "code", "said"),
    [
        ("in_a_thread", "raise ValueError('it fails')", 1, "ValueError: it fails"),
        ("in_a_thread", "sys.exit(3)", 3, ""),
        ("in_a_thread", "sys.exit('no luck')", 1, "no luck"),
        ("in_a_thread", "sys.exit(1.5)", 1, "1.5"),
        ("in_a_thread", "return print('done')", 0, ""),
        ("on_the_loop", "raise ValueError('it fails')", 1, "with os._exit(), or fork in a plain function"),
        ("on_the_loop", "return print('done')", 1, "with os._exit(), or fork in a plain function"),
        ("on_the_loop", "os._exit(4)", 4, ""),
    ],
)
def test_a_child_that_was_forked_in_a_step_ends_there_and_tells_how(step, ends, code, said):
    script = FORKS_IN_A_STEP.format(step=step, ends=ends)
    done = children.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == [f"code {code}"], done.stderr
    assert said in done.stderr and bool(said) == bool(done.stderr)
