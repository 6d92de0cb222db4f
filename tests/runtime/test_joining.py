"""kickoff(wait=True) joins a run that is at work, here or in another process, and never does its work a second time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import Counter

import pytest

from crewlite import Agent, BaseLLM, CheckpointConfig, Crew, Task
from crewlite.errors import (
    BranchConflictError,
    ConfigError,
    InputsChanged,
    OnLoopThread,
    RunCancelled,
    StepRaised,
    Suspended,
)
from crewlite.flow import ask, flow, step
from tests import children

pytestmark = pytest.mark.skipif(os.name == "nt", reason="stops and kills processes by POSIX signals")

PROGRAM = """
import asyncio, os, sys, threading, time
from pathlib import Path
from crewlite import CheckpointConfig
from crewlite.concurrency import background
from crewlite.flow import flow, step

location, calls, go, waiters = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])

@step
async def page(number):
    with calls.open("a") as file:
        file.write(f"{number}\\n")
    while number == 2 and not go.exists():
        await asyncio.sleep(0.01)
    return f"page {number}"

@flow(checkpoint=CheckpointConfig(location=location))
async def book():
    return [await page(number) for number in (1, 2, 3)]

async def all_of_them():
    return await asyncio.gather(*[book.akickoff(run_id="r", wait=True) for _ in range(waiters)])

def say_when_it_waits():
    main = threading.main_thread().ident
    while sys._current_frames()[main].f_code is not background.next_of.__code__:
        time.sleep(0.001)
    print("waits", flush=True)

if __name__ == "__main__":
    if sys.argv[5:]:
        threading.Thread(target=say_when_it_waits, daemon=True).start()
    print("begun", flush=True)
    for result in asyncio.run(all_of_them()) if waiters else [book.kickoff(run_id="r", wait=True)]:
        print(result, flush=True)
"""
BOOK = ["page 1", "page 2", "page 3"]


@pytest.fixture
def book(on_disk, tmp_path, monkeypatch):
    """`start(waiters)` starts a process that kicks the flow off; `here()` is the flow in this process."""
    (tmp_path / "book.py").write_text(PROGRAM)
    calls, go, location = tmp_path / "calls", tmp_path / "go", on_disk().location
    command = [sys.executable, str(tmp_path / "book.py"), location, str(calls), str(go)]

    class Book:
        def asked(self):
            return Counter(calls.read_text().split()) if calls.exists() else Counter()

        def start(self, waiters=0, *more, **options):
            child = children.Child([*command, str(waiters), *more], stdout=children.PIPE, text=True, **options)
            assert child.stdout.readline() == "begun\n"
            return child

        def here(self):
            monkeypatch.setattr(sys, "argv", command[1:] + ["0"])
            scope = {"__name__": "book"}
            exec(compile(PROGRAM, str(tmp_path / "book.py"), "exec"), scope)
            return scope["book"]

        def go(self):
            go.touch()

    return Book()


def test_ten_waiters_in_two_processes_get_the_result_of_the_one_at_work(book):
    first = book.start()
    children.until(lambda: book.asked()["2"])
    other = book.start(5)
    handles = [book.here().submit(run_id="r", wait=True) for _ in range(5)]
    assert {handle.run_id for handle in handles} == {"r"}  # known at once, and the callers are not blocked
    with pytest.raises(BranchConflictError, match=rf"process {first.pid} on .*run_id='r', wait=True"):
        book.here().kickoff(run_id="r")
    assert not any(handle.status != "running" for handle in handles)
    book.go()
    assert [handle.result(children.PATIENCE) for handle in handles] == [BOOK] * 5
    for child in (first, other):
        assert set(child.communicate()[0].splitlines()) == {str(BOOK)}
    assert book.asked() == {"1": 1, "2": 1, "3": 1}


def test_if_the_process_at_work_is_killed_exactly_one_waiter_goes_on(book):
    first = book.start()
    children.until(lambda: book.asked()["2"])
    other = book.start(5)
    handles = [book.here().submit(run_id="r", wait=True) for _ in range(5)]
    first.kill()
    children.until(lambda: book.asked()["2"] == 2)
    book.go()
    assert [handle.result(children.PATIENCE) for handle in handles] == [BOOK] * 5
    assert other.communicate()[0].splitlines() == [str(BOOK)] * 5
    assert book.asked() == {"1": 1, "2": 2, "3": 1}


def test_of_ten_that_begin_at_once_one_begins_the_run(book):
    book.go()
    other = book.start(5)
    handles = [book.here().submit(run_id="r", wait=True) for _ in range(5)]
    assert [handle.result(children.PATIENCE) for handle in handles] == [BOOK] * 5
    assert other.communicate()[0].splitlines() == [str(BOOK)] * 5
    assert book.asked() == {"1": 1, "2": 1, "3": 1}


LONG = """
import sys
from pathlib import Path
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
def page(number):
    if number == 2:
        print("at work", flush=True)
        sys.stdin.readline()
    return number

@flow(checkpoint=CheckpointConfig(location=sys.argv[1], max_checkpoints=1, on_events=["step_completed"]))
def book():
    return sum(page(number) for number in range(100))

if __name__ == "__main__":
    print(book.kickoff(run_id="r"), flush=True)
    sys.stdin.readline()
"""


def test_a_run_whose_journal_is_compacted_meanwhile_is_waited_for_no_longer_than_it_is_at_work(on_disk, tmp_path):
    (tmp_path / "book.py").write_text(LONG)
    command = [sys.executable, str(tmp_path / "book.py"), on_disk().location]
    with children.Child(command, stdin=children.PIPE, stdout=children.PIPE, text=True) as child:
        assert child.stdout.readline() == "at work\n"

        @flow(name="book", checkpoint=on_disk())
        def book():
            raise AssertionError("the other process has the result")

        waiting = book.submit(run_id="r", wait=True)
        children.until(lambda: waiting.run_id == "r")
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "4950\n"
        assert waiting.result(children.PATIENCE) == 4950, "though that process lives on"
        child.stdin.close()


@pytest.mark.parametrize("on_disk", ["json"], indirect=True)
def test_ctrl_c_ends_the_wait_and_not_the_run(book):
    first = book.start()
    children.until(lambda: book.asked()["2"])
    waiter = book.start(0, "say when it waits", stderr=children.PIPE)
    assert waiter.stdout.readline() == "waits\n"
    waiter.send_signal(signal.SIGINT)
    said = waiter.communicate()[1]
    assert waiter.returncode != 0
    told = ("Only the waiting has ended: run 'r' goes on in process", "Nothing was saved", "No step had begun")
    assert any(text in said for text in told), said
    book.go()
    assert first.communicate()[0].splitlines() == [str(BOOK)]


# --- in one process, with each provider


class Gate:
    """A step that says when it has begun, and ends as it is told."""

    def __init__(self):
        self.begun, self.go, self.calls, self.error = threading.Event(), threading.Event(), 0, None

    def pass_(self):
        self.calls += 1
        self.begun.set()
        assert self.go.wait(children.PATIENCE)
        if self.error:
            raise self.error
        return "passed"


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.go.set()


class Lost(Exception):
    def __init__(self, page):
        super().__init__(f"page {page} is lost")
        self.page = page


def gated(config, gate):
    @step
    def through():
        return gate.pass_()

    @flow(checkpoint=config())
    def passage():
        return through()

    return passage


def test_waiters_of_a_run_that_fails_raise_its_failure_and_do_not_try_again(config, gate):
    passage = gated(config, gate)
    first = passage.submit(run_id="r")
    assert gate.begun.wait(children.PATIENCE)
    waiters = [passage.submit(run_id="r", wait=True) for _ in range(3)]
    gate.error = Lost(7)
    gate.go.set()
    for handle in (first, *waiters):
        with pytest.raises(Lost, match="page 7 is lost") as raised:
            handle.result(children.PATIENCE)
        assert raised.value.page == 7
        assert "In step step:through" in raised.value.__notes__
    assert gate.calls == 1
    gate.error = None
    assert passage.kickoff(run_id="r", wait=True) == "passed"  # nobody is at work, so it is a resume
    assert gate.calls == 2


def test_waiters_of_a_run_that_is_cancelled_raise_that_and_do_not_resume_it(config, gate):
    passage = gated(config, gate)
    first = passage.submit(run_id="r")
    assert gate.begun.wait(children.PATIENCE)
    waiter, other = (passage.submit(run_id="r", wait=True) for _ in range(2))
    waiter.cancel()  # a handle cancels its run, wherever that is at work
    for handle in (first, waiter, other):
        with pytest.raises(RunCancelled):
            handle.result(children.PATIENCE)
    assert gate.calls == 1


def test_waiters_of_a_run_that_waits_for_people_are_told_so(config, gate):
    @step
    def through():
        return gate.pass_()

    @flow(checkpoint=config())
    def passage():
        return through() + ask("Enough?")

    first = passage.submit(run_id="r")
    assert gate.begun.wait(children.PATIENCE)
    waiters = [passage.submit(run_id="r", wait=True) for _ in range(2)]
    gate.go.set()
    for handle in (first, *waiters):
        with pytest.raises(Suspended, match=r"Enough\?"):
            handle.result(children.PATIENCE)
    assert passage.kickoff(run_id="r", wait=True, answers={"human#1": "yes"}) == "passedyes"
    assert gate.calls == 1


def test_a_cancelled_waiter_leaves_the_run_alone_and_the_loop_is_free_meanwhile(config, gate):
    passage = gated(config, gate)
    first = passage.submit(run_id="r")
    assert gate.begun.wait(children.PATIENCE)

    async def main():
        waiting = asyncio.ensure_future(passage.akickoff(run_id="r", wait=True))
        for _ in range(20):  # a loop that stands still does not get to the end of this
            await asyncio.sleep(0.01)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    gate.go.set()
    assert first.result(children.PATIENCE) == "passed"


def test_crews_agents_and_for_each_wait_too_and_a_failure_of_another_class_is_told(config, gate):
    class Gated(BaseLLM):
        model = "gated"

        def call(self, messages, **context):
            return gate.pass_()

    agent = Agent(role="Worker", goal="work", llm=Gated(), checkpoint=config())
    crew = Crew(
        tasks=[Task(name="t", description="Do {n}", expected_output="x", agent=agent)],
        checkpoint=config(),
    )
    cases = [
        (lambda **how: crew.submit({"n": 1}, run_id="c", **how).result(), "raw"),
        (lambda **how: agent.submit("Which?", run_id="a", **how).result(), "raw"),
        (lambda **how: crew.kickoff_for_each([{"n": 1}], run_id="e", **how)[0], "raw"),
    ]
    for kickoff, _ in cases:
        gate.begun.clear()
        gate.go.clear()
        results = list[str]()
        threads = [
            threading.Thread(target=lambda how=how, k=kickoff: results.append(k(**how).raw))
            for how in ({}, {"wait": True})
        ]
        threads[0].start()
        assert gate.begun.wait(children.PATIENCE)
        threads[1].start()
        gate.go.set()
        for thread in threads:
            thread.join(children.PATIENCE)
        assert results == ["passed", "passed"]
    assert gate.calls == 3
    gate.begun.clear()
    gate.go.clear()
    first = crew.submit({"n": 2}, run_id="f")
    assert gate.begun.wait(children.PATIENCE)
    same = crew.submit(run_id="f", wait=True)
    with pytest.raises(InputsChanged, match="started with other inputs: 'n'"):
        crew.submit({"n": 3}, run_id="f", wait=True)  # at once, and not when the run has ended
    gate.error = type("Unknown", (Exception,), {})("nothing is there")  # no module has this class
    gate.go.set()
    with pytest.raises(Exception, match="nothing is there"):
        first.result(children.PATIENCE)
    with pytest.raises(StepRaised, match="Unknown.*nothing is there"):
        same.result(children.PATIENCE)


def test_a_flow_with_a_parameter_of_that_name_is_given_it(memory):
    @flow(checkpoint=memory())
    def naps(wait):
        return wait

    assert (naps.kickoff(7, run_id="r"), naps.kickoff(wait=8)) == (7, 8)


def test_wait_needs_a_name_to_wait_for(tmp_path):
    made = gated(lambda: CheckpointConfig(location=str(tmp_path / "s")), Gate())
    with pytest.raises(ConfigError, match="wait is 5; wanted True or False"):
        made.kickoff(wait=5)
    with pytest.raises(ConfigError, match="resume=True skips a run that a process is running"):
        made.kickoff(resume=True, wait=True)


def test_a_blocking_wait_for_a_run_on_the_loop_that_it_blocks_is_refused(tmp_path):
    """Neither would ever go on."""
    begun = asyncio.Event()

    @step
    async def page(number: int) -> str:
        begun.set()
        await asyncio.sleep(0.01)
        return f"page {number}"

    @flow(checkpoint=CheckpointConfig(location=tmp_path / "store"))
    async def book() -> list[str]:
        return [await page(number) for number in (1, 2, 3)]

    async def main():
        at_work = asyncio.create_task(book.akickoff(run_id="r"))
        await begun.wait()
        with pytest.raises(OnLoopThread, match="run 'r', for which it waits, is at work on that loop"):
            book.kickoff(run_id="r", wait=True)
        elsewhere = asyncio.to_thread(book.kickoff, run_id="r", wait=True)
        return await asyncio.gather(at_work, elsewhere, book.akickoff(run_id="r", wait=True))

    assert asyncio.run(main()) == [BOOK] * 3
