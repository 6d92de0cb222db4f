"""A store that fails while runs end or begin in a process that lives on: once it works, other processes may go on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
import threading
import time

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import RunCancelled, StoreError, StoreUnusable
from crewlite.flow import flow, step
from crewlite.ids import now
from crewlite.state.format.entry import SCHEMA, seal
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.journal.writer import Writer, writers
from crewlite.state.providers import provider_for
from crewlite.testing import ScriptedLLM
from tests import children
from tests.parts import Stop, outputs
from tests.state.wrapped import Wrapped

OTHER = """
import sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM

who = Agent(role="Worker", goal="work", backstory="works", llm=ScriptedLLM(lambda messages: "there"))
tasks = []
for n in range(3):
    tasks.append(Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=who, context=tasks[-1:]))
done = Crew(tasks=tasks, checkpoint=CheckpointConfig(location=sys.argv[1])).kickoff(run_id="r")
print(*[output.raw for output in done.tasks_output])
"""


class Full(Wrapped):
    """A provider on whose disk there is no space while `full`; `late` makes it fail when it has stored what it is given."""

    full = late = False

    def _do(self, store, verb, call, args):
        if verb == "append" and self.full:
            if self.late:
                call()
            raise OSError(errno.ENOSPC, "no space left")
        return call()


@pytest.fixture
def disk(on_disk):
    return Full(provider_for(on_disk().location, on_disk().provider))


def crew_of(make_crew, on_disk, disk, replies, **fields):
    config = CheckpointConfig(location=on_disk().location, provider=disk, **fields)
    return make_crew(ScriptedLLM(replies), checkpoint=config)


def record_of(on_disk):
    with contextlib.closing(provider_for(on_disk().location, on_disk().provider).open(on_disk().location)) as store:
        return find_lineage(store, "r", "main").record()


def said_elsewhere(on_disk):
    """What another process comes to that kicks off run `r`."""
    children.until(lambda: record_of(on_disk).claim is None)
    command = [sys.executable, "-c", OTHER, on_disk().location]
    return children.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_a_run_whose_last_commits_were_not_stored_is_released_once_they_can_be(make_crew, on_disk, disk, policy):
    def reply(messages):
        disk.full |= "Do 1" in messages[1]["content"]
        return "here"

    crew = crew_of(make_crew, on_disk, disk, reply, on_save_error=policy)
    with contextlib.suppress(StoreError):
        assert crew.kickoff(run_id="r").durability == "degraded"
    assert record_of(on_disk).claim
    disk.full = False
    assert said_elsewhere(on_disk) == ["here", "there", "there"]


def test_a_run_that_was_cancelled_meanwhile_is_released_as_one_that_was_cancelled(make_crew, on_disk, disk):
    asked = threading.Event()

    class Asleep(ScriptedLLM):
        async def acall(self, messages, **context):
            disk.full = True
            asked.set()
            await asyncio.sleep(60)

    config = CheckpointConfig(location=on_disk().location, provider=disk)
    handle = make_crew(Asleep([]), checkpoint=config).submit(run_id="r")
    assert asked.wait(20)
    handle.cancel()
    assert record_of(on_disk).claim
    disk.full = False
    children.until(lambda: record_of(on_disk).cancelled)
    assert said_elsewhere(on_disk) == ["there"] * 3


def test_a_run_that_was_told_it_could_not_begin_though_its_claim_is_stored_is_released(make_crew, on_disk, disk):
    with pytest.raises(Stop):
        crew_of(make_crew, on_disk, disk, ["here", Stop()]).kickoff(run_id="r")
    disk.full = disk.late = True
    with pytest.raises(StoreUnusable):
        crew_of(make_crew, on_disk, disk, []).kickoff(run_id="r")
    assert record_of(on_disk).claim
    disk.full = False
    assert said_elsewhere(on_disk) == ["here", "there", "there"]


def test_this_process_goes_on_with_it_at_once(make_crew, on_disk, disk):
    def fails(messages):
        disk.full = True
        return "lost"

    with pytest.raises(StoreError):
        crew_of(make_crew, on_disk, disk, fails, on_save_error="raise").kickoff(run_id="r")
    disk.full = False
    assert outputs(crew_of(make_crew, on_disk, disk, ["a", "b", "c"]).kickoff(run_id="r")) == ["a", "b", "c"]
    assert said_elsewhere(on_disk) == ["a", "b", "c"]


def test_a_run_gives_signs_of_life_again_once_what_had_failed_can_be_stored(make_crew, on_disk, disk):
    with pytest.raises(Stop):
        crew_of(make_crew, on_disk, disk, ["a", Stop()]).kickoff(run_id="r")
    store, record = disk.open(on_disk().location), record_of(on_disk)
    writer = Writer(store, ("test", "test"), "test", beat=0.02, users=1)
    writer.start()
    queue = writer.enter("r", "main")
    queue.head, queue.written = record.head, True
    entry = seal({"schema": SCHEMA, "seq": record.seq + 1, "at": now().isoformat()}, after=record.sum)
    failed, disk.full = threading.Event(), True
    queue.put((entry,), lambda error: failed.set())
    try:
        assert failed.wait(20)
        disk.full = False
        children.until(lambda: record_of(on_disk).seq == record.seq + 1)
        before = store.touched("r", "main")
        children.until(lambda: store.touched("r", "main") > before)
    finally:
        disk.full = False
        writer.release().result()


class Slow(Wrapped):
    """A provider whose store answers a sign of life only after the next one is due."""

    def _do(self, store, verb, call, args):
        if verb == "touched":
            time.sleep(0.05)
        return call()


def test_commits_are_written_though_the_disk_is_slower_than_the_checks_of_branches(on_disk, monkeypatch):
    monkeypatch.setattr("crewlite.state.journal.writer._LOOK", 0.01)
    provider = Slow(provider_for(on_disk().location, on_disk().provider))

    @flow(checkpoint=CheckpointConfig(location=on_disk().location, provider=provider))
    async def waiting():
        await asyncio.sleep(0.2)  # meanwhile the branch is idle
        return await answer()

    assert asyncio.run(asyncio.wait_for(waiting.akickoff(run_id="r"), 30)) == "done"


@step
async def answer():
    return "done"


class Signs(Wrapped):
    """A provider that counts the runs that give a sign of life in one call."""

    def __init__(self, provider):
        super().__init__(provider)
        self.together = []

    def _do(self, store, verb, call, args):
        if verb == "append" and not any(commit.entries for commit in args[0]):
            self.together.append(len(args[0]))
        return call()


def test_many_runs_give_their_signs_of_life_together_and_each_learns_that_it_was_cancelled(on_disk):
    provider = Signs(provider_for(on_disk().location, on_disk().provider))

    go = asyncio.Event()

    @flow(checkpoint=CheckpointConfig(location=on_disk().location, provider=provider))
    async def waiting(number):
        await go.wait()
        return number

    async def main():
        runs = [asyncio.create_task(waiting.akickoff(number, run_id=f"r{number}")) for number in range(12)]
        with History(on_disk().location, make=True) as history:
            while len(history.runs()) < len(runs):
                await asyncio.sleep(0.01)
            [writer] = [one for one in writers.values() if one.store.location == on_disk().location]
            writer.beat = 0.05
            while provider.together.count(len(runs)) < 3:
                await asyncio.sleep(0.01)
            assert set(provider.together) == {len(runs)}
            history.cancel("r3")
        with pytest.raises(RunCancelled):
            await runs.pop(3)
        while len(runs) not in provider.together:
            await asyncio.sleep(0.01)
        go.set()
        return await asyncio.gather(*runs)

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [number for number in range(12) if number != 3]
