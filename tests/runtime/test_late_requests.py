"""What is asked of a run at its very end, or after it: answered or refused, never left waiting."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Future

import pytest

from crewlite import CheckpointConfig, event_bus
from crewlite.errors import BranchConflictError, StoreError
from crewlite.events import CrewKickoffStartedEvent, TaskCompletedEvent
from crewlite.state.format.entry import next_entry
from crewlite.state.journal.opening import open_writer
from crewlite.state.providers import InMemoryProvider, JsonProvider
from crewlite.testing import ScriptedLLM
from tests import children


def asked(act):
    """Do it in a thread of its own; what it gave or raised, in time."""
    came = Future()

    def run():
        try:
            came.set_result(act())
        except BaseException as error:
            came.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return came


def test_whatever_is_put_to_a_writer_that_has_ended_is_refused(stored):
    writer = open_writer(stored().provider, stored().location)
    queue = writer.enter("r", "main")
    late = [Future(), Future()]
    over = queue.leave()
    queue.put((), late[0].set_result)
    over.result(10)
    queue.put((), late[1].set_result)
    errors = [each.result(10) for each in late]
    assert isinstance(errors[1], StoreError)
    with pytest.raises(StoreError, match="nothing more"):
        queue.ask(lambda store: 1).result(10)


class Full:
    """A provider on whose stores nothing can be written."""

    name = "full"

    def open(self, location):
        store = InMemoryProvider().open(location)

        def append(commits):
            raise OSError("no space left")

        store.append = append
        return store


def test_what_is_asked_of_a_store_is_answered_though_nothing_can_be_written():
    writer, failed = open_writer(Full(), "full"), Future()
    queue = writer.enter("r", "main")
    queue.put((next_entry({"released": True}, after=(0, "")),), failed.set_result)
    assert isinstance(failed.result(10), OSError)
    assert queue.ask(lambda store: store.location).result(10) == "full"
    queue.leave().result(10)


def test_a_run_that_waits_for_its_commits_hears_nothing_of_a_commit_of_another_run_that_fails():
    writer, busy, failed, waited = open_writer(Full(), "full"), threading.Event(), Future(), Future()
    other, queue = writer.enter("other", "main"), writer.use().enter("r", "main")
    queue.ask(lambda store: busy.wait(10))  # so that the next two are taken up together
    other.put((next_entry({"released": True}, after=(0, "")),), failed.set_result)
    queue.put((), waited.set_result)
    busy.set()
    assert isinstance(failed.result(10), OSError)
    assert waited.result(10) is None
    queue.leave()
    other.leave().result(10)


VERBS = {
    "flush": lambda state: state.flush(),
    "checkpoints": lambda state: state.checkpoints(),
    "checkpoint": lambda state: state.checkpoint(),
    "snapshot": lambda state: state.snapshot(),
    "latest": lambda state: state.latest,
}


@pytest.mark.parametrize("verb", VERBS)
def test_threads_that_ask_at_the_end_of_a_run_are_answered_or_refused(stored, make_crew, verb):
    came, stop = [], threading.Event()

    def begin(source, event, state):
        def ask():
            while not stop.is_set():
                VERBS[verb](state)

        came.extend(asked(ask) for _ in range(2))

    with event_bus.on(CrewKickoffStartedEvent, begin):
        for n in range(6):
            assert make_crew(["x"] * 2, 2, checkpoint=stored()).kickoff(run_id=f"r{n}").raw == "x"
    for each in came:
        assert isinstance(each.exception(20), StoreError)


@pytest.mark.parametrize("verb", VERBS)
def test_a_loop_that_stands_still_after_the_run_is_not_waited_for(stored, make_crew, verb):
    states = []
    loop = asyncio.new_event_loop()
    with event_bus.on(TaskCompletedEvent, lambda source, event, state: states.append(state)):
        loop.run_until_complete(make_crew(["x"], 1, checkpoint=stored()).akickoff(run_id="r"))
    assert isinstance(asked(lambda: VERBS[verb](states[0])).exception(20), StoreError)
    loop.close()
    assert isinstance(asked(lambda: VERBS[verb](states[0])).exception(20), StoreError)


class Mine(JsonProvider):
    """A provider of one's own: two of these may or may not be one store, for all that is known."""


@pytest.mark.parametrize("kind", [JsonProvider, Mine])
def test_a_run_at_work_is_not_taken_over_by_another_provider_object_of_this_process(make_crew, tmp_path, kind):
    here, go, location = threading.Event(), threading.Event(), str(tmp_path / "kept")

    def reply(messages):
        here.set()
        go.wait(20)
        return "x"

    def crew(llm):
        return make_crew(llm, 2, checkpoint=CheckpointConfig(location=location, provider=kind()))

    first = asked(
        lambda: asyncio.run(crew(ScriptedLLM(reply)).akickoff(run_id="r")).durability
    )  # its loop stands still
    here.wait(20)
    second = asked(lambda: crew(ScriptedLLM([])).kickoff(run_id="r"))
    assert isinstance(second.exception(20), BranchConflictError)
    go.set()
    assert first.result(20) == "sync"


LOOP_CLOSED = """
import asyncio, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from crewlite import CheckpointConfig, History, event_bus
from crewlite.errors import StoreError
from crewlite.events import StepStartedEvent
from crewlite.flow import ask, bound, flow, step

@step
async def slow():
    await asyncio.sleep(600)

def wait():
    try:
        slow.submit().result()
    except RuntimeError as error:
        print(error)

async def wait_on_another_loop():
    try:
        await slow()
    except RuntimeError as error:
        print(error)

@step
def waits():
    with ThreadPoolExecutor(2) as pool:
        pool.submit(bound(lambda: asyncio.run(wait_on_another_loop())))
        pool.submit(bound(wait)).result()

@step
def asks():
    return ask("How much?", int, name="much")

@flow(checkpoint=CheckpointConfig(location=sys.argv[1]))
async def work():
    await asyncio.gather(waits.submit(), asks.submit())

begun = []
event_bus.on(StepStartedEvent, lambda source, event, state: begun.append(state))

async def main():
    global kept
    kept = asyncio.ensure_future(work.akickoff(run_id="r"))
    while len(begun) < 4:
        await asyncio.sleep(0.01)
    with History(sys.argv[1]) as history:
        while not history.run("r").waiting:
            await asyncio.sleep(0.01)

def name():
    try:
        begun[0].checkpoint()
    except StoreError as error:
        print("the run has ended" in str(error))

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
naming = threading.Thread(target=name)
naming.start()
while not loop._ready:
    time.sleep(0.01)
loop.close()
naming.join()
with History(sys.argv[1]) as history:
    [asked] = history.run("r").waiting
    print("answered", history.answer("r", asked, 41), history.doctor())
"""


def test_what_waits_for_a_run_whose_loop_was_closed_is_told_so_and_the_program_ends(on_disk, tmp_path):
    """The threads of an executor are joined as the program ends."""
    said = {"stdout": children.PIPE, "stderr": children.PIPE, "text": True, "check": True}
    done = children.run([sys.executable, "-c", LOOP_CLOSED, on_disk().location], cwd=tmp_path, **said)
    assert sorted(done.stdout.splitlines()) == [
        "True",
        "answered True []",
        *["the event loop that does this work was closed before the work had ended"] * 2,
    ]
    assert "Traceback" not in done.stderr
