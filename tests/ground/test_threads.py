"""Calls that block share the threads of their run: one after the other, and never with another run."""

from __future__ import annotations

import asyncio
import threading
import weakref

from crewlite.concurrency import threads
from crewlite.concurrency.background import blocking, in_thread
from crewlite.flow import flow, step
from tests import children

CALLS = 20


def alive(idents):
    return [one for one in threading.enumerate() if one.ident in idents]


def test_calls_of_a_run_use_few_threads_and_none_outlives_it():
    @step
    def call(number):
        seen.append(threading.get_ident())
        names.add(threading.current_thread().name)
        return number

    @flow
    def one():
        return [call(number) for number in range(CALLS)]

    seen, names = [], set()
    assert one.kickoff() == list(range(CALLS))
    assert len(set(seen)) <= 3, "a thread may still be telling its result when the next call begins"
    assert names == {"crewlite-call"}
    children.until(lambda: not alive(seen))


def test_what_a_call_leaves_in_its_thread_is_found_in_its_run_alone():
    kept = threading.local()

    def look(name):
        found.add((name, getattr(kept, "name", None)))
        kept.name = name

    async def run(name):
        with threads.shared():
            for _ in range(CALLS):
                await in_thread(look, name)

    async def runs():
        for name in "abc":
            await run(name)
        await asyncio.gather(*(run(name) for name in "def"))

    found = set()
    asyncio.run(runs())
    assert {(name, left) for name, left in found if left not in (None, name)} == set()
    assert {(name, name) for name in "abc"} <= found


def test_calls_at_once_and_inside_others_have_threads_of_their_own():
    together = threading.Barrier(4)

    async def one():
        with threads.shared():
            await asyncio.gather(*(in_thread(together.wait, 60) for _ in range(4)))

    asyncio.run(one())
    together = threading.Barrier(2)

    async def outer():
        with threads.shared():
            await asyncio.gather(in_thread(asyncio.run, inner()), in_thread(together.wait, 60))

    async def inner():
        await in_thread(together.wait, 60)

    asyncio.run(outer())


def test_an_idle_thread_keeps_nothing_of_its_last_call():
    class Thing:
        pass

    def call(thing):
        return thing

    async def main():
        with threads.shared():
            thing = await in_thread(call, Thing())
            gone.append(weakref.ref(thing))
            del thing
            await asyncio.to_thread(children.until_freed, *gone)

    gone = []
    asyncio.run(main())


def test_an_abandoned_call_ends_its_thread_when_it_is_over():
    go_on, idents = threading.Event(), []

    def hang():
        idents.append(threading.get_ident())
        go_on.wait(60)

    async def main():
        with threads.shared():
            hanging = asyncio.ensure_future(blocking(hang))
            await asyncio.to_thread(children.until, lambda: idents)
            hanging.cancel()
            assert await in_thread(threading.get_ident) not in idents

    asyncio.run(main())
    assert alive(idents)
    go_on.set()
    children.until(lambda: not alive(idents))
