"""Claims are given back: by whoever stops, is cancelled or closes its loop, while its process lives on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading

import pytest

from crewlite import History
from crewlite.flow import flow, step
from crewlite.system import disk
from crewlite.testing import ScriptedLLM
from tests import children
from tests.runtime.claiming import CHILD, Sleeper, answers, crew_of, cut, holder, record_of, while_at_work

pytestmark = pytest.mark.skipif(os.name == "nt", reason="stops and kills processes by POSIX signals")


def goes_on_elsewhere(config, tmp_path):
    """What another process says that kicks off run `r`."""
    (tmp_path / "go").touch()
    command = [sys.executable, "-c", CHILD, config().location, str(tmp_path / "go")]
    return children.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def test_a_cancelled_run_is_given_back_while_its_process_lives_on(make_crew, on_disk, tmp_path):
    while_at_work(make_crew, on_disk, lambda: None)
    assert record_of(on_disk).claim is None
    assert goes_on_elsewhere(on_disk, tmp_path) == ["asked 1", "asked 2", "from the child"]


def test_a_run_that_ctrl_c_cut_is_given_back_while_its_process_lives_on(make_crew, on_disk, tmp_path):
    llm = Sleeper()

    def interrupt():
        assert llm.asleep.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        make_crew(llm, checkpoint=on_disk()).kickoff(run_id="r")
    assert record_of(on_disk).claim is None
    assert goes_on_elsewhere(on_disk, tmp_path) == ["asked 1", "asked 2", "from the child"]


def test_a_run_cancelled_while_its_claim_is_written_holds_nothing(make_crew, on_disk):
    cut(make_crew, on_disk)
    before = record_of(on_disk).seq

    async def main():
        run = asyncio.create_task(make_crew(ScriptedLLM([]), checkpoint=on_disk()).akickoff(run_id="r"))
        loop = asyncio.get_running_loop()

        def cancel(operation):
            if operation.verb in ("fsync", "commit") and not run.cancelling():
                loop.call_soon_threadsafe(run.cancel)
                children.until(run.cancelling)

        with disk.watched(cancel), pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    record = record_of(on_disk)
    assert (record.claim, record.seq) == (None, before + 2)


def test_failed_and_finished_runs_hold_nothing(make_crew, on_disk, tmp_path):
    cut(make_crew, on_disk)
    assert record_of(on_disk).claim is None
    assert goes_on_elsewhere(on_disk, tmp_path) == ["asked 1", "asked 2", "from the child"]
    assert record_of(on_disk).claim is None
    assert answers(crew_of(make_crew, on_disk, []).kickoff(run_id="r")) == ["a", "from the child", "from the child"]


def test_a_run_that_was_cancelled_and_deleted_by_another_process_asks_no_more(on_disk, tmp_path):
    with holder(on_disk, tmp_path) as child:
        with History(on_disk().location) as history:
            history.cancel("r")
            history.delete("r")
        (tmp_path / "go").touch()
        said = child.stdout.read()
    assert said in ("conflict r main\n", ""), (
        "the latter if it hears of the cancellation before it hears of the deletion"
    )


LEFT = """
import asyncio, sys
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

@step
async def wait(n):
    if n:
        began.set()
        await asyncio.sleep(3600 if loop else 0)
    return n

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
async def waits():
    return [await wait(n) for n in range(3)]

async def left():
    global task
    task = asyncio.create_task(waits.akickoff(run_id="r"))
    await began.wait()

began = asyncio.Event()
loop = asyncio.new_event_loop()
loop.run_until_complete(left())
loop.close()
loop = None
print(waits.kickoff(run_id="r"), waits.kickoff(run_id="r"))
"""


def test_a_run_whose_loop_was_closed_holds_nothing(config):
    done = children.run([sys.executable, "-c", LEFT, config().location], capture_output=True, text=True)
    assert done.stdout == "[0, 1, 2] [0, 1, 2]\n", done.stderr


def test_it_holds_nothing_for_other_processes_either(on_disk):
    script = LEFT.rpartition("print(")[0] + "print('left', flush=True)\nsys.stdin.read()"

    @step(name="wait")
    async def wait(n):
        return n

    @flow(name="waits", checkpoint=on_disk())
    async def waits():
        return [await wait(n) for n in range(3)]

    with children.Child(
        [sys.executable, "-c", script, on_disk().location], stdin=children.PIPE, stdout=children.PIPE, text=True
    ) as left:
        assert left.stdout.readline() == "left\n"
        assert waits.submit(run_id="r", wait=True).result(30) == [0, 1, 2]


BEGINNING = """
import asyncio, sys, threading
from crewlite import CheckpointConfig
from crewlite.flow import flow
from crewlite.state import InMemoryProvider
from crewlite.state.journal.writer import writers
from tests.state.wrapped import Wrapped

class Held(Wrapped):
    in_memory = True

    def _do(self, store, verb, call, args):
        opened = any(("r", "main") in one.queues for one in writers.values())
        if verb == sys.argv[1] and opened and not began.is_set():
            began.set()
            go_on.wait(30)
        return call()

began, go_on, loop = threading.Event(), threading.Event(), asyncio.new_event_loop()

@flow(checkpoint=CheckpointConfig(location="here", provider=Held(InMemoryProvider())))
def asked():
    return "x"

async def left():
    global task
    task = asyncio.create_task(asked.akickoff(run_id="r"))
    await asyncio.to_thread(began.wait, 30)

loop.run_until_complete(left())
loop.close()
threading.Timer(0.1, go_on.set).start()
print(asked.kickoff(run_id="r"))
"""


@pytest.mark.parametrize("held_up", ["branches", "append"])
def test_a_run_whose_loop_was_closed_while_it_began_holds_nothing(held_up):
    done = children.run([sys.executable, "-c", BEGINNING, held_up], capture_output=True, text=True)
    assert done.stdout == "x\n", done.stderr
