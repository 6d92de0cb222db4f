"""A process may be forked at any moment: the child has the memory of its parent's runs, but not their threads or locks."""

from __future__ import annotations

import io
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from crewlite import CheckpointConfig, History, bound
from crewlite.errors import BranchConflictError, ConfigError
from crewlite.flow import ask, flow, step
from crewlite.lazy import lazy
from crewlite.system import forked
from tests import children
from tests.children import in_a_fork
from tests.runtime.claiming import while_at_work

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def test_an_answer_from_a_forked_child_reaches_the_run_of_its_parent(make_crew, on_disk):
    def answer():
        with History(on_disk().location) as history:
            return history.answer("r", "human:go", "yes", ahead=True)

    def forked():
        assert in_a_fork(answer), "it waits for a thread that its parent has"
        with History(on_disk().location) as history:
            return [one.value for one in history.run("r").unused_answers]

    assert while_at_work(make_crew, on_disk, forked) == ["yes"]


def test_a_handle_is_of_no_use_in_a_child_that_was_forked_while_the_run_was_at_work():
    begun, going_on = threading.Event(), threading.Event()

    @step
    def work():
        begun.set()
        going_on.wait(30)
        return "done"

    stream = flow(name="long")(work).stream()
    begun.wait(30)

    def all_refused():
        verbs = (stream.handle.result, lambda: stream.handle.status, lambda: stream.result, lambda: [*stream])
        for refused in verbs:
            with pytest.raises(ConfigError, match=f"is at work in process {os.getppid()}, from which"):
                refused()
        return True

    assert in_a_fork(all_refused), "it waits for a thread that its parent has"
    going_on.set()
    assert stream.result == "done"


def test_an_answer_to_the_copy_of_a_run_at_work_is_not_given_to_the_run(make_crew, on_disk, tmp_path):
    there = Path(on_disk().location)

    def answer():
        with History(there) as history, History(there.with_name(f"other-{there.name}"), make=True) as other:
            history.export("r", tmp_path / "r.json")
            other.import_run(tmp_path / "r.json")
            before = history.run("r").digest
            with pytest.raises(BranchConflictError):
                other.answer("r", "human:go", "yes", ahead=True)
            return before == history.run("r").digest

    assert while_at_work(make_crew, on_disk, answer)


def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child():
    lock, held, over = forked.lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            over.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    assert in_a_fork(lambda: lock.acquire(timeout=1))
    assert not lock.acquire(blocking=False)
    over.set()
    holder.join()


def test_a_lock_that_the_forking_thread_holds_can_be_released_in_the_child():
    lock = forked.lock()

    def released():
        lock.release()
        return True

    with lock:
        assert in_a_fork(released)


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
    assert in_a_fork(lambda: ask("Go?", bool))
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
        return in_a_fork(lambda: act(2) == 4)

    @step
    async def in_child_of_the_loop():
        return in_a_fork(lambda: act(2) == 4)

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
        told = [in_a_fork(act) for act in (lambda: refused(one), lambda: in_run(2) == 4)]
        going_on.set()
        return [*told, one.result()]

    assert both.kickoff() == [True, True, True]


def test_a_child_that_is_forked_while_a_thread_imports_a_module_imports_it_too(tmp_path, monkeypatch):
    begun = threading.Event()
    monkeypatch.setitem(sys.modules, "told_by", SimpleNamespace(begun=begun))
    (tmp_path / "slow.py").write_text("import time, told_by\ntold_by.begun.set()\ntime.sleep(0.3)\nvalue = 1")
    monkeypatch.syspath_prepend(tmp_path)
    slow = lazy("slow")
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert begun.wait(30)
    assert in_a_fork(lambda: slow.value == 1), "it waits for a thread that its parent has"
    thread.join()
    monkeypatch.delitem(sys.modules, "slow")


def test_a_child_that_is_forked_while_a_thread_works_out_a_graph_works_out_its_own():
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        @forked.cached_property
        def graph(self):
            begun.set()
            return go_on.wait(30)

    def own_graph():
        go_on.set()
        return Slow().graph

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: Slow().graph)
        assert begun.wait(30)
        assert in_a_fork(own_graph), "it waits for a thread that its parent has"
        go_on.set()
        assert other.result()


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
