"""The caller's event loop never waits for a store, however slow that is."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task, event_bus
from crewlite.errors import OnLoopThread, RunCancelled
from crewlite.events import TaskCompletedEvent
from crewlite.flow import flow, step
from crewlite.state import InMemoryProvider, RuntimeState
from crewlite.testing import ScriptedLLM

DELAY = 0.3


class Slow:
    """A provider and a store whose every verb takes a while, and which know what was asked of them on which thread.

    Given the caller's loop, a verb goes on only when that has taken another turn.
    """

    name = "slow"

    def __init__(self):
        self.inner, self.threads = InMemoryProvider(), []
        self.loop, self.stalled = None, False

    def open(self, location):
        self.wait()
        return SlowStore(self, self.inner.open(location))

    def wait(self):
        self.threads.append(threading.current_thread())
        if self.loop and threading.current_thread() is not threading.main_thread():
            self.stalled |= not self.turned(self.loop)
        time.sleep(DELAY)

    def turned(self, loop):
        turn, until = threading.Event(), time.monotonic() + 30
        with contextlib.suppress(RuntimeError):  # it is closed: nobody is held up any more
            loop.call_soon_threadsafe(turn.set)
        while not turn.wait(0.02) and not loop.is_closed():
            if time.monotonic() > until:
                return False
        return True


class SlowStore:
    def __init__(self, slow, inner):
        self._slow, self._inner, self.location = slow, inner, inner.location

    def ref(self, checkpoint):
        return self._inner.ref(checkpoint)

    def __getattr__(self, verb):
        found = getattr(self._inner, verb)

        def call(*args, **kwargs):
            self._slow.wait()
            return found(*args, **kwargs)

        return call


async def _kickoff(make_crew, config):
    await make_crew(["x"], 1, checkpoint=config).akickoff()


async def _resume(make_crew, config):
    await make_crew(["x"], 1, checkpoint=config).akickoff(run_id="r")
    await make_crew([], 1, checkpoint=config).akickoff(run_id="r")


async def _preview(make_crew, config):
    crew = make_crew(["x"], 1, checkpoint=config)
    await crew.akickoff(run_id="r")
    with contextlib.suppress(Exception):
        await crew.apreview(from_checkpoint="r")


async def _agent(make_crew, config):
    await Agent(role="R", goal="g", llm=ScriptedLLM(["x"]), checkpoint=config).akickoff("Do")


async def _flow(make_crew, config):
    @step
    async def one() -> int:
        return 1

    @flow(checkpoint=config)
    async def work() -> int:
        return await one()

    assert await work.akickoff() == 1


async def _submit(make_crew, config):
    asked = threading.Event()

    @flow(checkpoint=config)
    def work() -> int:
        assert asked.wait(60)
        return 1

    handle = work.submit()
    with pytest.raises(OnLoopThread, match="await the handle"):
        handle.result()
    asked.set()
    assert await handle == 1
    assert handle.run_id
    assert handle.result() == 1


async def _submit_and_cancel(make_crew, config):
    @flow(checkpoint=config)
    def work() -> int:
        return 1

    handle = work.submit()
    handle.cancel()
    with contextlib.suppress(RunCancelled):  # a fast store may have let it end before
        await handle


async def _by_hand(make_crew, config):
    async def keep(source, event, state):
        await state.acheckpoint(config.location, provider=config.provider)
        await state.aflush()

    with event_bus.on(TaskCompletedEvent, keep):
        await make_crew(["x"], 1).akickoff()


async def _state(make_crew, config):
    async with await RuntimeState.aopen("bag", config.location, config.provider) as state:
        state["x"] = 1
        await state.asnapshot()


async def _cancelled(make_crew, config):
    kickoff = asyncio.ensure_future(make_crew(["x"], 1, checkpoint=config).akickoff())
    await asyncio.sleep(DELAY / 3)
    kickoff.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await kickoff
    await asyncio.sleep(DELAY * 2)


VERBS = [_kickoff, _resume, _preview, _agent, _flow, _submit, _submit_and_cancel, _by_hand, _state, _cancelled]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__.strip("_"))
def test_no_async_verb_stalls_the_callers_loop_on_a_store_that_is_slow(make_crew, memory, verb):
    asyncio.run(verb(make_crew, memory()))  # what is only imported once is no stall of the store's
    slow = Slow()
    config = CheckpointConfig(location="slow", provider=slow)

    async def heard():
        slow.loop = asyncio.get_running_loop()
        await verb(make_crew, config)

    asyncio.run(heard())
    assert slow.threads
    assert threading.main_thread() not in slow.threads
    assert not slow.stalled, "the loop waited for the store"


def test_a_store_that_opens_slowly_holds_up_nobody_elses_kickoff(make_crew, memory):
    opening, go = threading.Event(), threading.Event()

    class Connecting(InMemoryProvider):
        def open(self, location):
            opening.set()
            assert go.wait(60), "the other kickoff waited for this one"
            return super().open(location)

    crew = make_crew(["x"], 1, checkpoint=CheckpointConfig(location="slow", provider=Connecting()))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(crew.kickoff)
        assert opening.wait(60)
        assert make_crew(["y"], 1, checkpoint=memory()).kickoff().raw == "y"
        go.set()
        assert first.result().raw == "x"


def test_kickoffs_that_open_one_location_at_once_share_one_store(make_crew):
    slow = Slow()
    opened = []

    class Counted(Slow):
        def open(self, location):
            opened.append(location)
            return slow.open(location)

    config = CheckpointConfig(location="slow", provider=Counted())
    crew = make_crew(lambda messages: "x", 1, checkpoint=config)

    async def all_at_once():
        await asyncio.gather(*(crew.akickoff() for _ in range(4)))

    asyncio.run(all_at_once())
    assert opened == ["slow"]


def test_a_manual_checkpoint_that_is_cancelled_while_its_store_opens_lets_go_of_it(tmp_path):
    closed = threading.Event()

    class Closing(Slow):
        def open(self, location):
            store = super().open(location)
            store.close = closed.set
            return store

    async def main():
        slow, state = Closing(), await RuntimeState.aopen("by-hand")
        naming = asyncio.ensure_future(state.acheckpoint(tmp_path, provider=slow))
        while not slow.threads:
            await asyncio.sleep(0.01)
        naming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await naming
        assert await asyncio.to_thread(closed.wait, 20)
        await state.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("of", ["crew", "flow"])
def test_a_run_that_waits_for_nothing_gives_the_loop_of_its_caller_a_turn_now_and_then(of):
    llm = ScriptedLLM(lambda messages: "done")
    turns, agent = 0, Agent(role="Worker", goal="work", llm=llm)
    task = {"description": "Do it", "expected_output": "text", "agent": agent, "context": []}

    @step
    async def one(number):
        return number

    @flow
    async def program():
        for number in range(600):
            await one(number)

    async def main():
        nonlocal turns
        crew = Crew(tasks=[Task(name=f"t{number}", **task) for number in range(150)])
        work = asyncio.ensure_future((crew if of == "crew" else program).akickoff())
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        await work

    asyncio.run(main())
    assert turns > 5


def test_a_run_gives_the_loop_of_its_caller_turns_while_the_record_answers(memory):
    turns, seen, fails = 0, [], True

    @step
    async def one(number):
        if fails and number == 999:
            raise ValueError("not yet")
        return number

    @flow(checkpoint=memory())
    async def program():
        seen.clear()
        for number in range(1000):
            await one(number)
            seen.append(turns)

    async def main():
        nonlocal turns
        work = asyncio.ensure_future(program.akickoff(run_id="many"))
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
        await work

    with pytest.raises(ValueError, match="not yet"):
        asyncio.run(main())
    fails = False
    asyncio.run(main())
    assert seen[900] > seen[0]
