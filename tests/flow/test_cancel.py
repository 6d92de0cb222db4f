"""Stopping a run: by its task, by its handle, and from any process that shares its store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.errors import RunCancelled, RunEnded, Suspended
from crewlite.events import CrewKickoffFailedEvent, FlowFailedEvent
from crewlite.flow import ask, flow, step
from crewlite.state import JsonProvider
from crewlite.testing import EventRecorder, ScriptedLLM
from tests import children
from tests.state.wrapped import Wrapped


def history(config):
    return History(config().location, config().provider)


def status(config, ref="one"):
    with history(config) as found:
        return found.run(ref).status


class Thinker(ScriptedLLM):
    """A model that says when it begins to think, and when that is cut."""

    def __init__(self):
        super().__init__([])
        self.thinks, self.cut = threading.Event(), threading.Event()

    async def acall(self, messages, **context):
        try:
            self.thinks.set()
            await asyncio.sleep(60)
        finally:
            self.cut.set()


# from another process

PROGRAM = """
import asyncio, os, time
from crewlite import CheckpointConfig
from crewlite.flow import flow, step

def begin(way, n):
    with open("ran", "a") as file:
        file.write(f"{way} {n}\\n")
    return 60 if n == 2 and not os.path.exists("go") else 0

@step
def work(way, n):
    time.sleep(begin(way, n))
    return n

@step
async def awork(way, n):
    await asyncio.sleep(begin(way, n))
    return n

def plain():
    return [work("plain", n) for n in range(4)]

async def awaited():
    return [await awork("awaited", n) for n in range(4)]

def made(location):
    return {f.__name__: flow(f, checkpoint=CheckpointConfig(location=location)) for f in (plain, awaited)}
"""


@pytest.mark.skipif(os.name == "nt", reason="counts on POSIX processes")
def test_a_run_is_stopped_from_another_process_and_goes_on_as_if_nothing_had_been(on_disk, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    location, ran = on_disk().location, tmp_path / "ran"
    ways = ("plain", "awaited")

    def begun(way):
        code = f"from program import made; made({location!r})[{way!r}].kickoff(run_id={way!r})"
        return children.Child([sys.executable, "-c", code], cwd=tmp_path, stderr=children.PIPE, text=True)

    processes = [begun(way) for way in ways]
    children.until(lambda: ran.exists() and {"plain 2", "awaited 2"} <= set(ran.read_text().split("\n")))
    with history(on_disk) as found:
        for way in ways:
            found.cancel(way)
            assert (found.run(way).status, found.run(way).at_work) == ("cancelled", None)
        for child, way in zip(processes, ways, strict=True):
            assert f"RunCancelled: Run '{way}' was cancelled" in child.communicate()[1]
            assert (child.returncode, found.run(way).status) == (1, "cancelled")
    (tmp_path / "go").touch()
    program: dict = {}
    exec(PROGRAM, program)
    for way in ways:
        assert program["made"](location)[way].kickoff(run_id=way) == [0, 1, 2, 3]
        assert [line for line in ran.read_text().splitlines() if line.startswith(way)] == [
            f"{way} {n}" for n in (0, 1, 2, 2, 3)
        ]
        assert status(on_disk, way) == "finished"


# from the same process


def test_a_run_that_commits_is_refused_at_its_next_commit(config):
    stops = [True]

    @step
    def first():
        return 1

    @step
    def second():
        if stops:
            stops.clear()
            with history(config) as found:
                found.cancel("one")
        return 2

    @flow(checkpoint=config())
    def pipeline():
        return first() + second()

    with EventRecorder() as heard, pytest.raises(RunCancelled, match="run_id='one'") as caught:
        pipeline.kickoff(run_id="one")
    assert (caught.value.run_id, caught.value.branch) == ("one", "main")
    assert [event.error_type for event in heard.of(FlowFailedEvent)] == ["RunCancelled"]
    with history(config) as found:
        run = found.run("one")
        assert (run.status, run.attempts, [view.address for view in run.steps]) == ("cancelled", [], ["step:first"])
    assert pipeline.kickoff(run_id="one") == 3
    assert status(config) == "finished"


def test_a_run_that_never_pauses_is_stopped_too(on_disk):
    ticks = []

    @step
    async def tick(n):
        ticks.append(n)

    @flow(checkpoint=on_disk())
    async def endless():
        for n in range(100_000):
            await tick(n)

    handle = endless.submit(run_id="one")
    children.until(lambda: len(ticks) > 500)
    with history(on_disk) as found:
        found.cancel("one")
    with pytest.raises(RunCancelled):
        handle.result(20)
    assert handle.status == "cancelled"
    with history(on_disk) as found:
        recorded = len(found.run("one").steps)
        assert found.run("one").status == "cancelled"
    assert recorded <= len(ticks) <= recorded + 1


@pytest.mark.parametrize("config", ["memory"], indirect=True)
def test_a_crew_is_stopped_while_its_model_thinks(make_crew, config, caplog):
    llm = Thinker()

    async def main():
        run = asyncio.create_task(make_crew(llm, checkpoint=config()).akickoff(run_id="one"))
        await asyncio.to_thread(llm.thinks.wait)
        with history(config) as found:
            found.cancel("one")
        with pytest.raises(RunCancelled):
            await run

    with EventRecorder() as heard:
        asyncio.run(main())
    assert llm.cut.is_set()
    assert [event.error_type for event in heard.of(CrewKickoffFailedEvent)] == ["RunCancelled"]
    assert "no sign of life" not in caplog.text
    assert make_crew(["a", "b", "c"], checkpoint=config()).kickoff(run_id="one").raw == "c"


@pytest.mark.parametrize("on_disk", ["json"], indirect=True)
@pytest.mark.parametrize("way", ["task", "handle"])
@pytest.mark.parametrize("kind", ["plain", "awaited"])
def test_a_cancelled_task_or_handle_cuts_the_steps_in_flight_and_leaves_a_run_to_go_on_with(on_disk, kind, way):
    both, ran, cut, hang = threading.Event(), [], [], [True]

    @step
    async def work(n):
        ran.append(n)
        if n and hang:
            if len(ran) == 3:
                both.set()
            try:
                await asyncio.sleep(60)
            finally:
                cut.append(n)
        return n

    @flow(checkpoint=on_disk())
    def plain():
        return work.submit(0).result(), work.map([1, 2]).result()

    @flow(checkpoint=on_disk())
    async def awaited():
        return await work(0), await work.map([1, 2])

    pipeline = {"plain": plain, "awaited": awaited}[kind]

    async def task():
        run = asyncio.create_task(pipeline.akickoff(run_id="one"))
        await asyncio.to_thread(both.wait)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    if way == "task":
        asyncio.run(task())
    else:
        handle = pipeline.submit(run_id="one")
        both.wait()
        handle.cancel()
        with pytest.raises(RunCancelled):
            handle.result(20)
        assert handle.status == "cancelled"
    assert (ran, sorted(cut)) == ([0, 1, 2], [1, 2])
    assert status(on_disk) == ("unfinished" if way == "task" else "cancelled")
    hang.clear()
    assert pipeline.kickoff(run_id="one") == (0, [1, 2])
    assert ran == [0, 1, 2, 1, 2]


def test_a_crew_in_the_thread_of_a_flow_is_cut_with_it(on_disk):
    llm = Thinker()
    agent = Agent(role="Poet", goal="rhyme", llm=llm)
    crew = Crew(tasks=[Task(name="write", description="Write", expected_output="a poem", agent=agent)])
    pipeline = flow(name="pipeline", checkpoint=on_disk())(lambda: crew.kickoff().raw)
    handle = pipeline.submit(run_id="one")
    assert llm.thinks.wait(20)
    handle.cancel()
    assert llm.cut.wait(60)


# where nobody is at work


def test_a_run_that_waits_for_people_is_cancelled_until_it_is_kicked_off_again(config, monkeypatch):
    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)

        @flow(checkpoint=config())
        def asks():
            return ask("Well?", name="well")

        with pytest.raises(Suspended):
            asks.kickoff(run_id="one")
        with history(config) as found:
            found.cancel("one")
            found.cancel("one")
            assert found.run("one").status == "cancelled"
            found.prune(keep_last=1)
            assert found.run("one").status == "cancelled"
            found.fork("one", branch="beside")
            assert found.run("one/beside").status == "waiting"
        with pytest.raises(Suspended):
            asks.kickoff(run_id="one")
        assert status(config) == "waiting"
        assert asks.kickoff(run_id="one", answers={"human:well": "yes"}) == "yes"


@pytest.mark.parametrize("ends", ["is finished", "has failed"])
def test_what_has_ended_cannot_be_cancelled(config, ends):
    @flow(checkpoint=config())
    def pipeline():
        if ends == "has failed":
            raise KeyError

    with contextlib.suppress(KeyError):
        pipeline.kickoff(run_id="one")
    with history(config) as found, pytest.raises(RunEnded, match=ends):
        found.cancel("one")


class Overtaken(Wrapped):
    """Has a run end just before the first commit that cancels it."""

    def __init__(self, provider, work):
        super().__init__(provider)
        self.begun, self.go, self.run = threading.Event(), threading.Event(), threading.Thread(target=work)

    def _do(self, store, verb, call, args):
        if verb == "append" and not self.go.is_set():
            self.go.set()
            self.run.join(30)
        return call()


@pytest.mark.parametrize("ends", ["finished", "failed"])
def test_a_run_that_ends_while_it_is_being_cancelled_has_ended(config, ends):
    @flow(checkpoint=config())
    def pipeline():
        provider.begun.set()
        provider.go.wait(30)
        if ends == "failed":
            raise KeyError

    def work():
        with contextlib.suppress(KeyError):
            pipeline.kickoff(run_id="one")

    provider = Overtaken(config().provider, work)
    provider.run.start()
    assert provider.begun.wait(30)
    with History(config().location, provider) as found, pytest.raises(RunEnded, match=ends):
        found.cancel("one")
    assert status(config) == ends


@pytest.mark.parametrize("change", ["values", "checkpoint"])
def test_a_run_that_has_failed_has_ended_also_where_a_handler_records_more_of_it(config, change):
    @flow(checkpoint=config())
    def pipeline():
        raise KeyError

    @event_bus.on(FlowFailedEvent)
    def note(source, event, state):
        if change == "values":
            state["why"] = event.error_type
        else:
            state.checkpoint()

    with pytest.raises(KeyError):
        pipeline.kickoff(run_id="one")
    with history(config) as found, pytest.raises(RunEnded, match="has failed"):
        found.cancel("one")
    assert status(config) == "failed"


class Held(Wrapped):
    """Holds commits back once `closes` is set, until `go` is."""

    def __init__(self, provider):
        super().__init__(provider)
        self.closes, self.held, self.go = threading.Event(), threading.Event(), threading.Event()

    def _do(self, store, verb, call, args):
        if verb == "append" and self.closes.is_set():
            self.held.set()
            self.go.wait(30)
        return call()


def test_a_run_that_is_cancelled_twice_while_it_is_written_can_be_kicked_off_at_once(tmp_path):
    provider, begun = Held(JsonProvider()), threading.Event()

    @step
    async def work():
        if not begun.is_set():
            provider.closes.set()
            begun.set()
            await asyncio.Event().wait()
        return "done"

    @flow(checkpoint=CheckpointConfig(location=tmp_path / "store", provider=provider))
    async def long():
        return await work()

    async def twice():
        running = asyncio.ensure_future(long.akickoff(run_id="one"))
        await asyncio.to_thread(begun.wait, 30)
        running.cancel()
        await asyncio.to_thread(provider.held.wait, 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        threading.Timer(0.2, provider.go.set).start()
        return await long.akickoff(run_id="one")

    assert asyncio.run(twice()) == "done"
