"""Ctrl-C leaves a run that can go on, says how, and a second one does not wait."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import io
import os
import signal
import sys
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, kinds, tool
from crewlite.concurrency import background
from crewlite.errors import ConfigError
from crewlite.events import BaseEvent
from crewlite.flow import flow, step
from crewlite.runtime.kickoffs.engine import kickoff
from crewlite.runtime.kickoffs.many import how_to_go_on
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.runtime.kickoffs.storage import refused
from crewlite.testing import ScriptedLLM
from tests import children

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals to another process")

AT_REST = """
import sys, threading
from crewlite import event_bus
from crewlite.concurrency import background
from crewlite.events import BaseEvent
emitted, read = [], None
event_bus.on(BaseEvent, lambda source, event: emitted.append(event))
def at_rest():
    # The main thread waits: Ctrl-C interrupts crewlite, not the lines around it. Call it where no event is emitted.
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame and frame.f_code is not background.next_of.__code__:
        frame = frame.f_back
    return frame and (read is None or len(read) == len(emitted))
"""

SCRIPT = f"""{AT_REST}
import asyncio
from crewlite import Agent, Crew, Task, CheckpointConfig
from crewlite.events import LLMCallStartedEvent
from crewlite.testing import ScriptedLLM
@event_bus.on(LLMCallStartedEvent)
def started(source, event):
    print("asked", event.address, flush=True)
async def slow(self, messages, **context):
    if "Do 1" in messages[1]["content"] and sys.argv[2] == "slow":
        while not at_rest():
            await asyncio.sleep(0.001)
        print("waits", flush=True)
        await asyncio.Event().wait()  # for ever
    return "done"
class Slow(ScriptedLLM):
    acall = slow
who = Agent(role="W", goal="g", llm=Slow([]))
tasks = [Task(name=f"t{{n}}", description=f"Do {{n}}", expected_output="x", agent=who, context=[]) for n in range(3)]
store = CheckpointConfig(location=sys.argv[1]) if sys.argv[1] != "none" else None
options = {{"run_id": "r"}} if store and sys.argv[3] != "unnamed" else {{}}
crew = Crew(tasks=tasks, checkpoint=store)
match sys.argv[3]:
    case "events":
        read = []
        for event in crew.stream(**options):
            read.append(event)
    case "texts":
        with crew.stream(**options) as stream:
            for text in stream.text():
                pass
    case "result":
        crew.stream(**options).result
    case _:
        print(crew.kickoff(**options).raw)
"""


def start(location, pace, how="named"):
    return children.Child(
        [sys.executable, "-c", SCRIPT, str(location), pace, how],
        stdout=children.PIPE,
        stderr=children.PIPE,
        text=True,
    )


def interrupt(process):
    """Send Ctrl-C in the middle of the second task, which would never end; returns exit code and what was said."""
    for line in process.stdout:
        if line == "waits\n":
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    return process.returncode, said


@pytest.mark.parametrize("name", ["store", "store.db"])
def test_ctrl_c_leaves_a_resumable_run_and_says_how_to_go_on(tmp_path, name):
    code, said = interrupt(start(tmp_path / name, "slow"))
    assert code in (130, -signal.SIGINT)
    assert "Interrupted. To go on: run the same script again, or crew.kickoff(run_id='r')" in said
    assert said.endswith("\nKeyboardInterrupt\n")
    assert "Traceback" not in said
    assert History(tmp_path / name).run("r").status == "unfinished"
    out, _ = start(tmp_path / name, "fast").communicate()
    assert out.split("\n") == ["asked task:t1/llm#1", "asked task:t2/llm#1", "done", ""]


@pytest.mark.parametrize("how", ["events", "texts", "result"])
def test_ctrl_c_leaves_a_resumable_run_and_says_how_to_go_on_where_a_stream_is_read(tmp_path, how):
    code, said = interrupt(start(tmp_path / "store", "slow", how))
    assert code in (130, -signal.SIGINT)
    assert said.count("Interrupted. To go on: run the same script again, or crew.kickoff(run_id='r')") == 1
    assert said.endswith("\nKeyboardInterrupt\n")
    assert "Traceback" not in said
    run = History(tmp_path / "store").run("r")
    assert (run.status, run.at_work) == ("unfinished", None)


STUBBORN = f"""{AT_REST}
import asyncio, os, signal
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM
class Stubborn(ScriptedLLM):
    async def acall(self, messages, **context):
        while not at_rest():
            await asyncio.sleep(0.001)
        while True:
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("cut", flush=True)
who = Agent(role="W", goal="g", llm=Stubborn([]))
crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)],
            checkpoint=CheckpointConfig(location=sys.argv[1]))
if sys.argv[2] == "kickoff":
    crew.kickoff_for_each([{{}}], run_id="r")
else:
    read = []
    with crew.stream(run_id="r") as stream:
        for event in stream:
            read.append(event)
"""


@pytest.mark.parametrize("how", ["kickoff", "stream"])
def test_a_second_ctrl_c_does_not_wait_and_still_says_how_to_go_on(tmp_path, how):
    script = [sys.executable, "-c", STUBBORN, str(tmp_path / "store"), how]
    ended = children.run(script, capture_output=True, text=True)
    assert ended.stdout == "cut\n"
    said = ended.stderr
    assert said.count("Interrupted. To go on: ") == 1
    if how == "kickoff":
        assert "call kickoff_for_each again with run_id='r'" in said
    assert "Traceback" not in said
    assert said.endswith("\nKeyboardInterrupt\n")


IN_THE_BLOCK = """
import signal, sys
from crewlite import Agent
from crewlite.testing import ScriptedLLM
def read():
    with Agent(role="A", goal="g", llm=ScriptedLLM(["x"], delay=60)).stream("Well?") as stream:
        for event in stream:
            if event.type == "llm_call_started":
                signal.raise_signal(signal.SIGINT)
read()
"""


def test_ctrl_c_in_the_block_that_reads_a_stream_is_printed_as_briefly_as_in_the_stream():
    said = children.run([sys.executable, "-c", IN_THE_BLOCK], capture_output=True, text=True).stderr
    assert said.startswith("\nInterrupted. ")
    assert said.endswith("\nKeyboardInterrupt\n")
    assert "Traceback" not in said


def test_kickoff_for_each_without_a_name_or_a_store_says_so_after_ctrl_c():
    """Without a run_id nothing can be called again; without a store nothing was saved; before the first run neither."""
    begun = [Progress(), Progress("one", "store")]
    assert "kept in store: crewlite checkpoint list --runs" in how_to_go_on(kinds.CREW, None, begun)
    assert "Nothing was saved" in how_to_go_on(kinds.CREW, "r", [Progress("one")])
    assert how_to_go_on(kinds.CREW, "r", [Progress()]) == "No run had begun: call kickoff_for_each again."


def test_kickoff_for_each_names_the_calls_in_doubt_after_ctrl_c(on_disk):
    @tool(effect="once")
    async def pay() -> str:
        """Pay."""
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.Event().wait()

    cashier = Agent(role="Cashier", goal="pay", llm=ScriptedLLM([ToolCall("pay")]), tools=[pay])
    crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=cashier)], checkpoint=on_disk())
    said = io.StringIO()
    with contextlib.redirect_stderr(said), pytest.raises(KeyboardInterrupt):
        crew.kickoff_for_each([{}], run_id="r")
    doubt, again = said.getvalue().splitlines()[-2:]
    assert "task:t/tool:pay may have taken effect. Check whether it did, " in doubt.replace("it took effect", "it did")
    assert "run_id='r.0', answers={'task:t/tool:pay': <its result>} if it did, or rerun=" in doubt
    assert again == "To go on: call kickoff_for_each again with run_id='r'"


class Late(Exception):
    """Stands for celery's SoftTimeLimitExceeded, the timeout of a test, or an alarm of the program."""


@pytest.fixture(params=["in the wait", "before the wait"])
def alarm(request):
    """A handler of the program, which raises Late; what is given sends the signal to the main thread.

    A signal that comes just before a wait does not interrupt the wait; nor does a simulated one.
    """

    def ring(number, frame):
        raise Late

    before = signal.signal(signal.SIGUSR1, ring)
    main = threading.main_thread().ident

    def ring_in_the_wait():
        children.until(lambda: sys._current_frames()[main].f_code is background.next_of.__code__)
        if request.param == "in the wait":
            signal.pthread_kill(main, signal.SIGUSR1)
        else:
            _thread.interrupt_main(signal.SIGUSR1)

    yield ring_in_the_wait
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("how", ["kickoff", "events", "result", "block"])
def test_an_exception_of_a_signal_handler_cuts_the_run_and_may_be_caught(on_disk, alarm, how):
    slow, reads, emitted, read = [True], threading.Event(), [], []
    event_bus.on(BaseEvent, lambda source, event: emitted.append(event))

    @step
    async def work():
        if slow:
            if how in ("result", "block"):
                await asyncio.to_thread(reads.wait, 30)
            if how == "events":  # until it waits for one more
                await asyncio.to_thread(children.until, lambda: len(read) == len(emitted))
            alarm()
            await asyncio.Event().wait()
        return "done"

    long = flow(name="long", checkpoint=on_disk())(work)
    with pytest.raises(Late) as caught:
        match how:
            case "kickoff":
                long.kickoff(run_id="r")
            case "events":
                for event in long.stream(run_id="r"):
                    read.append(event)
            case "result":
                stream = long.stream(run_id="r")
                reads.set()
                _ = stream.result
            case "block":
                with long.stream(run_id="r") as stream:
                    reads.set()
                    stream.handle.result()
    if how != "block":  # which says nothing, however it is left
        assert caught.value.__notes__[0].startswith("Interrupted. To go on: ")
    slow.clear()
    assert long.kickoff(run_id="r") == "done", "it was still at work"


def test_an_exception_of_a_signal_handler_leaves_a_submitted_run_at_work(alarm):
    waits, going_on = threading.Event(), threading.Event()

    @step
    async def work():
        await asyncio.to_thread(waits.wait, 30)
        alarm()
        await asyncio.to_thread(going_on.wait, 30)
        return "done"

    handle = flow(name="long")(work).submit()
    with pytest.raises(Late):
        waits.set()
        handle.result()
    going_on.set()
    assert handle.result() == "done"


def test_ctrl_c_before_the_first_commit_does_not_blame_a_missing_store():
    assert Request().how_to_go_on("crew") == "No step had begun: kick off again."


def test_a_run_without_a_name_is_told_its_name(tmp_path):
    _, said = interrupt(start(tmp_path / "store", "slow", "unnamed"))
    run_id = History(tmp_path / "store").runs()[0].run_id
    assert f"crew.kickoff(run_id='{run_id}')" in said


def test_without_a_store_it_says_that_nothing_was_saved(tmp_path):
    code, said = interrupt(start("none", "slow"))
    assert code in (130, -signal.SIGINT)
    assert "Nothing was saved. To be able to resume a run, give the" in said


def test_whoever_follows_a_kickoff_hears_where_it_is_and_may_say_how_to_go_on(tmp_path):
    progress = Progress(how_to_go_on=lambda: "Press the green button.")
    agent = Agent(role="A", goal="g", llm=ScriptedLLM(["x", "y"]), checkpoint=CheckpointConfig(location=tmp_path))
    request = Request(agent.as_inputs({"messages": "Well?"}), "mine", progress=progress)
    assert asyncio.run(kickoff(agent, request)).raw == "x"
    agent.kickoff("Well?", run_id="another")
    assert (progress.run_id, progress.location) == ("mine", str(tmp_path))
    assert Request(progress=progress).how_to_go_on("agent") == "Press the green button."


def test_where_kickoffs_are_refused_nothing_is_begun(tmp_path):
    agent = Agent(role="A", goal="g", llm=ScriptedLLM([]), checkpoint=CheckpointConfig(location=tmp_path / "store"))
    with refused("Not now."), pytest.raises(ConfigError, match=r"Not now\."):
        agent.kickoff("Well?")
    assert not (tmp_path / "store").exists()
