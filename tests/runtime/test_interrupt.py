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
import time

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, background, kinds, tool
from crewlite.errors import ConfigError
from crewlite.flow import flow, step
from crewlite.runtime.kickoffs.engine import kickoff
from crewlite.runtime.kickoffs.many import how_to_go_on
from crewlite.runtime.kickoffs.plan import refused
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.testing import ScriptedLLM
from tests import children

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals to another process")

SCRIPT = """
import sys
from crewlite import Agent, Crew, Task, CheckpointConfig, event_bus
from crewlite.events import LLMCallStartedEvent
from crewlite.testing import ScriptedLLM
@event_bus.on(LLMCallStartedEvent)
def started(source, event):
    print("asked", event.address, flush=True)
async def slow(self, messages, **context):
    import asyncio
    if "Do 1" in messages[1]["content"] and sys.argv[2] == "slow":
        await asyncio.Event().wait()  # for ever
    return "done"
class Slow(ScriptedLLM):
    acall = slow
who = Agent(role="W", goal="g", llm=Slow([]))
tasks = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who, context=[]) for n in range(3)]
store = CheckpointConfig(location=sys.argv[1]) if sys.argv[1] != "none" else None
options = {"run_id": "r"} if store and sys.argv[3] != "unnamed" else {}
crew = Crew(tasks=tasks, checkpoint=store)
match sys.argv[3]:
    case "events":
        for event in crew.stream(**options):
            pass
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
        if "task:t1" in line:
            break
    time.sleep(0.05)
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


STUBBORN = """
import asyncio, sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM
class Stubborn(ScriptedLLM):
    async def acall(self, messages, **context):
        print("asked", flush=True)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("cut", flush=True)
who = Agent(role="W", goal="g", llm=Stubborn([]))
crew = Crew(tasks=[Task(name="t", description="d", expected_output="x", agent=who)],
            checkpoint=CheckpointConfig(location=sys.argv[1]))
if sys.argv[2] == "kickoff":
    crew.kickoff_for_each([{}], run_id="r")
else:
    with crew.stream(run_id="r") as stream:
        for event in stream:
            pass
"""


@pytest.mark.parametrize("how", ["kickoff", "stream"])
def test_a_second_ctrl_c_does_not_wait_and_still_says_how_to_go_on(tmp_path, how):
    script = [sys.executable, "-c", STUBBORN, str(tmp_path / "store"), how]
    process = children.Child(script, stdout=children.PIPE, stderr=children.PIPE, text=True)
    for said in ("asked\n", "cut\n"):
        assert process.stdout.readline() == said
        process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert said.count("Interrupted. To go on: ") == 1
    if how == "kickoff":
        assert "call kickoff_for_each again with run_id='r'" in said
    assert "Traceback" not in said
    assert said.endswith("\nKeyboardInterrupt\n")


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
    slow, reads = [True], threading.Event()

    @step
    async def work():
        if slow:
            if how in ("events", "result", "block"):
                await asyncio.to_thread(reads.wait, 30)
            alarm()
            await asyncio.Event().wait()
        return "done"

    long = flow(name="long", checkpoint=on_disk())(work)
    with pytest.raises(Late) as caught:
        match how:
            case "kickoff":
                long.kickoff(run_id="r")
            case "events":
                for _ in long.stream(run_id="r"):
                    reads.set()
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
