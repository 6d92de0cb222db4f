"""Where a thread is refused, because the system has no more or because the program ends, no run hangs or has failed."""

from __future__ import annotations

import sys

import pytest

from crewlite import History
from tests import children

REFUSED_BY_THE_SYSTEM = """
import sys, threading
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
def plain(n):
    return n

@flow(name="survey", checkpoint=CheckpointConfig(location=sys.argv[1]))
async def survey():
    return await plain.submit(1)

begin, left = threading.Thread.start, 0

def start(thread):
    global left
    left -= 1
    threading.stack_size(1 << 40 if left < 0 else 0)  # so large a stack is refused
    try:
        begin(thread)
    finally:
        threading.stack_size(0)

threading.Thread.start = start
for allowed in range(20):
    left = allowed
    try:
        survey.submit(run_id=f"run-{allowed}").result() if "submit" in sys.argv else survey.kickoff(run_id=f"run-{allowed}")
    except RuntimeError as error:
        print(error)
    else:
        break
    left = 1_000
    assert survey.kickoff(run_id=f"run-{allowed}") == 1
"""


@pytest.mark.parametrize("how", ["kickoff", "submit"])
@pytest.mark.parametrize("location", ["runs.db", "runs"])
def test_a_kickoff_to_which_the_system_refuses_any_of_its_threads_goes_on_when_it_has_them(tmp_path, location, how):
    """The event loop, the writer of the store and the first step each begin a thread. None may be taken for begun."""
    said = {"stdout": children.PIPE, "stderr": children.PIPE, "text": True, "check": True}
    done = children.run([sys.executable, "-c", REFUSED_BY_THE_SYSTEM, location, how], cwd=tmp_path, **said)
    assert done.stdout.splitlines() == ["can't start new thread"] * 3
    assert done.stderr == ""


REFUSED_AT_THE_END = """
import asyncio, sys, threading
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.errors import ProgramEnding
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM, ToolCall
from crewlite.tools import tool

what, until_refused = sys.argv[1], sys.argv[2] == "until refused"
at_work = threading.Event()

async def ask_for_threads():
    while until_refused:
        await asyncio.to_thread(str, 1)
        at_work.set()
        await asyncio.sleep(0.005)
    return await asyncio.to_thread(str, 1)

asked = step(retries=3)(ask_for_threads)

@step
def otherwise():
    return "otherwise"

@flow(name="survey", checkpoint=CheckpointConfig(location="runs.db"))
async def survey():
    try:
        return await asked()
    except Exception:
        return await otherwise.submit()

@tool
async def look() -> str:
    "Look something up."
    return await ask_for_threads()

def replies(messages):
    return messages[-1]["content"] if messages[-1]["role"] == "tool" else ToolCall("look", {})

if what == "tool":
    agent = Agent(role="Reader", goal="Read.", backstory="A reader.", tools=[look], llm=ScriptedLLM(replies))
    task = Task(name="read", description="Read.", expected_output="What was read.", agent=agent)
    run = Crew(tasks=[task], checkpoint=CheckpointConfig(location="runs.db"))
else:
    run = survey

def wait(handle):
    try:
        print(handle.result())
    except ProgramEnding as error:
        print(repr(error.__cause__), error, handle.status)

if until_refused:
    threading.Thread(target=wait, args=(run.submit(run_id="one"),)).start()
    at_work.wait()
else:
    print(run.kickoff(run_id="one"))
"""


@pytest.mark.parametrize("what", ["step", "tool"])
def test_a_run_that_python_refuses_a_thread_as_the_program_ends_has_not_failed_and_goes_on(tmp_path, what):
    """Neither retries nor a model nor code that catches all errors hears of what is no failure of the step."""
    said = {"stdout": children.PIPE, "stderr": children.PIPE, "text": True, "check": True}
    program = [sys.executable, "-c", REFUSED_AT_THE_END, what]
    done = children.run([*program, "until refused"], cwd=tmp_path, **said)
    assert done.stdout.startswith("RuntimeError('cannot schedule new futures after ")
    assert "none of its steps has failed" in done.stdout
    assert "Start the program again to go on" in done.stdout
    assert done.stdout.endswith(" unfinished\n")
    assert "This program ends before 1 run" in done.stderr
    assert "To go on: run the same script again" in done.stderr
    found = History(tmp_path / "runs.db").run("one")
    assert found.status == "unfinished"
    assert "failed" not in {one.status for one in found.steps}
    done = children.run([*program, "at work"], cwd=tmp_path, **said)
    assert done.stdout == "1\n"
    assert all(step.status == "finished" for step in History(tmp_path / "runs.db").run("one").steps)


FAILS_AT_THE_END = """
import threading
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

at_work = threading.Event()

@step
def pump():
    at_work.set()
    threading.main_thread().join()
    raise RuntimeError("the pump is in shutdown")

@flow(name="survey", checkpoint=CheckpointConfig(location="runs.db"))
async def survey():
    return await pump.submit()

def wait(handle):
    try:
        handle.result()
    except RuntimeError as error:
        print(error.args[0])

threading.Thread(target=wait, args=(survey.submit(run_id="one"),)).start()
at_work.wait()
"""


def test_another_error_of_a_step_is_a_failure_as_the_program_ends_too(tmp_path):
    """Its words are not those with which Python refuses a thread."""
    said = {"stdout": children.PIPE, "text": True, "check": True}
    done = children.run([sys.executable, "-c", FAILS_AT_THE_END], cwd=tmp_path, **said)
    assert done.stdout == "the pump is in shutdown\n"
    assert History(tmp_path / "runs.db").run("one").status == "failed"


SHUT_DOWN = """
import threading
from concurrent.futures import ThreadPoolExecutor
from crewlite.flow import flow, step

@step
def draw():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    threading.stack_size(1 << 40)  # so large a stack is refused
    pool.submit(int)

@flow
def survey():
    draw()

try:
    survey.kickoff()
except RuntimeError as error:
    print(repr(error))
"""


def test_an_executor_that_was_shut_down_is_no_end_of_the_program_where_the_system_has_no_more_threads():
    done = children.run([sys.executable, "-c", SHUT_DOWN], stdout=children.PIPE, text=True, check=True)
    assert done.stdout == "RuntimeError('cannot schedule new futures after shutdown')\n"


BEGUN_AT_THE_END = """
import threading
from crewlite import Agent, CheckpointConfig
from crewlite.errors import ProgramEnding
from crewlite.testing import ScriptedLLM

def begin():
    threading.main_thread().join()
    agent = Agent(role="Reader", goal="Read.", llm=ScriptedLLM(["read"]), checkpoint=CheckpointConfig(location="runs"))
    try:
        print(agent.kickoff("Read."))
    except ProgramEnding as error:
        print("read" if error.refusal.endswith("interpreter shutdown") else error.refusal)

threading.Thread(target=begin).start()
"""


def test_a_first_kickoff_after_the_main_thread_has_ended_runs_or_says_that_the_program_is_ending(tmp_path):
    """By Python 3.12.1 all threads are refused then; others refuse those of executors."""
    said = {"stdout": children.PIPE, "stderr": children.PIPE, "text": True, "check": True}
    done = children.run([sys.executable, "-c", BEGUN_AT_THE_END], cwd=tmp_path, **said)
    assert (done.stdout, done.stderr) == ("read\n", "")
