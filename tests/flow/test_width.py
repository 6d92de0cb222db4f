"""Only so many blocking calls run at once in a process, however many are asked for; nested ones never wait in a circle."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.concurrency import permits
from crewlite.concurrency.own_threads import bound
from crewlite.concurrency.permits import permitted
from crewlite.errors import ConfigError, StepTimeout
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM

PATIENCE = 60  # seconds, on a busy machine


class Peak:
    """How many were in the block at once, at most."""

    def __init__(self):
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def __enter__(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *error):
        with self.lock:
            self.now -= 1


@pytest.fixture
def width(monkeypatch):
    return lambda number: monkeypatch.setenv("CREWLITE_MAX_CONCURRENCY", str(number))


def in_time(work):
    """What `work` returns. Fails where it stands still."""
    handle = work.submit()
    return handle.result(PATIENCE)


def test_600_mapped_blocking_steps_use_32_threads():
    peak, threads, before = Peak(), [], threading.active_count()

    @step
    def work(n):
        with peak:
            threads.append(threading.active_count())
            time.sleep(0.01)
        return n

    @flow
    def many():
        return work.map(range(600)).result()

    assert in_time(many) == list(range(600))
    assert peak.most <= 32
    assert max(threads) - before <= 3 * 32  # with those that are just ending, however long that takes


@pytest.mark.parametrize("most", [1, 2, 7])
def test_the_width_is_a_setting_of_the_environment(width, most):
    peak, full = Peak(), threading.Event()
    width(most)

    @step
    def work(n):
        with peak:
            if peak.most >= most:
                full.set()
            full.wait(20)

    @flow
    def many():
        work.map(range(30)).result()

    in_time(many)
    assert peak.most == most


@pytest.mark.parametrize("said", ["0", "-1", "many", ""])
def test_a_width_that_is_none_is_an_error_of_the_definition(width, said):
    width(said)

    @step
    def work():
        return 1

    @flow
    def once():
        return work()

    with pytest.raises(ConfigError, match="CREWLITE_MAX_CONCURRENCY is .*; wanted a whole number, 1 or more"):
        in_time(once)


def nested(mapped):
    """Levels of blocking steps, each of which maps `mapped` of the next, the first of which goes on."""

    @step
    def level(n, left):
        if left and n == 0:
            return 1 + sum(level.map(range(mapped), [left - 1] * mapped).result())
        return 1

    return level


@pytest.mark.parametrize("most", [1, 2])
def test_nested_blocking_steps_never_wait_in_a_circle(width, most):
    width(most)
    level = nested(40)

    @flow
    def deep():
        return level(0, 5)

    assert in_time(deep) == 1 + 5 * 40


def test_each_level_of_nesting_adds_at_most_the_width(width):
    width(4)
    before, threads = threading.active_count(), []

    @step
    def leaf(n):
        threads.append(threading.active_count())
        time.sleep(0.001)
        return n

    @step
    def outer(n):
        return leaf(n) + leaf(n + 1) + sum(leaf.map([1, 2]).result())

    @flow
    def many():
        return sum(outer.map(range(100)).result())

    assert in_time(many) == sum(2 * n + 4 for n in range(100))
    assert max(threads) - before <= 2 * 4 + 32  # as above


def test_threads_of_ones_own_that_ask_for_steps_never_wait_in_a_circle(width):
    width(1)

    @step
    def leaf(n):
        return n

    @step
    def outer(n):
        found = []
        own = [threading.Thread(target=bound(lambda k=k: found.append(leaf(k)))) for k in range(3)]
        for thread in own:
            thread.start()
        for thread in own:
            thread.join()
        return sorted(found)

    @flow
    def many():
        return outer.map(range(3)).result()

    assert in_time(many) == [[0, 1, 2]] * 3


def test_a_step_that_looks_again_and_again_whether_its_children_are_done_goes_on(width):
    width(1)

    @step
    def leaf():
        return 1

    @step
    def outer():
        begun = leaf.submit()
        while not begun.done():
            time.sleep(0.01)
        return begun.result()

    @flow
    def polls():
        return outer()

    assert in_time(polls) == 1


def test_a_call_that_was_left_behind_holds_no_place(width):
    width(1)
    hangs = threading.Event()

    @step(timeout=0.2)
    def hung():
        hangs.wait(PATIENCE)

    @step
    def work():
        return "on"

    @flow
    def goes_on():
        with pytest.raises(StepTimeout):
            hung()
        return work()

    try:
        assert in_time(goes_on) == "on"
    finally:
        hangs.set()


def test_tools_that_kick_off_crews_whose_tools_block_never_wait_in_a_circle(width):
    width(1)

    @tool
    def look(where: str) -> str:
        """Look."""
        return where

    @tool
    def delegate(what: str) -> str:
        """Have others do it."""
        return crew([look, look], "look", {"where": "here"}).kickoff().raw

    def crew(tools, name, arguments):
        replies = [[ToolCall(name, arguments), ToolCall(name, arguments)], "done"]
        agent = Agent(role="W", goal="g", llm=ScriptedLLM(replies), tools=tools[:1])
        return Crew(tasks=[Task(description="Do", expected_output="x", agent=agent)])

    @flow
    def works():
        return crew([delegate], "delegate", {"what": "x"}).kickoff().raw

    assert in_time(works) == "done"


def test_kickoff_for_each_runs_so_many_at_once(width):
    peak = Peak()

    class Slow(ScriptedLLM):
        async def acall(self, messages, **context):
            with peak:
                return await super().acall(messages, **context)

    agent = Agent(role="W", goal="g", llm=Slow(lambda messages: messages[-1]["content"].split()[-1], delay=0.01))
    crew = Crew(tasks=[Task(description="{n}", expected_output="x", agent=agent)])
    assert len(crew.kickoff_for_each([{"n": n} for n in range(80)])) == 80
    assert peak.most == 32
    peak.most = 0
    crew.kickoff_for_each([{"n": n} for n in range(20)], max_concurrency=3)
    assert peak.most == 3
    peak.most = 0
    width(5)
    crew.kickoff_for_each([{"n": n} for n in range(20)])
    assert peak.most == 5
    with pytest.raises(ConfigError, match="max_concurrency is 0; wanted a whole number, 1 or more"):
        crew.kickoff_for_each([{"n": 1}], max_concurrency=0)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_with_calls_in_it_keeps_no_permits(calls, kept, width, monkeypatch):
    width(1)
    monkeypatch.setattr(permits, "_PATIENCE", 10 * PATIENCE)
    began = threading.Event()

    async def forever():
        began.set()
        await asyncio.Event().wait()

    async def quick():
        return "done"

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it tells of the tasks that are left in it
    begun = [loop.create_task(permitted(forever)) for _ in range(calls)]
    loop.run_until_complete(asyncio.to_thread(began.wait))
    loop.close()
    if not kept:
        begun.clear()
        gc.collect()
    assert asyncio.run(asyncio.wait_for(permitted(quick), PATIENCE)) == "done"
    begun.clear()
    gc.collect()  # now the calls give back what does not count any more
    assert asyncio.run(asyncio.wait_for(permitted(quick), PATIENCE)) == "done"
