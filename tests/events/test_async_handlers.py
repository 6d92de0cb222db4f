"""Async handlers: their order, the loops that they run on, and flushing."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import sys
import textwrap
import threading
import weakref

import pytest

from crewlite import Agent, Crew, Task, event_bus
from crewlite.errors import OnLoopThread
from crewlite.events import StepCompletedEvent, TaskCompletedEvent
from crewlite.testing import ScriptedLLM
from tests import children
from tests.events.spoken import completed, step


def slow_first(heard):
    async def handler(source, event):
        if event.name == "0":
            await asyncio.sleep(0.02)
        heard.append(event.name)

    return handler


def test_an_async_handler_hears_in_order_though_it_takes_its_time(bus):
    heard, others = [], []
    bus.on(StepCompletedEvent, slow_first(heard))
    bus.on(StepCompletedEvent, slow_first(others))
    for n in range(50):
        bus.emit(None, step(n))
    assert bus.flush(5)
    assert heard == others == [str(n) for n in range(50)]


def test_async_handlers_run_on_the_loop_that_emits_and_aflush_waits_for_them(bus):
    heard, where = [], []

    async def handler(source, event, state):
        await asyncio.sleep(0)
        heard.append((event.name, state))
        where.append(asyncio.get_running_loop())

    bus.on(StepCompletedEvent, handler)

    async def main():
        for n in range(20):
            bus.emit(None, step(n), n)
        assert heard == []
        assert await bus.aflush() == []
        assert set(where) == {asyncio.get_running_loop()}

    asyncio.run(main())
    assert heard == [(str(n), n) for n in range(20)]


def test_one_bus_serves_many_loops_one_after_another(bus):
    heard = []

    async def handler(source, event):
        heard.append(event.name)

    bus.on(StepCompletedEvent, handler)

    async def main(n):
        bus.emit(None, step(n))
        await bus.aflush()

    for n in range(5):
        asyncio.run(main(n))
    assert heard == [str(n) for n in range(5)]


def test_async_callables_and_methods_are_awaited(bus):
    heard = []

    class Object:
        async def __call__(self, source, event):
            heard.append("called")

        async def method(self, source, event, state):
            heard.append(state)

    bus.on(StepCompletedEvent, Object())
    bus.on(StepCompletedEvent, Object().method)
    bus.on(StepCompletedEvent, functools.partial(Object().method, state="partial"))
    bus.emit(None, step(), "state")
    assert bus.flush(5)
    assert sorted(heard) == ["called", "partial", "state"]


def test_events_from_plain_threads_reach_sync_and_async_handlers(bus):
    sync, later = [], []

    async def handler(source, event):
        later.append(event.name)

    bus.on(StepCompletedEvent, lambda source, event: sync.append(event.name))
    bus.on(StepCompletedEvent, handler)
    names = [[f"{t}-{n}" for n in range(100)] for t in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: [bus.emit(None, step(n)) for n in mine]) for mine in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.flush(5)
    for heard in (sync, later):
        for mine in names:
            assert [name for name in heard if name in set(mine)] == mine


def test_a_handler_that_takes_too_long_is_named_and_goes_on(bus, caplog):
    release = threading.Event()
    heard = []

    async def dawdling(source, event):
        while not release.is_set():
            await asyncio.sleep(0.001)
        heard.append(event.name)

    bus.on(StepCompletedEvent, dawdling)
    bus.emit(None, step("late"))
    assert bus.flush(0.01) is False
    assert "dawdling" in caplog.text
    release.set()
    assert bus.flush(5)
    assert heard == ["late"]


def test_a_flush_past_a_handler_that_blocks_its_loop_says_no(bus):
    """In a loop of its own: the background loop belongs to everybody."""
    release, ready = threading.Event(), threading.Event()

    async def blocking(source, event):
        release.wait(5)

    async def main():
        bus.on(StepCompletedEvent, blocking)
        bus.emit(None, step())
        ready.set()
        await bus.aflush()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait(5)
    assert bus.flush(0) is False
    release.set()
    thread.join()


def test_a_cancelled_handler_loses_only_its_own_event_and_no_order(bus):
    heard = []

    async def handler(source, event):
        if event.name == "0":
            raise asyncio.CancelledError
        heard.append(event.name)

    bus.on(StepCompletedEvent, handler)

    async def main():
        for n in range(5):
            bus.emit(None, step(n))
        await asyncio.sleep(0)
        await bus.aflush()

    asyncio.run(main())
    assert heard == ["1", "2", "3", "4"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_handler_whose_task_was_cancelled_hears_what_waited_before_what_comes_next(bus, begun):
    heard = []

    async def handler(source, event):
        heard.append(event.name)
        await asyncio.sleep(60 if event.name == "0" and begun else 0)

    async def main():
        for n in range(3):
            bus.emit(None, step(n))
        await asyncio.sleep(0) if begun else None
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        await bus.aflush(5)
        bus.emit(None, step(3))
        await bus.aflush(5)

    bus.on(StepCompletedEvent, handler)
    asyncio.run(main())
    assert heard == ["0", "1", "2", "3"]


def test_a_flush_goes_on_though_the_task_of_a_handler_is_cancelled_meanwhile(bus):
    heard = []

    async def handler(source, event):
        heard.append(event.name)
        await asyncio.sleep(60 if event.name == "0" else 0)

    async def main():
        for n in range(3):
            bus.emit(None, step(n))
        (handling,) = asyncio.all_tasks() - {asyncio.current_task()}
        flushed = asyncio.create_task(bus.aflush(5))
        await asyncio.sleep(0)
        handling.cancel()
        return await flushed

    bus.on(StepCompletedEvent, handler)
    assert asyncio.run(main()) == []
    assert heard == ["0", "1", "2"]


def test_what_a_loop_left_undelivered_goes_with_it(bus):
    left = []

    async def handler(source, event):
        await asyncio.sleep(60)

    async def main():
        for n in range(3):
            bus.emit(None, event := step(n))
            left.append(weakref.ref(event))
        await asyncio.sleep(0)

    subscription = bus.on(StepCompletedEvent, handler)
    for _ in range(3):
        asyncio.run(main())
    subscription.cancel()
    gc.collect()
    assert [event() for event in left] == [None] * 9


def test_an_async_handler_may_emit_and_flush_waits_for_what_follows(bus):
    heard = []

    async def first(source, event):
        await asyncio.sleep(0)
        bus.emit(None, completed())

    async def second(source, event):
        heard.append(event.type)

    bus.on(StepCompletedEvent, first)
    bus.on(TaskCompletedEvent, second)
    bus.emit(None, step())
    assert bus.flush(5)
    assert bus.flush(5)
    assert heard == ["task_completed"]


def test_flush_on_the_background_loop_would_wait_for_itself(bus):
    raised = []

    async def handler(source, event):
        try:
            bus.flush()
        except OnLoopThread as error:
            raised.append(str(error))

    bus.on(StepCompletedEvent, handler)
    bus.emit(None, step())
    assert bus.flush(5)
    assert "await aflush()" in raised[0]


def test_flush_with_nothing_to_wait_for_is_done_at_once(bus):
    assert bus.flush(0)
    assert asyncio.run(bus.aflush(0)) == []


def run(code):
    return children.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)


def test_what_async_handlers_have_not_heard_at_the_end_of_the_program_they_hear_still():
    done = run(
        """
        import asyncio
        from crewlite.events import StepCompletedEvent
        from crewlite.events.event_bus import event_bus

        @event_bus.on(StepCompletedEvent)
        async def handler(source, event):
            await asyncio.sleep(0.02)
            print(event.name, flush=True)

        for n in range(5):
            event_bus.emit(None, StepCompletedEvent(kind="step", name=str(n)))
        """
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["0", "1", "2", "3", "4"], "")


def test_an_event_of_a_program_that_ends_before_the_thread_of_the_loop_runs_is_heard():
    done = run(
        """
        import threading, time
        from crewlite.events import StepCompletedEvent
        from crewlite.events.event_bus import event_bus

        runs = threading.Thread.run

        def run(thread):
            if thread.name == "crewlite-loop":
                time.sleep(0.3)  # as on a busy machine
            runs(thread)

        threading.Thread.run = run

        @event_bus.on(StepCompletedEvent)
        async def handler(source, event):
            print("heard", flush=True)

        event_bus.emit(None, StepCompletedEvent(kind="step", name="s"))
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


def test_events_emitted_while_the_program_ends_are_heard_too():
    done = run(
        """
        import asyncio, atexit
        from crewlite.events import StepCompletedEvent
        from crewlite.events.event_bus import event_bus

        @event_bus.on(StepCompletedEvent)
        async def handler(source, event):
            await asyncio.sleep(0.02)
            print("async", event.name, flush=True)

        @event_bus.on(StepCompletedEvent)
        def plain(source, event):
            print("plain", event.name, flush=True)

        event_bus.emit(None, StepCompletedEvent(kind="step", name="during"))
        atexit.register(lambda: event_bus.emit(None, StepCompletedEvent(kind="step", name="at exit")))
        """
    )
    lines = ["async at exit", "async during", "plain at exit", "plain during"]
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, lines, "")


def test_an_async_handler_finds_the_context_variables_of_the_run_whose_event_it_hears():
    whose = contextvars.ContextVar("whose", default="nobody")
    heard, heard_at_once = [], []

    async def hear(source, event):
        heard.append((event.output.description, whose.get()))
        await asyncio.sleep(0)
        heard.append((event.output.description, whose.get()))

    def hear_at_once(source, event):
        heard_at_once.append((event.output.description, whose.get()))

    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(lambda messages: "done", delay=0.01))
    crew = Crew(tasks=[Task(name="t", description="for {whose}", expected_output="text", agent=agent)])

    def request(name):
        whose.set(name)
        crew.kickoff({"whose": name})

    names = ["alice", "bob", "carol"]
    with event_bus.scoped():
        event_bus.on(TaskCompletedEvent, hear)
        event_bus.on(TaskCompletedEvent, hear_at_once)
        for several in (names, ["dora"], ["emil"]):
            threads = [threading.Thread(target=request, args=(name,)) for name in several]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        event_bus.flush()
    wanted = [(f"for {name}", name) for name in [*names, "dora", "emil"]]
    assert sorted(heard_at_once) == wanted
    assert sorted(heard) == sorted(2 * wanted)
